//! Worlds as somebody runs them, and what their histories say.

use std::{
    fs::{self, File},
    io::BufReader,
    path::Path,
    process::{Command, Stdio},
};

use chainbreak_model::event::{Event, EventKind, Phase};
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

/// How many worlds live at once: they wait most of the time.
const AT_ONCE: &str = "6";

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
    let allowed: &[&str] = if worlds.iter().any(World::takes_programs) {
        &["--allow-ebpf"]
    } else {
        &[]
    };
    let mut run = Command::new(env!("CARGO_BIN_EXE_chainbreak"));
    run.current_dir(folder.path())
        .env_remove("CHAINBREAK_LOG")
        .env_remove("GITHUB_ACTIONS")
        .args(["run", ".", "--jobs", AT_ONCE, "--out", "out"])
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

/// What went wrong beside the case.
fn troubles(events: &[Event]) -> String {
    let texts = events.iter().filter_map(|event| match &event.what {
        EventKind::Trouble { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
