//! The scenarios that we ship.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where they are.
pub(crate) fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Each file of a scenario, and its text. The others are manifests.
pub(crate) fn shipped() -> Vec<(PathBuf, String)> {
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("a folder can be read");
        let paths = entries.map(|entry| entry.expect("an entry can be read").path());
        paths.collect::<Vec<PathBuf>>()
    };
    let areas = entries(&scenarios())
        .into_iter()
        .filter(|path| path.is_dir());
    let files = areas.flat_map(|area| entries(&area));
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "yaml"));
    let files = files.map(|path| {
        let text = fs::read_to_string(&path).expect("a scenario can be read");
        (path, text)
    });
    files
        .filter(|(_, text)| text.contains("scenario.schema.json"))
        .collect()
}
