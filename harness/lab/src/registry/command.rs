//! A command in a place of a world that the caller names.

use std::{ffi::OsStr, process::Command};

use super::{World, enter, path_of, worlds};
use crate::{error::LabError, worker::PATH};

/// A command in a place, to be run: of the world whose worker has that number, or of the one that [`shell`](super::shell) means.
pub fn command(worker: Option<i32>, place: &str, command: &[&str]) -> Result<Command, LabError> {
    let (path, wanted) = (path_of(place), worker.map(|it| it.to_string()));
    let is_it = |world: &&World| {
        let name = world.worker.file_name().and_then(OsStr::to_str);
        wanted.is_none() || name == wanted.as_deref()
    };
    let worlds = worlds();
    let mut found = worlds.iter().rev().filter(is_it);
    let found = found.find_map(|world| Some((world.maker(), world.thread(&path)?)));
    let Some((maker, tid)) = found else {
        let which = worker.map_or_else(String::new, |it| format!(" of process {it}"));
        let what = format!("no world{which} has the place {place}: `chainbreak shell` lists all");
        return Err(LabError::Unable { what });
    };
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let mut entered = enter(maker, tid, place, &command);
    entered.env("PATH", PATH);
    Ok(entered)
}
