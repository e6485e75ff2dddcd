//! The kube-proxy that `make real` builds, by the same scripts: they come along in this program, and so the key of what they make is
//! the same.

use std::{fs, path::PathBuf, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use crate::{Cache, Release, Say, SourceError};

/// They stand beside each other.
const SCRIPTS: [(&str, &str); 3] = [
    (
        "build-kube-proxy",
        include_str!("../../../clusters/lab/real/build-kube-proxy"),
    ),
    (
        "kubernetes.sh",
        include_str!("../../../clusters/lab/real/kubernetes.sh"),
    ),
    (
        "debian.sh",
        include_str!("../../../clusters/lab/real/debian.sh"),
    ),
];

/// The path of that program, built if it is not there yet.
pub(crate) async fn kube_proxy(cache: &Cache, say: Say<'_>) -> Result<PathBuf, SourceError> {
    let release = Release::OF_SCRIPTS;
    let failed = |what: &'static str| {
        move |said: String| SourceError::Failed {
            release,
            what,
            said,
        }
    };
    let folder =
        tempfile::tempdir().map_err(|error| failed("unpack its scripts")(error.to_string()))?;
    for (name, text) in SCRIPTS {
        let path = folder.path().join(name);
        fs::write(&path, text).map_err(SourceError::cache("write", path))?;
    }
    let mut command = Command::new("/bin/sh");
    command
        .arg(folder.path().join(SCRIPTS[0].0))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // They name a folder of this name below it.
    if let Some(above) = cache.folder().parent() {
        command.env("XDG_CACHE_HOME", above);
    }
    let spawned = command.spawn();
    let mut child = spawned.map_err(|error| failed("run its scripts")(error.to_string()))?;
    let stderr = child.stderr.take().expect("standard error is piped");
    let mut lines = BufReader::new(stderr).lines();
    let mut last = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let line = line.strip_prefix("chainbreak: ").unwrap_or(&line);
        say(line);
        line.clone_into(&mut last);
    }
    let output = child.wait_with_output().await;
    let output = output.map_err(|error| failed("run its scripts")(error.to_string()))?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !path.is_empty() {
        Ok(path.into())
    } else {
        Err(failed("build it of Debian's source")(last))
    }
}
