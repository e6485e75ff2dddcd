//! A process that is held: whatever gets its number after its end is another one, and never gets its signals.

#![expect(unsafe_code, reason = "the calls for pidfds have no safe form")]

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};

/// A process, by its number and what holds it.
#[derive(Debug)]
pub struct Process {
    id: i32,
    held: OwnedFd,
}

/// What a process has been from its start: who runs which program, with which environment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) user: u32,
    pub(crate) program: (u64, u64),
    environment: Vec<u8>,
}

impl Origin {
    /// The value of a variable of the environment.
    pub(crate) fn variable(&self, name: &str) -> Option<&[u8]> {
        let mut variables = self.environment.split(|&byte| byte == 0);
        variables.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }
}

impl Process {
    /// Holds the process of that number, if there is one.
    pub(crate) fn hold(id: i32) -> io::Result<Self> {
        // SAFETY: the call takes no pointer.
        let held = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
        let held = i32::try_from(held).map_err(io::Error::other)?;
        if held < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us.
        let held = unsafe { OwnedFd::from_raw_fd(held) };
        Ok(Self { id, held })
    }

    /// Its number.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// What it has been from its start; `None` for one that has ended, or that is not ours to look at.
    pub(crate) fn origin(&self) -> Option<Origin> {
        let at = |file: &str| format!("/proc/{}/{file}", self.id);
        let program = fs::metadata(at("exe")).ok()?;
        let origin = Origin {
            user: fs::metadata(at("status")).ok()?.uid(),
            program: (program.dev(), program.ino()),
            environment: fs::read(at("environ")).ok()?,
        };
        // What was read by its number was the process's as long as that lives.
        self.lives().then_some(origin)
    }

    /// Sends it a signal; one that has ended gets none.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        let held = self.held.as_raw_fd();
        // SAFETY: the descriptor is open, and no information is passed.
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, held, signal as i32, none, 0) };
        let error = io::Error::last_os_error();
        if sent == 0 || error.raw_os_error() == Some(libc::ESRCH) {
            return Ok(());
        }
        Err(error)
    }

    /// Whether it has not ended.
    pub fn lives(&self) -> bool {
        let mut end = [PollFd::new(self.held.as_fd(), PollFlags::POLLIN)];
        poll(&mut end, PollTimeout::ZERO) == Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_has_ended_is_told_from_its_number() {
        let mut sleep = Command::new("sleep");
        let mut child = sleep.arg("1000").env("MARK", "one").spawn().unwrap();
        let process = Process::hold(i32::try_from(child.id()).unwrap()).unwrap();
        // Between fork and exec it has our program, and in the midst of exec no environment.
        let begin = std::time::Instant::now();
        let origin = loop {
            let origin = process.origin().unwrap();
            if origin.variable("MARK").is_some() || begin.elapsed().as_secs() > 10 {
                break origin;
            }
        };
        assert_eq!(origin.variable("MARK"), Some(&b"one"[..]));
        assert_eq!(origin.variable("MAR"), None);
        assert!(process.lives());
        process.signal(Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(!process.lives() && process.origin().is_none());
        process.signal(Signal::SIGKILL).unwrap();
    }
}
