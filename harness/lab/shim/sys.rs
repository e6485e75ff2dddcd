//! What the standard library does not offer, straight from the C library.

#![expect(unsafe_code, reason = "calls of the C library")]

use std::{
    ffi::{c_int, c_long, c_short, c_ulong},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::{self, Child, Command},
    ptr,
    sync::atomic::{AtomicI32, Ordering},
};

// Of x86_64, aarch64 and riscv64 Linux, where they are the same.
const PR_SET_PDEATHSIG: c_int = 1;
const CLOCK_MONOTONIC: c_int = 1;
const F_GETFL: c_int = 3;
const F_SETFL: c_int = 4;
const F_SETPIPE_SZ: c_int = 1031;
const O_NONBLOCK: c_int = 0o4000;
/// What the kernel gives to everybody (`/proc/sys/fs/pipe-max-size`).
const LARGEST_PIPE: c_int = 1 << 20;
const SYS_PIDFD_OPEN: c_long = 434;
const RLIMIT_CORE: c_int = 4;
const POLLIN: c_short = 1;
const POLLOUT: c_short = 4;
const POLLERR: c_short = 8;
/// As an argument of [`prctl`], which takes `unsigned long`.
const SIGKILL: c_ulong = 9;
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;
/// HUP, INT, QUIT, USR1, USR2, TERM: what is sent to make a program do something or end.
const PASSED_ON: [c_int; 6] = [1, 2, 3, 10, 12, 15];

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut TimeSpec) -> c_int;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn getppid() -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn poll(interests: *mut Interest, count: c_ulong, timeout: c_int) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
    fn setrlimit(resource: c_int, limit: *const [c_ulong; 2]) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    fn syscall(number: c_long, ...) -> c_long;
}

#[repr(C)]
struct TimeSpec {
    seconds: i64,
    nanoseconds: c_long,
}

/// Microseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now_us() -> u64 {
    let mut time = TimeSpec {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: the pointer is that of a whole `timespec`.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &raw mut time) };
    let parts = [time.seconds * 1_000_000, time.nanoseconds / 1_000];
    u64::try_from(parts[0] + parts[1]).unwrap_or(0)
}

/// Lets the command be killed when this process is.
pub(crate) fn die_with_this_process(command: &mut Command) {
    let parent = process::id();
    let tie = move || {
        // SAFETY: the option takes one number; both calls are safe between fork and exec.
        let (tied, now) = unsafe { (prctl(PR_SET_PDEATHSIG, SIGKILL), getppid()) };
        if tied != 0 {
            return Err(io::Error::last_os_error());
        }
        if u32::try_from(now) == Ok(parent) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(tie) };
}

/// Who gets the signals that this process gets; 0 when nobody.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// The signals that came before there was a child, a bit for each.
static EARLY: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(number: c_int) {
    let child = CHILD.load(Ordering::Relaxed);
    if child > 0 {
        // SAFETY: only numbers; kill(2) may be called in a handler.
        unsafe { kill(child, number) };
    } else {
        EARLY.fetch_or(1 << number, Ordering::Relaxed);
    }
}

/// From now on what ends others ends the child: this process then ends as it did. To be called before
/// there is a child, which may be running, and be waited for, before its number is known here.
pub(crate) fn keep_signals() {
    for number in PASSED_ON {
        let handler = pass_on as extern "C" fn(c_int) as usize;
        // SAFETY: the handler is a function of one number that lives forever.
        let before = unsafe { signal(number, handler) };
        if before == SIG_IGN {
            // SAFETY: only numbers. What the agent made its children ignore is ignored.
            unsafe { signal(number, SIG_IGN) };
        }
    }
}

/// The child gets what was kept and what comes.
pub(crate) fn pass_signals_on(child: &Child) {
    let id = i32::try_from(child.id()).unwrap_or(0);
    CHILD.store(id, Ordering::Relaxed);
    let early = EARLY.swap(0, Ordering::Relaxed);
    for number in PASSED_ON {
        if early & (1 << number) != 0 {
            pass_on(number);
        }
    }
}

/// To be called before the child is waited for: its number may be another's afterwards.
pub(crate) fn pass_no_signals_on() {
    CHILD.store(0, Ordering::Relaxed);
}

/// A descriptor that becomes readable when the child has ended.
pub(crate) fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: only numbers.
    let fd = unsafe { syscall(SYS_PIDFD_OPEN, c_long::from(child.id()), 0 as c_long) };
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just made it for the caller.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Standard input without a buffer; dropping it closes it. To be called once.
pub(crate) fn standard_input() -> File {
    // SAFETY: the runtime sees to it that it is open, and nobody else here uses it.
    unsafe { File::from_raw_fd(0) }
}

/// Makes reads and writes return instead of waiting. Of our end of a pipe only: the program's end is
/// another open file.
pub(crate) fn never_block(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: only numbers, of a descriptor that is open.
    let set = unsafe {
        let flags = fcntl(fd.as_raw_fd(), F_GETFL);
        fcntl(fd.as_raw_fd(), F_SETFL, flags | O_NONBLOCK)
    };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets a pipe hold so much that its two ends seldom wait for each other. What is no pipe, or where the
/// kernel refuses, stays as it is.
pub(crate) fn widen(pipe: BorrowedFd<'_>) {
    // SAFETY: only numbers, of a descriptor that is open.
    unsafe { fcntl(pipe.as_raw_fd(), F_SETPIPE_SZ, LARGEST_PIPE) };
}

/// What is waited for at one descriptor: a `pollfd`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Interest {
    fd: c_int,
    events: c_short,
    found: c_short,
}

impl Interest {
    fn new(fd: RawFd, events: c_short) -> Self {
        Self {
            fd,
            events,
            found: 0,
        }
    }

    /// In nothing: the kernel skips it.
    pub(crate) fn none() -> Self {
        Self::new(-1, 0)
    }

    /// In something to read, or its end.
    pub(crate) fn readable(fd: RawFd) -> Self {
        Self::new(fd, POLLIN)
    }

    /// In room to write.
    pub(crate) fn writable(fd: RawFd) -> Self {
        Self::new(fd, POLLOUT)
    }

    /// Only in the other end's being closed.
    pub(crate) fn broken(fd: RawFd) -> Self {
        Self::new(fd, 0)
    }

    pub(crate) fn is_ready(self) -> bool {
        self.found != 0
    }

    pub(crate) fn is_broken(self) -> bool {
        self.found & POLLERR != 0
    }
}

/// Returns when one of them is ready.
pub(crate) fn wait(interests: &mut [Interest]) -> io::Result<()> {
    let count = c_ulong::try_from(interests.len()).unwrap_or(0);
    loop {
        // SAFETY: a pointer to so many `pollfd`, for the time of the call.
        if unsafe { poll(interests.as_mut_ptr(), count, -1) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Ends this process with an exit code, or, for a negative number, by that signal.
pub(crate) fn end(ended: i32) -> ! {
    if ended < 0 {
        let number = ended.saturating_neg();
        let me = i32::try_from(process::id()).unwrap_or(0);
        // SAFETY: numbers, and a pointer to a whole `rlimit`. The program has dumped its core already.
        unsafe {
            setrlimit(RLIMIT_CORE, ptr::from_ref(&[0, 0]));
            signal(number, SIG_DFL);
            kill(me, number);
        }
    }
    #[expect(clippy::exit, reason = "the end of the program")]
    process::exit(if ended < 0 { 128 - ended } else { ended })
}
