//! The `go` of the machine, asked and run.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use serde::Deserialize;
use tokio::{
    process::Command,
    time::{Instant, MissedTickBehavior, interval_at},
};

use crate::Say;

/// How often work that goes on says so.
const TICK: Duration = Duration::from_secs(15);

/// That `go`, in a folder.
#[derive(Debug)]
pub(crate) struct Go<'a> {
    pub(crate) program: &'a Path,
    pub(crate) folder: &'a Path,
}

/// What it says of itself there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Nature {
    /// `go1.26.8`.
    #[serde(rename = "GOVERSION")]
    pub(crate) version: String,
    /// Where it keeps modules.
    #[serde(rename = "GOMODCACHE")]
    pub(crate) modules: PathBuf,
    /// Where it keeps what it compiled.
    #[serde(rename = "GOCACHE")]
    pub(crate) objects: PathBuf,
}

/// What `go mod download -json` says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Downloaded {
    #[serde(default)]
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) go_mod: Option<PathBuf>,
}

/// A command that did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no such program.
    Absent,
    /// It said this.
    Said(String),
}

impl Go<'_> {
    /// Its version and folders.
    pub(crate) async fn nature(&self) -> Result<Nature, Failure> {
        let args = ["env", "-json", "GOVERSION", "GOMODCACHE", "GOCACHE"];
        let output = self.run(&args).await?;
        let nature = serde_json::from_slice(&output.stdout);
        nature.map_err(|error| Failure::Said(format!("`go env` is not understood: {error}")))
    }

    /// A module's go.mod and all of the module.
    pub(crate) async fn download(
        &self,
        module: &str,
        what: &str,
        say: Say<'_>,
    ) -> Result<PathBuf, Failure> {
        let args = ["mod", "download", "-json", module];
        let output = ticking(self.ends(&args), what, say).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer: Result<Downloaded, _> = serde_json::from_slice(&output.stdout);
        match answer {
            Ok(Downloaded {
                error: Some(error), ..
            }) => Err(Failure::Said(error)),
            Ok(Downloaded {
                go_mod: Some(path), ..
            }) => Ok(path),
            Ok(_) | Err(_) => Err(Failure::Said(said)),
        }
    }

    /// A command that may take long.
    pub(crate) async fn work(
        &self,
        args: &[&str],
        what: &str,
        say: Say<'_>,
    ) -> Result<(), Failure> {
        ticking(self.run(args), what, say).await.map(drop)
    }

    async fn run(&self, args: &[&str]) -> Result<Output, Failure> {
        let output = self.ends(args).await?;
        if output.status.success() {
            return Ok(output);
        }
        let said = [output.stdout, output.stderr].concat();
        Err(Failure::Said(String::from_utf8_lossy(&said).into_owned()))
    }

    /// The command's end, whatever it is. What decides about modules is the person's (GOPROXY, GOSUMDB), also whether another Go
    /// may be fetched (GOTOOLCHAIN); what decides about the program is ours.
    async fn ends(&self, args: &[&str]) -> Result<Output, Failure> {
        let toolchain = std::env::var("GOTOOLCHAIN").unwrap_or_else(|_unset| "local".to_owned());
        let mut command = Command::new(self.program);
        command
            .args(args)
            .current_dir(self.folder)
            .env("CGO_ENABLED", "0")
            .env("GO111MODULE", "on")
            .env("GOFLAGS", "-mod=mod -buildvcs=false")
            .env("GOTOOLCHAIN", toolchain)
            .env("GOWORK", "off")
            .env("GOTMPDIR", self.folder)
            .env_remove("GOOS")
            .env_remove("GOARCH")
            .env_remove("GOEXPERIMENT")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command.output().await.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::Absent,
            _ => Failure::Said(error.to_string()),
        })
    }
}

/// Says every now and then how long something has been going on.
async fn ticking<T>(work: impl Future<Output = T>, what: &str, say: Say<'_>) -> T {
    let begun = Instant::now();
    let mut ticks = interval_at(begun + TICK, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => say(&format!("{what}: {} s so far", begun.elapsed().as_secs())),
        }
    }
}
