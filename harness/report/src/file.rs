//! Report files appear whole or not at all: a reader never sees half of one.

use std::{
    fs::File,
    io::{self, BufWriter, IntoInnerError, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::ReportError;

/// Writes a file through a temporary one in the same folder: written, synced, renamed, and the folder
/// synced. On an error the old file, if any, is as it was.
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<(), ReportError> {
    let mut whole = WholeFile::begin(path)?;
    whole.append(contents)?;
    whole.finish()
}

/// A file that appears when it is finished, and not before.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
}

impl WholeFile {
    /// Begins to write it, beside its place.
    pub fn begin(path: &Path) -> Result<Self, ReportError> {
        let made = tempfile::Builder::new()
            .prefix(".writing-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder(path));
        let file = made.map_err(|source| unwritten(path, source))?;
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
        })
    }

    /// Appends.
    pub fn append(&mut self, contents: &[u8]) -> Result<(), ReportError> {
        let written = self.file.write_all(contents);
        written.map_err(|source| unwritten(&self.path, source))
    }

    /// Appends all of another file.
    pub fn append_file(&mut self, other: &mut File) -> Result<(), ReportError> {
        let copied = io::copy(other, &mut self.file);
        copied
            .map(drop)
            .map_err(|source| unwritten(&self.path, source))
    }

    /// Puts it in its place.
    pub fn finish(self) -> Result<(), ReportError> {
        let Self { path, file } = self;
        persist(&path, file).map_err(|source| unwritten(&path, source))
    }
}

fn persist(path: &Path, file: BufWriter<NamedTempFile>) -> io::Result<()> {
    let file = file.into_inner().map_err(IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder(path))?.sync_all()
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn unwritten(path: &Path, source: io::Error) -> ReportError {
    ReportError::Write {
        path: path.to_owned(),
        source,
    }
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
