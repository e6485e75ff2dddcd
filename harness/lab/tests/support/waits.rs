//! Waits that take no processor and have an end.

use std::{path::Path, process::Command, sync::mpsc, thread, time::Duration};

/// Nothing that is waited for takes a tenth of this on an idle machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// What comes of a wait, if it ends in time. Else the thread that waits is left behind.
pub(crate) fn within<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (told, heard) = mpsc::channel();
    thread::spawn(move || drop(told.send(wait())));
    heard.recv_timeout(PATIENCE).ok()
}

/// Makes a named pipe: who opens it waits for who opens its other end.
pub(crate) fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}
