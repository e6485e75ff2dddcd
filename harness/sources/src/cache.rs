//! Where agents are kept, which is where `make real` keeps its own. A thing in the cache is whole: it appears by one rename. Who makes
//! one holds a lock on its name, which ends with its holder, even one killed; what a killed one left is cleared by the next.

use std::{
    env,
    ffi::OsString,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use chainbreak_model::names::AgentName;
use sha2::{Digest, Sha256};

#[cfg(feature = "images")]
use crate::image::{NAME as IMAGE, Note};
use crate::{Release, Say, SourceError};

/// The digits of a key.
const KEY: usize = 12;

/// The folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache(PathBuf);

/// How a kept agent came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Of Go's modules.
    Build,
    /// By the scripts of `make real`.
    Scripts,
    /// Of an image.
    Image,
}

impl Source {
    /// As lists have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Scripts => "scripts",
            Self::Image => "image",
        }
    }
}

/// An agent in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Which one.
    pub agent: AgentName,
    /// Of what is built, the release; of an image, what the program says: `1.34.2`, `v3.28.1`.
    pub version: String,
    /// How it came about.
    pub source: Source,
    /// What `--agent` takes: the program, or the root file system that has it.
    pub path: PathBuf,
    /// The program itself.
    pub program: PathBuf,
    /// What its image was last asked for by.
    pub image: Option<String>,
}

impl Kept {
    /// That of a kube-proxy; `None` for what lies between releases.
    pub fn release(&self) -> Option<Release> {
        let is_kube_proxy = self.agent == AgentName::KubeProxy;
        self.version.parse().ok().filter(|_| is_kube_proxy)
    }

    /// Whether it is a root file system.
    pub fn is_root(&self) -> bool {
        self.path != self.program
    }

    /// The program's hash, in hexadecimal. Some tenths of a second of work.
    pub fn sha256(&self) -> io::Result<String> {
        let mut hash = Sha256::new();
        io::copy(&mut File::open(&self.program)?, &mut hash)?;
        Ok(data_encoding::HEXLOWER.encode(&hash.finalize()))
    }
}

impl Cache {
    /// The one that the environment names.
    pub fn of_environment() -> Result<Self, SourceError> {
        Self::named_by(|name| env::var_os(name)).ok_or(SourceError::NoHome)
    }

    fn named_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let own = set("XDG_CACHE_HOME").map(PathBuf::from);
        let folder = own.or_else(|| Some(Path::new(&set("HOME")?).join(".cache")));
        folder.map(|folder| Self(folder.join("chainbreak")))
    }

    /// That folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Every agent in it, the oldest release first, of one those that are built first. A cache that is not there is empty.
    pub fn kept(&self) -> Result<Vec<Kept>, SourceError> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(SourceError::cache("read", &self.0))?,
        };
        let mut kept = Vec::new();
        for entry in entries {
            let entry = entry.map_err(SourceError::cache("read", &self.0))?;
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let found = built(name, entry.path());
            #[cfg(feature = "images")]
            let found = found.or_else(|| pulled(name, &entry.path()));
            kept.extend(found);
        }
        let key = |it: &Kept| (it.agent, it.release(), it.version.clone(), it.source);
        kept.sort_by(|a, b| (key(a), &a.path).cmp(&(key(b), &b.path)));
        Ok(kept)
    }

    /// The path of what is called `made`, or the place to make it. `name` is what stands in progress, and what is locked.
    pub(crate) async fn begin(
        &self,
        name: &str,
        made: &str,
        say: Say<'_>,
    ) -> Result<Begun, SourceError> {
        let path = self.0.join(made);
        if path.exists() {
            return Ok(Begun::There(path));
        }
        fs::create_dir_all(&self.0).map_err(SourceError::cache("make", &self.0))?;
        let lock = self.lock(name, say).await?;
        // Whoever held the lock may have made it.
        if path.exists() {
            return Ok(Begun::There(path));
        }
        let part = self.0.join(format!("{name}.part"));
        clear(&part).map_err(SourceError::cache("clear", &part))?;
        fs::create_dir(&part).map_err(SourceError::cache("make", &part))?;
        Ok(Begun::Make(Workplace {
            part,
            made: path,
            _lock: lock,
        }))
    }

    async fn lock(&self, name: &str, say: Say<'_>) -> Result<File, SourceError> {
        let path = self.0.join(format!("{name}.lock"));
        let lock = File::create(&path).map_err(SourceError::cache("make", &path))?;
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(source)) => {
                return Err(SourceError::cache("lock", path)(source));
            }
            Err(TryLockError::WouldBlock) => {}
        }
        say(&format!("another process makes {name}: waiting for it"));
        let waiting = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock));
        let locked = waiting
            .await
            .unwrap_or_else(|gone| Err(io::Error::other(gone)));
        locked.map_err(SourceError::cache("lock", path))
    }
}

/// What was built, by its name.
fn built(name: &str, path: PathBuf) -> Option<Kept> {
    let (release, source, inside) = named(name)?;
    Some(Kept {
        agent: AgentName::KubeProxy,
        version: release.to_string(),
        source,
        program: inside.map_or_else(|| path.clone(), |inside| path.join(inside)),
        path,
        image: None,
    })
}

/// What was pulled, by its note.
#[cfg(feature = "images")]
fn pulled(name: &str, folder: &Path) -> Option<Kept> {
    let digits = name.strip_prefix(IMAGE)?;
    if !digits.bytes().all(|it| it.is_ascii_hexdigit()) {
        return None;
    }
    match Note::read(folder) {
        Ok(note) => Some(note.kept(folder)),
        Err(error) => {
            tracing::warn!(%error, "an image in the cache does not count");
            None
        }
    }
}

/// What a name in the cache says: the release, how it came about, and in a root where the program is.
fn named(name: &str) -> Option<(Release, Source, Option<&'static str>)> {
    let rest = name.strip_prefix("kube-proxy-v")?;
    let (rest, key) = rest.rsplit_once('-')?;
    let is_key = key.len() == KEY && key.bytes().all(|it| it.is_ascii_hexdigit());
    if !is_key {
        return None;
    }
    let (release, rest) = rest.split_once('-').unwrap_or((rest, ""));
    let release = release.parse().ok()?;
    match rest {
        "" => Some((release, Source::Scripts, None)),
        "root-legacy" | "root-nft" => {
            Some((release, Source::Scripts, Some("usr/local/bin/kube-proxy")))
        }
        go if go.starts_with("go1.") => Some((release, Source::Build, None)),
        _ => None,
    }
}

/// What [`Cache::begin`] finds.
#[derive(Debug)]
pub(crate) enum Begun {
    There(PathBuf),
    Make(Workplace),
}

/// A folder of its own to make something in, on the cache's file system. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Workplace {
    part: PathBuf,
    made: PathBuf,
    /// Ends with this.
    _lock: File,
}

impl Workplace {
    pub(crate) fn folder(&self) -> &Path {
        &self.part
    }

    /// A file or folder in it becomes what was to be made.
    pub(crate) fn finish(self, name: &str) -> Result<PathBuf, SourceError> {
        let from = self.part.join(name);
        let renamed = fs::rename(&from, &self.made);
        renamed.map_err(SourceError::cache("keep", &self.made))?;
        Ok(self.made.clone())
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.part) {
            tracing::warn!(part = %self.part.display(), %error, "left behind, and counts for nothing");
        }
    }
}

fn clear(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_scripts_have_it() {
        let named_by = |pairs: &[(&str, &str)]| {
            let pairs: Vec<(String, OsString)> = pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.into()))
                .collect();
            let found = Cache::named_by(|name| {
                let pair = pairs.iter().find(|(key, _)| key == name);
                pair.map(|(_, value)| value.clone())
            });
            found.map(|it| it.0)
        };
        let own = named_by(&[("XDG_CACHE_HOME", "/var/x"), ("HOME", "/home/me")]);
        assert_eq!(own, Some("/var/x/chainbreak".into()));
        let home = named_by(&[("XDG_CACHE_HOME", ""), ("HOME", "/home/me")]);
        assert_eq!(home, Some("/home/me/.cache/chainbreak".into()));
        assert_eq!(named_by(&[]), None);
    }

    #[test]
    fn what_counts_has_the_name_of_something_finished() {
        let named = |name| named(name).map(|(release, source, _)| (release.to_string(), source));
        let built = "kube-proxy-v1.34.2-go1.26.8-0123456789ab";
        assert_eq!(named(built), Some(("1.34.2".to_owned(), Source::Build)));
        for scripts in [
            "kube-proxy-v1.20.2-0123456789ab",
            "kube-proxy-v1.20.2-root-nft-0123456789ab",
        ] {
            assert_eq!(
                named(scripts),
                Some(("1.20.2".to_owned(), Source::Scripts)),
                "{scripts}"
            );
        }
        for other in [
            "kube-proxy-v1.34.2.part",
            "kube-proxy-v1.34.2.lock",
            "kube-proxy-v1.34.2",
            "kube-proxy-v1.34-go1.26.8-0123456789ab",
            "kube-proxy-v1.20.2-parts-0123456789ab",
            "kube-scheduler-v1.20.2-0123456789ab",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
