//! System calls that nothing in a world has a use for, and by which it would reach what the kernel does not divide among
//! namespaces: keys, of which a user has one ring in all worlds, the kernel's log, cgroups, and words put into a terminal's
//! input. They end with EPERM. What the kernel refuses to those who have no rights in its first user namespace is refused already.
//! Where a world may load eBPF programs, the calls that do so wait for the worker.

#![expect(unsafe_code, reason = "seccomp(2) has no safe form")]

use std::{
    io,
    mem::offset_of,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, SECCOMP_RET_USER_NOTIF, c_int, c_long, c_ulong, seccomp_data, sock_filter,
    sock_fprog,
};
use nix::errno::Errno;

use crate::error::LabError;

/// Refused whatever is asked of them; bpf(2), too, where the world may load no programs.
const REFUSED: [c_long; 8] = [
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_syslog,
    libc::SYS_perf_event_open,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
];
/// Requests to a terminal that put words into its input.
const REFUSED_REQUESTS: [u32; 2] = [
    0x5412, // TIOCSTI
    0x541c, // TIOCLINUX
];
/// Of which kernel's calls the numbers are (linux/audit.h).
#[cfg(target_arch = "x86_64")]
const KIND: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const KIND: u32 = 0xc000_00b7;
/// Who has a cgroup namespace may mount the cgroups from its own on, and where no world has a cgroup that is the machine's.
const CLONE_NEWCGROUP: u32 = 0x0200_0000;
/// Calls of x32 have this bit; no kernel of a distribution has them.
const X32: u32 = 0x4000_0000;

/// From now on they are refused to this process and all that it starts.
pub(super) fn install(ebpf: bool) -> Result<(), LabError> {
    let installed = attach(program(ebpf), 0).map(drop);
    installed.map_err(LabError::isolate("refuse system calls"))
}

/// From now on bpf(2) is refused to the calling thread, and what it starts.
pub(super) fn refuse_programs() -> io::Result<()> {
    let program = behind(&only_for(libc::SYS_bpf, &[refuse()]));
    attach(program, 0).map(drop)
}

/// From now on one of these commands of bpf(2) is refused, and the others wait, when the calling thread gives them, or what it starts, for whoever has the descriptor;
/// nobody interrupts one that was heard (Linux 5.19), as Go's runtime would a long one.
pub(super) fn listen(refused: u32, waiting: &[u32]) -> io::Result<OwnedFd> {
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let wait = of(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF, 0, 0);
    let mut check = vec![argument(0), skip_unless(refused), refuse()];
    for command in waiting {
        check.extend([skip_unless(*command), wait]);
    }
    let listener = attach(behind(&only_for(libc::SYS_bpf, &check)), flags)?;
    let listener = RawFd::try_from(listener).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

fn attach(mut program: Vec<sock_filter>, flags: c_ulong) -> io::Result<c_long> {
    let filter = sock_fprog {
        len: u16::try_from(program.len()).expect("it is short"),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the filter points to a program that lives until the call returns, of the length that it says.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const filter,
        )
    };
    Ok(Errno::result(done)?)
}

/// Checks by the call's number, behind [`program`], which has refused the calls of other kinds of kernels.
fn behind(checks: &[sock_filter]) -> Vec<sock_filter> {
    let number_of_call = load(offset_of!(seccomp_data, nr));
    let allow = of(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    [&[number_of_call], checks, &[allow]].concat()
}

/// Each test skips what follows it when it does not hold.
fn program(ebpf: bool) -> Vec<sock_filter> {
    let number_of_call = || load(offset_of!(seccomp_data, nr));
    let mut program = vec![
        load(offset_of!(seccomp_data, arch)),
        skip_if(KIND),
        refuse(),
    ];
    program.push(number_of_call());
    let of_programs = (!ebpf).then_some(libc::SYS_bpf);
    for call in REFUSED.into_iter().chain(of_programs) {
        program.extend([skip_unless(number(call)), refuse()]);
    }
    // Programs do without it, and use clone(2), whose flags can be seen.
    program.extend([skip_unless(number(libc::SYS_clone3)), answer(libc::ENOSYS)]);
    for call in [libc::SYS_unshare, libc::SYS_clone] {
        let check = [argument(0), and(CLONE_NEWCGROUP), skip_if(0), refuse()];
        program.extend(only_for(call, &check));
        program.push(number_of_call());
    }
    let requests = REFUSED_REQUESTS.map(|request| [skip_unless(request), refuse()]);
    let check = [&[argument(1)], requests.as_flattened()].concat();
    program.extend(only_for(libc::SYS_ioctl, &check));
    program.extend([number_of_call(), and(X32), skip_if(0), refuse()]);
    program.push(of(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0));
    program
}

/// A check that other calls pass by.
fn only_for(call: c_long, check: &[sock_filter]) -> Vec<sock_filter> {
    let length = u8::try_from(check.len()).expect("checks are short");
    let test = of(BPF_JMP | BPF_JEQ | BPF_K, number(call), 0, length);
    [&[test], check].concat()
}

/// The lower half of an argument, which both architectures have first; the kernel looks at no more of these.
fn argument(index: usize) -> sock_filter {
    load(offset_of!(seccomp_data, args) + index * size_of::<u64>())
}

fn and(mask: u32) -> sock_filter {
    of(BPF_ALU | BPF_AND | BPF_K, mask, 0, 0)
}

fn load(offset: usize) -> sock_filter {
    let offset = u32::try_from(offset).expect("the data is short");
    of(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

/// The next instruction is for other values.
fn skip_if(value: u32) -> sock_filter {
    of(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0)
}

/// The next instruction is for this value.
fn skip_unless(value: u32) -> sock_filter {
    of(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1)
}

fn refuse() -> sock_filter {
    answer(libc::EPERM)
}

fn answer(error: c_int) -> sock_filter {
    let error = u32::try_from(error).expect("errors are positive");
    of(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0)
}

fn of(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = u16::try_from(code).expect("codes are short");
    sock_filter { code, jt, jf, k }
}

fn number(call: c_long) -> u32 {
    u32::try_from(call).expect("numbers of calls are small")
}
