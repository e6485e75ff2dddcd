//! Report files appear whole or not at all: a reader never sees half of one.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use crate::ReportError;

/// Writes a file through a temporary one in the same folder: written, synced, renamed, and the folder
/// synced. On an error the old file, if any, is as it was.
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<(), ReportError> {
    write(path, contents).map_err(|source| ReportError::Write {
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new()
        .prefix(".writing-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder)?;
    file.write_all(contents)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("junit.xml");
        write_atomically(&path, b"long old contents").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        std::fs::create_dir(&path).unwrap();
        let error = write_atomically(&path, b"x").unwrap_err().to_string();
        assert!(error.contains("taken"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
