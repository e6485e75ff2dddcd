//! Worlds as somebody runs them, and what their histories say.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use chainbreak_model::event::{Event, EventKind, Phase};
use serde_json::Value;

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
    let said = [ran.stdout, ran.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let tell = |world: &World| {
        let told = history(folder.path(), &world.name());
        let (case, events) =
            told.unwrap_or_else(|| panic!("nothing is told of {}:\n{said}", world.name()));
        let judged = |event: &Event| matches!(event.what, EventKind::Phase(Phase::Judged));
        assert!(
            events.iter().any(judged),
            "{} was not lived through:\n{world}\n{}",
            world.name(),
            troubles(&events)
        );
        let left = left(&case);
        for program in world.programs() {
            let place = format!("{program} filter cali-FORWARD");
            let is_bpf = world.takes_programs();
            assert!(
                is_bpf || left.contains_key(&place),
                "no {place} in {}",
                world.name()
            );
        }
        left
    };
    worlds.iter().map(tell).collect()
}

/// The folder of that scenario's case, and what happened in it.
fn history(folder: &Path, scenario: &str) -> Option<(PathBuf, Vec<Event>)> {
    let run = fs::canonicalize(folder.join("out/latest")).ok()?;
    let lines = fs::read_to_string(run.join("run.jsonl")).ok()?;
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut histories = lines.filter_map(|line| line.get("history").cloned());
    let case = format!("{scenario}/");
    let is_its = |it: &Value| it["case"].as_str().is_some_and(|id| id.starts_with(&case));
    let path = run.join(histories.find(is_its)?["path"].as_str()?);
    let events = fs::read_to_string(&path).ok()?;
    let events = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    Some((path.parent()?.to_owned(), events.collect()))
}

/// What went wrong beside the case.
fn troubles(events: &[Event]) -> String {
    let texts = events.iter().filter_map(|event| match &event.what {
        EventKind::Trouble { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
