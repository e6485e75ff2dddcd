//! Gives the caller's terminal up. `setsid` would, too, but a kernel that shares processors among sessions (autogroup, which many
//! have) then gives each world one share, however many of its processes have work to do: those of a busy world waited for more than a
//! second on a machine that was half idle (docs/performance.md).

#![expect(unsafe_code, reason = "TIOCNOTTY has no safe form")]

use std::{fs::File, os::fd::AsRawFd};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    sys::stat::Mode,
    unistd::{Pid, setpgid, setsid},
};

mod calls {
    nix::ioctl_none_bad!(give_up, libc::TIOCNOTTY);
}

/// This process and all that it starts have no terminal from here on, and are not signalled by the keys of the caller's.
pub(super) fn leave() -> nix::Result<()> {
    match open(
        "/dev/tty",
        OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC,
        Mode::empty(),
    ) {
        // There is none to give up.
        Err(Errno::ENXIO) => {}
        Ok(terminal) => {
            let terminal = File::from(terminal);
            // SAFETY: the call takes no argument, and the descriptor is open.
            unsafe { calls::give_up(terminal.as_raw_fd()) }?;
        }
        // Whether there is one cannot be known.
        Err(_) => return setsid().map(drop),
    }
    setpgid(Pid::this(), Pid::from_raw(0))
}
