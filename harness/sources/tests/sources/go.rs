//! A `go` that is a script: it answers like the real one, "compiles" by writing a script that says its version, and writes down
//! what it was told.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use chainbreak_sources::{Builder, Cache, Release, SourceError};
use tempfile::TempDir;
use tokio::sync::Notify;

const GO: &str = r#"#!/bin/sh
echo "$*" >> HERE/told
case "$1 $2" in
"env -json") echo '{"GOVERSION":"@VERSION","GOMODCACHE":"HERE","GOCACHE":"HERE"}' ;;
"mod download") @DOWNLOAD ;;
"mod tidy") cp go.mod HERE/go.mod ;;
"build -trimpath") @BUILD ;;
esac
"#;
const DOWNLOAD: &str = r#"echo '{"GoMod":"HERE/upstream"}'"#;
const BUILD: &str =
    r"printf '#!/bin/sh\necho Kubernetes v1.34.2\n' > kube-proxy; chmod +x kube-proxy";
const UPSTREAM: &str =
    "module k8s.io/kubernetes\n\ngo 1.24.0\n\nreplace k8s.io/api => ./staging/src/k8s.io/api\n";

/// A machine with such a Go, and a cache.
pub(crate) struct Machine {
    pub(crate) folder: TempDir,
    pub(crate) cache: Cache,
    pub(crate) said: Mutex<Vec<String>>,
    more: Notify,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Self {
            cache: Cache::at(folder.path().join("cache")),
            folder,
            said: Mutex::default(),
            more: Notify::new(),
        };
        fs::write(machine.path("upstream"), UPSTREAM).unwrap();
        machine.go("go1.26.8", DOWNLOAD, BUILD);
        machine
    }

    /// From now on its Go is of that version, and does this.
    pub(crate) fn go(&self, version: &str, download: &str, build: &str) {
        let text = GO
            .replace("@DOWNLOAD", download)
            .replace("@BUILD", build)
            .replace("@VERSION", version)
            .replace("HERE", &self.folder.path().display().to_string());
        // Another process writes what is run: a file that this one writes stays open for writing in each child that another test
        // starts meanwhile, until that child's exec, and cannot be run (ETXTBSY). Beside and renamed: it may be running.
        let (text_at, fresh) = (self.path("go.text"), self.path("go.fresh"));
        fs::write(&text_at, text).unwrap();
        let mut install = Command::new("install");
        let installed = install.arg("--mode=755").args([&text_at, &fresh]).status();
        assert!(installed.unwrap().success());
        fs::rename(fresh, self.path("go")).unwrap();
    }

    pub(crate) fn downloading(&self, download: &str) {
        self.go("go1.26.8", download, BUILD);
    }

    pub(crate) fn building(&self, build: &str) {
        self.go("go1.26.8", DOWNLOAD, build);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn build(&self, release: &str) -> Result<PathBuf, SourceError> {
        let builder = Builder {
            cache: &self.cache,
            go: self.path("go"),
        };
        let say = |line: &str| {
            self.said.lock().unwrap().push(line.to_owned());
            self.more.notify_one();
        };
        let release: Release = release.parse().unwrap();
        builder.build(release, &say).await
    }

    /// How often something was compiled.
    pub(crate) fn compiled(&self) -> usize {
        let told = fs::read_to_string(self.path("told")).unwrap_or_default();
        told.lines()
            .filter(|line| line.starts_with("build"))
            .count()
    }

    /// Returns when it has said those words.
    pub(crate) async fn says(&self, words: &str) {
        while !self.has_said(words) {
            self.more.notified().await;
        }
    }

    pub(crate) fn has_said(&self, words: &str) -> bool {
        let said = self.said.lock().unwrap();
        said.iter().any(|line| line.contains(words))
    }
}

/// The names in a folder, but for locks.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names
        .filter(|name| Path::new(name).extension().is_none_or(|it| it != "lock"))
        .collect();
    names.sort();
    names
}
