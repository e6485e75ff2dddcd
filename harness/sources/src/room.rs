//! Room for what is to be made, looked for before it is begun.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use crate::SourceError;

/// Fails unless the file system of a folder, which may have to be made yet, has so many MB to spare.
pub(crate) fn room(what: &str, at: &Path, by: &'static str, needs: u64) -> Result<(), SourceError> {
    let there = at.ancestors().find(|folder| folder.is_dir());
    let Some(Ok(free)) = there.map(statvfs) else {
        return Ok(());
    };
    let has = free.blocks_available().saturating_mul(free.fragment_size()) / 1_000_000;
    if has >= needs {
        return Ok(());
    }
    Err(SourceError::NoRoom {
        what: what.to_owned(),
        at: at.to_owned(),
        needs,
        has,
        by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_is_said_with_how_much_and_whose() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("to/be/made");
        let why = room("kube-proxy 1.34.2", &absent, "GOCACHE", u64::MAX).unwrap_err();
        let why = why.to_string();
        assert!(
            why.contains("GOCACHE") && why.contains("to/be/made"),
            "{why}"
        );
        room("kube-proxy 1.34.2", &absent, "GOCACHE", 0).unwrap();
    }
}
