//! A terminal of its own for a command.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    process::Stdio,
    sync::Arc,
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::net::unix::pipe::{Receiver, Sender};

use super::{super::Prepare, Streams};

/// The side of the terminal on which somebody looks at it.
#[derive(Debug)]
pub(super) struct Terminal(OwnedFd);

impl Terminal {
    /// A new one, and what gives a command the other side.
    pub(super) fn open() -> io::Result<(Self, Prepare)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let looked_at = openpt(flags)?;
        unlockpt(&looked_at)?;
        let other = ioctl_tiocgptpeer(&looked_at, flags)?;
        let [stdin, stdout, stderr] = [other.try_clone()?, other.try_clone()?, other];
        let prepare: Prepare = Box::new(move |command| {
            command
                .stdin(Stdio::from(stdin))
                .stdout(Stdio::from(stdout))
                .stderr(Stdio::from(stderr));
        });
        Ok((Self(looked_at), prepare))
    }

    /// What sets its size, what is written on it, and its keys.
    pub(super) fn split(self) -> io::Result<Streams> {
        let flags = fcntl_getfl(&self.0)?;
        fcntl_setfl(&self.0, flags | OFlags::NONBLOCK)?;
        let keys = Sender::from_owned_fd_unchecked(self.0.try_clone()?)?;
        let size = Arc::new(self.0.try_clone()?);
        let written = Receiver::from_owned_fd_unchecked(self.0)?;
        let resize = move |width, height| {
            let size_of = Winsize {
                ws_row: height,
                ws_col: width,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            if let Err(error) = tcsetwinsize(size.as_fd(), size_of) {
                tracing::debug!(%error, "a terminal kept its size");
            }
        };
        Ok(Streams {
            resize: Some(Box::new(resize)),
            input: Some(Box::new(keys)),
            output: [Some(Box::new(written)), None],
        })
    }
}

/// The same command, with the terminal on its standard input as the one that interrupts it.
pub(super) fn controlled(argv: Vec<String>) -> Vec<String> {
    let setsid = ["setsid", "--ctty", "--wait"].map(str::to_owned);
    setsid.into_iter().chain(argv).collect()
}
