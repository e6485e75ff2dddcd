//! Calls of bpf(2) that wait to be answered by this process (seccomp's user notification, `SECCOMP_RET_USER_NOTIF`), and what
//! answering them takes of whoever made them.

#![expect(unsafe_code, reason = "none of the calls has a safe form")]

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use libc::{
    SECCOMP_ADDFD_FLAG_SEND, SECCOMP_USER_NOTIF_FLAG_CONTINUE, c_int, c_long, seccomp_notif,
    seccomp_notif_addfd, seccomp_notif_resp,
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev},
    unistd::Pid,
};

mod ioctls {
    use libc::{seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp};

    // linux/seccomp.h
    nix::ioctl_readwrite!(receive, b'!', 0, seccomp_notif);
    nix::ioctl_readwrite!(send, b'!', 1, seccomp_notif_resp);
    nix::ioctl_write_ptr!(is_valid, b'!', 2, u64);
    nix::ioctl_write_ptr!(add_descriptor, b'!', 3, seccomp_notif_addfd);
}

/// A thread's, not its process's (linux/pidfd.h, Linux 6.9).
const PIDFD_THREAD: c_int = libc::O_EXCL;

/// Where calls wait.
#[derive(Debug)]
pub(super) struct Listener(OwnedFd);

/// A call that waits.
#[derive(Debug)]
pub(super) struct Call {
    id: u64,
    thread: Pid,
    /// bpf(2)'s.
    pub(super) command: u32,
    /// Where its attributes are, and how many bytes of them the caller knows.
    pub(super) attributes: u64,
    pub(super) size: u64,
}

impl Listener {
    /// Of the descriptor that seccomp(2) has made.
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Waits for a call. `None` when nobody is left who could make one.
    pub(super) fn next(&self) -> io::Result<Option<Call>> {
        loop {
            let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                answer => answer?,
            };
            let there = polled[0].revents().unwrap_or(PollFlags::empty());
            if !there.contains(PollFlags::POLLIN) {
                return Ok(None);
            }
            // SAFETY: a structure of numbers; the kernel wants it to be zero.
            let mut call: seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: it is the kernel's to fill until the call returns.
            match unsafe { ioctls::receive(self.0.as_raw_fd(), &raw mut call) } {
                Ok(_) => return Ok(Some(Call::of(&call))),
                // The caller was killed, or interrupted, before it was heard.
                Err(Errno::ENOENT | Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Who made a call. It still waits for its answer then: the thread's id is its own.
    pub(super) fn caller(&self, call: &Call) -> io::Result<Caller> {
        // SAFETY: no pointer is passed.
        let opened =
            unsafe { libc::syscall(libc::SYS_pidfd_open, call.thread.as_raw(), PIDFD_THREAD) };
        let caller = Caller {
            thread: call.thread,
            descriptors: owned(opened)?,
        };
        // SAFETY: the number lives longer than the call.
        unsafe { ioctls::is_valid(self.0.as_raw_fd(), &raw const call.id) }?;
        Ok(caller)
    }

    /// The call returns a descriptor of the same as this one.
    pub(super) fn hand_over(&self, call: &Call, made: &OwnedFd) -> io::Result<()> {
        let passed = seccomp_notif_addfd {
            id: call.id,
            flags: small(SECCOMP_ADDFD_FLAG_SEND),
            srcfd: u32::try_from(made.as_raw_fd()).map_err(io::Error::other)?,
            newfd: 0,
            // As every descriptor that bpf(2) makes.
            newfd_flags: u32::try_from(libc::O_CLOEXEC).map_err(io::Error::other)?,
        };
        // SAFETY: the structure lives longer than the call.
        unsafe { ioctls::add_descriptor(self.0.as_raw_fd(), &raw const passed) }?;
        Ok(())
    }

    /// The call fails.
    pub(super) fn refuse(&self, call: &Call, error: Errno) -> io::Result<()> {
        self.answer(call, -(error as c_int), 0)
    }

    /// The kernel makes the call as it came.
    pub(super) fn let_pass(&self, call: &Call) -> io::Result<()> {
        self.answer(call, 0, small(SECCOMP_USER_NOTIF_FLAG_CONTINUE))
    }

    fn answer(&self, call: &Call, error: c_int, flags: u32) -> io::Result<()> {
        let mut answer = seccomp_notif_resp {
            id: call.id,
            val: 0,
            error,
            flags,
        };
        // SAFETY: the structure lives longer than the call.
        unsafe { ioctls::send(self.0.as_raw_fd(), &raw mut answer) }?;
        Ok(())
    }
}

impl Call {
    fn of(heard: &seccomp_notif) -> Self {
        let [command, attributes, size, ..] = heard.data.args;
        Self {
            id: heard.id,
            thread: Pid::from_raw(heard.pid.cast_signed()),
            command: lower(command),
            attributes,
            size: u64::from(lower(size)),
        }
    }
}

/// What the kernel looks at of an argument that is an `int`.
fn lower(argument: u64) -> u32 {
    u32::try_from(argument & u64::from(u32::MAX)).expect("it is 32 bits")
}

/// Who made a call, held by a descriptor.
#[derive(Debug)]
pub(super) struct Caller {
    thread: Pid,
    descriptors: OwnedFd,
}

impl Caller {
    /// What it has at an address, up to so many bytes: less where its memory ends.
    pub(super) fn read(&self, at: u64, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; most];
        let remote = [RemoteIoVec {
            base: usize::try_from(at).map_err(io::Error::other)?,
            len: most,
        }];
        let read = process_vm_readv(self.thread, &mut [IoSliceMut::new(&mut bytes)], &remote)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Puts bytes into its memory.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let remote = [RemoteIoVec {
            base: usize::try_from(at).map_err(io::Error::other)?,
            len: bytes.len(),
        }];
        process_vm_writev(self.thread, &[IoSlice::new(bytes)], &remote)?;
        Ok(())
    }

    /// What a descriptor of its stands for.
    pub(super) fn descriptor(&self, number: RawFd) -> io::Result<OwnedFd> {
        let held = self.descriptors.as_raw_fd();
        // SAFETY: no pointer is passed.
        owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, held, number, 0) })
    }
}

fn owned(result: c_long) -> io::Result<OwnedFd> {
    let descriptor = Errno::result(result)?;
    let descriptor = RawFd::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A flag of linux/seccomp.h, as the structures have it.
fn small(flag: libc::c_ulong) -> u32 {
    u32::try_from(flag).expect("flags are small")
}
