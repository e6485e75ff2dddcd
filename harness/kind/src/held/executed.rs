//! What a thread is about to execute that waits for the kernel's permission.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    thread,
    time::{Duration, Instant},
};

use nix::libc::{self, c_long};

use super::left;

/// What a path may be long.
const PATH_MAX: usize = 4096;
/// How often it is looked whether a thread waits for the answer.
pub(super) const LOOK: Duration = Duration::from_millis(1);
/// It cannot be known what a thread is about to execute.
#[derive(Debug)]
pub(super) struct Unknown;

/// What a thread is about to execute, as it named it; nothing where it is gone.
pub(super) fn executed(thread: i32, until: Option<Instant>) -> Result<String, Unknown> {
    // The kernel asks a moment before the thread waits.
    loop {
        let call = match fs::read_to_string(format!("/proc/{thread}/syscall")) {
            Ok(call) => call,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Err(_) => return Err(Unknown),
        };
        if !call.starts_with("running") {
            let path = path_of(&call).ok_or(Unknown)?;
            return memory(thread, path).map_err(|_error| Unknown);
        }
        left(until).ok_or(Unknown)?;
        thread::park_timeout(LOOK);
    }
}

/// The process of a thread, whose number it has after it has executed something.
pub(super) fn process_of(thread: i32) -> io::Result<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let number = line.and_then(|it| it.trim().parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Where the path is that a system call executes: a line of `/proc/PID/syscall`, the call's number and its arguments.
pub(super) fn path_of(call: &str) -> Option<u64> {
    let mut words = call.split_whitespace();
    let number: c_long = words.next()?.parse().ok()?;
    let argument = match number {
        libc::SYS_execve => 0,
        libc::SYS_execveat => 1,
        _ => return None,
    };
    let address = words.nth(argument)?.strip_prefix("0x")?;
    u64::from_str_radix(address, 16).ok()
}

/// Text in a process's memory, up to its end.
fn memory(thread: i32, at: u64) -> io::Result<String> {
    let memory = File::open(format!("/proc/{thread}/mem"))?;
    let mut text = Vec::new();
    let mut piece = [0; 64];
    while text.len() < PATH_MAX {
        let read = memory.read_at(&mut piece, at + text.len() as u64)?;
        let piece = piece.get(..read).unwrap_or_default();
        let end = piece.iter().position(|byte| *byte == 0);
        text.extend_from_slice(piece.get(..end.unwrap_or(read)).unwrap_or_default());
        if end.is_some() || read == 0 {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
