//! Worlds as somebody runs them, and what their histories say.

use std::{
    fs::{self, File},
    io::BufReader,
    path::Path,
    process::{Command, Stdio},
};

use chainbreak_diagnose::last_beginning;
use chainbreak_model::{
    event::{Event, EventKind, Phase},
    names::AgentName,
};
use chainbreak_report::{Recorded, Run};

use crate::{
    left::{Left, left},
    world::World,
};

/// Whose life it is.
#[derive(Debug)]
pub(crate) enum Felix {
    /// The model of the release that the world asks for.
    Model,
    /// A program.
    Real(String),
}

/// How many worlds live at once: they wait most of the time, but where programs are loaded.
const AT_ONCE: &str = "6";
const AT_ONCE_WITH_PROGRAMS: &str = "2";

/// Plays them, and tells what was left in each.
pub(crate) fn play(worlds: &[World], felix: &Felix) -> Vec<Left> {
    let folder = tempfile::tempdir().unwrap();
    for world in worlds {
        let path = folder.path().join(format!("{}.yaml", world.name()));
        fs::write(path, world.text()).unwrap();
    }
    let felix = match felix {
        Felix::Model => "felix=model".to_owned(),
        Felix::Real(path) => format!("felix={path}"),
    };
    let (at_once, allowed): (_, &[&str]) = if worlds.iter().any(World::takes_programs) {
        (AT_ONCE_WITH_PROGRAMS, &["--allow-ebpf"])
    } else {
        (AT_ONCE, &[])
    };
    let mut run = Command::new(env!("CARGO_BIN_EXE_chainbreak"));
    run.current_dir(folder.path())
        .env_remove("CHAINBREAK_LOG")
        .env_remove("GITHUB_ACTIONS")
        .args(["run", ".", "--jobs", at_once, "--out", "out"])
        .args(["--agent", &felix])
        .args(allowed)
        .stdin(Stdio::null());
    let ran = run.output().unwrap();
    let out = folder.path().join("out/latest");
    let told = File::open(out.join("run.jsonl"));
    let told = told.unwrap_or_else(|_none| {
        let said = [ran.stdout, ran.stderr].concat();
        panic!("nothing ran:\n{}", String::from_utf8_lossy(&said))
    });
    let told = Run::read(BufReader::new(told), &out).unwrap();
    let tell = |world: &World| tell(world, &told.cases[&format!("{}/it", world.name())], &out);
    worlds.iter().map(tell).collect()
}

/// What was left in a world that was lived through to its end.
fn tell(world: &World, case: &Recorded, out: &Path) -> Left {
    let events = case.history.events().unwrap();
    let judged = |event: &Event| matches!(event.what, EventKind::Phase(Phase::Judged));
    assert!(
        events.iter().any(judged),
        "{} was not lived through:\n{world}\n{}",
        world.name(),
        troubles(&events)
    );
    assert!(
        !world.takes_programs() || has_begun(&events),
        "{} ended before Felix had loaded its programs and looked at rules:\n{world}",
        world.name()
    );
    let left = left(out, &case.artifacts);
    for program in world.programs() {
        let place = format!("{program} filter cali-FORWARD");
        assert!(
            world.takes_programs() || left.contains_key(&place),
            "no {place} in {}",
            world.name()
        );
    }
    left
}

/// Whether Felix had brought everything in line since it last began.
fn has_begun(events: &[Event]) -> bool {
    let logged = events.iter().filter_map(|event| match &event.what {
        EventKind::Log(entry) if entry.agent == AgentName::Felix => Some(entry.text.as_str()),
        _ => None,
    });
    last_beginning(logged).is_some_and(|(_, has_begun)| has_begun)
}

/// What went wrong beside the case.
fn troubles(events: &[Event]) -> String {
    let texts = events.iter().filter_map(|event| match &event.what {
        EventKind::Trouble { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
