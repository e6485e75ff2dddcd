//! What a real Felix left in worlds, kept.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
};

use flate2::{Compression, GzBuilder, read::GzDecoder};
use serde::{Deserialize, Serialize};

use crate::{left::Left, world::World};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real_felix/corpus");

/// How many worlds of a release are kept: they are played by each `make test`.
const KEPT: usize = 6;

/// Of one release.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Recording {
    pub(crate) version: String,
    pub(crate) worlds: Vec<Recorded>,
}

/// A world and what was left in it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) world: World,
    pub(crate) left: Left,
}

impl Recording {
    /// Of these worlds those few in which most happens.
    pub(crate) fn of<'a>(
        version: String,
        lived: impl Iterator<Item = (&'a World, &'a Left)>,
    ) -> Self {
        let mut left: Vec<(&World, &Left)> = lived.collect();
        let (mut worlds, mut shown) = (Vec::new(), BTreeSet::new());
        while worlds.len() < KEPT {
            let new = |(world, _): &(&World, &Left)| world.shows().difference(&shown).count();
            let Some(next) = (0..left.len()).rev().max_by_key(|&it| new(&left[it])) else {
                break;
            };
            let (world, left) = left.remove(next);
            shown.extend(world.shows());
            worlds.push(Recorded {
                world: world.clone(),
                left: left.clone(),
            });
        }
        Self { version, worlds }
    }

    /// Those of every release.
    pub(crate) fn all() -> Vec<Self> {
        let files = fs::read_dir(CORPUS).unwrap();
        let read = |path: PathBuf| {
            serde_json::from_reader(GzDecoder::new(File::open(path).unwrap())).unwrap()
        };
        files.map(|file| read(file.unwrap().path())).collect()
    }

    /// Keeps it in place of what is kept of its release.
    pub(crate) fn write(&self) {
        let path = Path::new(CORPUS).join(format!("felix-{}.json.gz", self.version));
        let file = File::create(path).unwrap();
        let mut file = GzBuilder::new().mtime(0).write(file, Compression::best());
        serde_json::to_writer(&mut file, self).unwrap();
        file.finish().unwrap();
    }
}
