//! The user namespace in which a world lives. What was mounted before it exists is locked for those in it: they can neither
//! take a mount away, nor make one writable that is not, nor mount another /proc in which it would be.
//!
//! Its ids are those of whoever makes it: 0 is 0, for root each other id is itself. Only somebody outside of a user namespace
//! may say so of more than one id: stage 1 writes the maps, when the world's first process asks it to.

use std::{
    fs,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    path::Path,
};

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg},
    unistd::{Pid, getegid, geteuid},
};

use super::filesystem;
use crate::error::LabError;

/// What one says to the other: go on.
const GO_ON: [u8; 1] = [b'!'];

/// What one says at once has at most so many bytes, and so many descriptors.
const MOST: usize = 512;
const ABOUT: usize = 4;

/// Who makes worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// Root, with the rights that making namespaces takes.
    Root,
    /// Anybody else.
    Ordinary,
}

/// A new PID namespace for the children; as an ordinary user inside a new user namespace.
pub(super) fn isolate_processes() -> Result<Maker, LabError> {
    match unshare(CloneFlags::CLONE_NEWPID) {
        Ok(()) => return Ok(Maker::Root),
        Err(Errno::EPERM) => {}
        Err(error) => return Err(LabError::isolate("make a PID namespace")(error)),
    }
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID)
        .map_err(LabError::isolate("make a user namespace"))?;
    // An ordinary user may map the own group only after giving up setgroups (user_namespaces(7)).
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ];
    maps.iter()
        .try_for_each(|(file, text)| fs::write(Path::new("/proc/self").join(file), text))
        .map_err(LabError::isolate("become root of the user namespace"))?;
    Ok(Maker::Ordinary)
}

/// One end of what stage 1 and the world's first process say to each other.
#[derive(Debug)]
pub(super) struct Beside(UnixStream);

/// Both ends. Whoever waits for the other one hears of its end, too.
pub(super) fn beside() -> Result<(Beside, Beside), LabError> {
    let (one, other) =
        UnixStream::pair().map_err(LabError::isolate("make a socket between the stages"))?;
    Ok((Beside(one), Beside(other)))
}

impl Beside {
    /// Lets the other one go on.
    pub(super) fn tell(&mut self) -> Result<(), LabError> {
        self.0
            .write_all(&GO_ON)
            .map_err(LabError::isolate("speak to the other stage"))
    }

    /// Waits for the other one. Fails when that is gone.
    pub(super) fn wait(&mut self) -> Result<(), LabError> {
        self.0
            .read_exact(&mut [0])
            .map_err(LabError::isolate("outlive the other stage"))
    }

    /// Says something to the other one, with descriptors that it is about.
    pub(super) fn send(&mut self, words: &[u8], about: &[RawFd]) -> io::Result<()> {
        let passed = [ControlMessage::ScmRights(about)];
        let passed = if about.is_empty() { &[][..] } else { &passed };
        let words = [IoSlice::new(words)];
        sendmsg::<UnixAddr>(self.0.as_raw_fd(), &words, passed, MsgFlags::empty(), None)?;
        Ok(())
    }

    /// What the other one says, and the descriptors that it is about; `None` when it is gone, or is not understood. Each waits for
    /// the other one's answer, so that no two of them come at once.
    pub(super) fn receive(&mut self) -> Option<(Vec<u8>, Vec<RawFd>)> {
        let mut words = [0; MOST];
        let mut space = nix::cmsg_space!([RawFd; ABOUT]);
        let mut slices = [IoSliceMut::new(&mut words)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<UnixAddr>(self.0.as_raw_fd(), &mut slices, Some(&mut space), flags);
        let message = message.ok().filter(|message| message.bytes > 0)?;
        let about = message.cmsgs().ok()?.find_map(|passed| match passed {
            ControlMessageOwned::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let bytes = message.bytes;
        Some((words[..bytes].to_vec(), about.unwrap_or_default()))
    }

    /// In stage 1: gives the ids of its own namespace to the world's first process, as soon as that asks for it. One that
    /// ended before has said why.
    pub(super) fn give_ids(&mut self, to: Pid) -> Result<(), LabError> {
        if self.wait().is_err() {
            return Ok(());
        }
        for file in ["uid_map", "gid_map"] {
            give(file, to).map_err(LabError::isolate("map the ids of the world"))?;
        }
        self.tell()
    }

    /// In the world's first process: a user namespace for all that it will start, with the world's other namespaces in it.
    pub(super) fn become_own_root(&mut self) -> Result<(), LabError> {
        let flags = CloneFlags::CLONE_NEWUSER
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS;
        unshare(flags).map_err(LabError::isolate("make the world's user namespace"))?;
        self.tell()?;
        self.wait()?;
        // The one before shows another network.
        filesystem::sys(Path::new("/sys"))
    }
}

/// Maps each id that this process has to itself.
fn give(file: &str, to: Pid) -> io::Result<()> {
    let own = fs::read_to_string(Path::new("/proc/self").join(file))?;
    fs::write(format!("/proc/{to}/{file}"), identity(&own))
}

/// Of a map as the kernel says it (inside, outside, count), the inside to itself.
fn identity(map: &str) -> String {
    let lines = map.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (first, count) = (words.next()?, words.nth(1)?);
        Some(format!("{first} {first} {count}\n"))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn ids_are_in_a_world_what_they_are_outside() {
        assert_eq!(
            identity("         0          0 4294967295\n"),
            "0 0 4294967295\n"
        );
        assert_eq!(identity("0 1501 1\n"), "0 0 1\n");
        assert_eq!(identity("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }
}
