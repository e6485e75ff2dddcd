//! The calls by which file systems are opened, made and mounted in steps, and those of eBPF.

#![expect(unsafe_code, reason = "none of them has a safe form")]

use std::{
    ffi::CStr,
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr::null,
};

use libc::{c_int, c_long, c_void};

/// Of linux/mount.h.
const CLOSE_ON_EXEC: c_int = 1;
const SET_STRING: c_int = 1;
const CREATE: c_int = 6;
const NOSUID_NODEV_NOEXEC: c_int = 2 | 4 | 8;
const FROM_DESCRIPTOR: c_int = 4;
/// Of linux/bpf.h.
const PROG_LOAD: c_int = 5;
const OBJ_GET_INFO_BY_FD: c_int = 15;
/// As the command of bpf(2).
pub(super) const TOKEN_CREATE: u32 = 36;
const SCHED_CLS: u32 = 3;

/// What is given to bpf(2): longer than any of its structures that is used here, and null where nothing is said.
const ATTRIBUTES: usize = 160;
/// So much is read of what the kernel says of an object: its name is before that.
const INFO: u32 = 128;

/// A file system that is being opened, in the user namespace of the calling thread.
pub(super) fn open(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name lives longer than the call.
    owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), CLOSE_ON_EXEC) })
}

/// Sets an option of it.
pub(super) fn set(opened: &OwnedFd, option: &CStr, value: &CStr) -> io::Result<()> {
    let (key, value) = (option.as_ptr(), value.as_ptr());
    // SAFETY: both live longer than the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            opened.as_raw_fd(),
            SET_STRING,
            key,
            value,
            0,
        )
    })
}

/// Makes it.
pub(super) fn create(opened: &OwnedFd) -> io::Result<()> {
    let none = null::<c_void>();
    // SAFETY: nothing is passed.
    done(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            opened.as_raw_fd(),
            CREATE,
            none,
            none,
            0,
        )
    })
}

/// Mounts it, when it is made.
pub(super) fn mount(made: &OwnedFd, at: &CStr) -> io::Result<()> {
    let (made, flags) = (made.as_raw_fd(), NOSUID_NODEV_NOEXEC);
    // SAFETY: no pointer is passed.
    let mounted = unsafe { libc::syscall(libc::SYS_fsmount, made, CLOSE_ON_EXEC, flags) };
    let mounted = owned(mounted)?;
    let (from, here) = (mounted.as_raw_fd(), libc::AT_FDCWD);
    let (empty, at, flags) = (c"".as_ptr(), at.as_ptr(), FROM_DESCRIPTOR);
    // SAFETY: both paths live longer than the call.
    done(unsafe { libc::syscall(libc::SYS_move_mount, from, empty, here, at, flags) })
}

/// A token of an eBPF file system, by its root.
pub(super) fn token(root: &File) -> io::Result<OwnedFd> {
    let mut attributes = [0_u8; ATTRIBUTES];
    put(&mut attributes, 4, &root.as_raw_fd().to_ne_bytes());
    make(TOKEN_CREATE, &mut attributes)
}

/// Loads a program of tc that lets packets pass, and lets go of it.
pub(super) fn load() -> io::Result<()> {
    // r0 = 0; exit
    let program: [u64; 2] = [0xb7, 0x95];
    let mut attributes = [0_u8; ATTRIBUTES];
    put(&mut attributes, 0, &SCHED_CLS.to_ne_bytes());
    put(&mut attributes, 4, &2_u32.to_ne_bytes());
    put(&mut attributes, 8, &program.as_ptr().addr().to_ne_bytes());
    put(&mut attributes, 16, &c"GPL".as_ptr().addr().to_ne_bytes());
    owned(bpf(PROG_LOAD, &mut attributes)).map(drop)
}

/// The first number after this one, by one of the commands `BPF_*_GET_NEXT_ID`.
pub(crate) fn next_id(command: c_int, after: u32) -> io::Result<Option<u32>> {
    let mut attributes = [0_u8; ATTRIBUTES];
    put(&mut attributes, 0, &after.to_ne_bytes());
    match done(bpf(command, &mut attributes)) {
        Ok(()) => {
            let mut next = [0; 4];
            next.copy_from_slice(&attributes[4..8]);
            Ok(Some(u32::from_ne_bytes(next)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the kernel says of the object with that number, by one of the commands `BPF_*_GET_FD_BY_ID`.
pub(crate) fn info(command: c_int, id: u32) -> io::Result<[u8; INFO as usize]> {
    let mut attributes = [0_u8; ATTRIBUTES];
    put(&mut attributes, 0, &id.to_ne_bytes());
    let object = owned(bpf(command, &mut attributes))?;
    let mut info = [0_u8; INFO as usize];
    let mut attributes = [0_u8; ATTRIBUTES];
    put(&mut attributes, 0, &object.as_raw_fd().to_ne_bytes());
    put(&mut attributes, 4, &INFO.to_ne_bytes());
    put(
        &mut attributes,
        8,
        &info.as_mut_ptr().expose_provenance().to_ne_bytes(),
    );
    done(bpf(OBJ_GET_INFO_BY_FD, &mut attributes))?;
    Ok(info)
}

fn put(attributes: &mut [u8], at: usize, value: &[u8]) {
    attributes[at..at + value.len()].copy_from_slice(value);
}

/// What a command makes, of attributes whose addresses lead to what is ours and lives longer than the call.
pub(super) fn make(command: u32, attributes: &mut [u8]) -> io::Result<OwnedFd> {
    owned(bpf(command.cast_signed(), attributes))
}

fn bpf(command: c_int, attributes: &mut [u8]) -> c_long {
    // SAFETY: the attributes, and what they point to, live longer than the call, and are ours to write.
    unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            attributes.len(),
        )
    }
}

/// A descriptor that came with a message.
pub(super) fn received(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made it for whoever received the message.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn owned(result: c_long) -> io::Result<OwnedFd> {
    done(result)?;
    let descriptor = RawFd::try_from(result).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn done(result: c_long) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
