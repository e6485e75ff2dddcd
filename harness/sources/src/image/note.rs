//! What is known of a kept image, in a file beside its root.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use chainbreak_model::names::AgentName;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{ROOT, error::ImageError, manifest::Image};
use crate::{Kept, Source};

/// What the name of a kept image begins with; the digits of its digest follow.
pub(crate) const NAME: &str = "image-";
const FILE: &str = "image.json";

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Note {
    /// Of the file; 1.
    format: u16,
    agent: AgentName,
    /// As the program says it, without kube-proxy's `v`.
    version: String,
    /// In the root, no link.
    program: PathBuf,
    /// What it was last asked for by.
    reference: String,
    /// What that name led to.
    digest: String,
    /// The image's own.
    manifest: String,
    platform: String,
}

impl Note {
    pub(crate) fn new(
        agent: AgentName,
        version: &str,
        program: PathBuf,
        image: &Image,
        reference: &str,
    ) -> Self {
        Self {
            format: 1,
            agent,
            version: agent.kind().as_written(version).to_owned(),
            program,
            reference: reference.to_owned(),
            digest: image.named.clone(),
            manifest: image.digest.clone(),
            platform: image.platform.clone(),
        }
    }

    /// That of a kept image.
    pub(crate) fn read(folder: &Path) -> Result<Self, ImageError> {
        let path = folder.join(FILE);
        let text = fs::read(&path).map_err(ImageError::at(&path))?;
        let note = serde_json::from_slice(&text).map_err(io::Error::from);
        note.map_err(ImageError::at(&path))
    }

    /// Appears by one rename.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), ImageError> {
        let path = folder.join(FILE);
        let written = || {
            let mut file = NamedTempFile::new_in(folder)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        written().map_err(ImageError::at(&path))
    }

    /// Notes that a kept image was asked for by that name, just now.
    pub(crate) fn renew(folder: &Path, reference: &str, digest: &str) -> Result<(), ImageError> {
        let note = Self {
            reference: reference.to_owned(),
            digest: digest.to_owned(),
            ..Self::read(folder)?
        };
        note.write(folder)
    }

    /// What it is about, which lies in that folder.
    pub(crate) fn kept(self, folder: &Path) -> Kept {
        let path = folder.join(ROOT);
        Kept {
            agent: self.agent,
            version: self.version,
            source: Source::Image,
            program: path.join(self.program),
            path,
            image: Some(self.reference),
        }
    }
}

/// When the image of a root was last asked for.
pub(crate) fn age(root: &Path) -> Option<SystemTime> {
    let note = root.parent()?.join(FILE);
    note.metadata().and_then(|it| it.modified()).ok()
}
