//! A machine with a cache, which pulls.

use std::{fs, path::Path, sync::Mutex};

use chainbreak_model::names::AgentName;
use chainbreak_sources::{
    Cache, Kept, Puller, SourceError,
    image::{Limits, Mirrors, Reference, RegistryAuth},
};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::go::names;

/// With its mirrors, its limits and what it was told while it pulled.
pub(super) struct Machine {
    _folder: TempDir,
    pub(super) cache: Cache,
    pub(super) mirrors: Mirrors,
    pub(super) limits: Limits,
    said: Mutex<Vec<String>>,
    more: Notify,
}

impl Machine {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            cache: Cache::at(folder.path().join("cache")),
            _folder: folder,
            mirrors: Mirrors::default(),
            limits: Limits::default(),
            said: Mutex::default(),
            more: Notify::new(),
        }
    }

    pub(super) fn puller(&self) -> Puller<'_> {
        Puller {
            cache: &self.cache,
            mirrors: self.mirrors.clone(),
            credentials: |_| RegistryAuth::Anonymous,
            limits: self.limits,
        }
    }

    pub(super) async fn pull(&self, image: &Reference) -> Result<Kept, SourceError> {
        self.pull_with(&self.puller(), image).await
    }

    pub(super) async fn pull_with(
        &self,
        puller: &Puller<'_>,
        image: &Reference,
    ) -> Result<Kept, SourceError> {
        let say = |line: &str| {
            self.said.lock().unwrap().push(line.to_owned());
            self.more.notify_one();
        };
        puller.pull(image, last_word, &say).await
    }

    /// Why an image is not pulled, once it is sure that nothing is kept of it.
    pub(super) async fn refusal(&self, image: &Reference) -> String {
        let why = self.pull(image).await.unwrap_err().to_string();
        assert_eq!(why.lines().count(), 1, "{why}");
        let name = format!("{}: ", image.whole());
        let why = why.strip_prefix(&name).unwrap_or_else(|| panic!("{why}"));
        if self.cache.folder().exists() {
            assert!(names(self.cache.folder()).is_empty(), "{why}");
        }
        why.to_owned()
    }

    pub(super) fn times_said(&self, words: &str) -> usize {
        let said = self.said.lock().unwrap();
        said.iter().filter(|line| line.contains(words)).count()
    }

    pub(super) async fn says(&self, words: &str) {
        while self.times_said(words) == 0 {
            self.more.notified().await;
        }
    }
}

/// What a stand-in would say, without running it.
async fn last_word(agent: AgentName, root: &Path) -> Result<String, String> {
    let program = match agent {
        AgentName::KubeProxy => "usr/local/bin/kube-proxy",
        AgentName::Felix => "usr/bin/calico-node",
    };
    let text = fs::read_to_string(root.join(program)).map_err(|error| error.to_string())?;
    let word = text.split_whitespace().last().unwrap_or_default();
    match word.strip_prefix('v') {
        Some(_) => Ok(word.to_owned()),
        None => Err(format!("{word}\nand more")),
    }
}
