//! A command in a place of a world that the caller names.

use std::process::Command;

use super::{enter, find, worlds};
use crate::{error::LabError, worker::PATH};

/// A command in a place, to be run: of the world whose worker has that number, or of the one that [`shell`](super::shell) means.
pub fn command(worker: Option<i32>, place: &str, command: &[&str]) -> Result<Command, LabError> {
    let mut worlds = worlds();
    if let Some(worker) = worker {
        worlds.retain(|world| world.worker() == Some(worker));
        if worlds.is_empty() {
            let what = format!(
                "no world of process {worker} is there: `chainbreak shell --list` lists all"
            );
            return Err(LabError::NotThere { what });
        }
    }
    let (world, _, tid) = find(&worlds, Some(place))?;
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let mut entered = enter(world.maker(), tid, place, &command);
    entered.env("PATH", PATH);
    Ok(entered)
}
