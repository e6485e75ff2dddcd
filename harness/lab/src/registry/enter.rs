//! The way into a place from outside.

use std::{
    fs,
    os::unix::{fs::MetadataExt, process::CommandExt},
    process::Command,
};

/// `nsenter` into all namespaces of a thread: its own process starts with one thread, as entering a
/// user namespace requires.
pub(super) fn enter(maker: Option<i32>, tid: i32, place: &str, command: &[String]) -> Command {
    let mut nsenter = Command::new("nsenter");
    // The world's root is the user who made it; root outside would be nobody inside.
    if let Ok(owner) = fs::metadata(format!("/proc/{tid}")) {
        nsenter.uid(owner.uid()).gid(owner.gid());
    }
    // An ordinary user's processes are counted in the namespace in which the world was made, and the rights there end with the
    // step into the world's own.
    let other = |id: &i32| inode("/proc/self/ns/user") != inode(&format!("/proc/{id}/ns/user"));
    if let Some(maker) = maker.filter(other) {
        nsenter.args([
            &format!("--target={maker}"),
            "--user",
            "--preserve-credentials",
        ]);
        nsenter.args([&format!("--pid=/proc/{tid}/ns/pid"), "--", "nsenter"]);
        nsenter.arg(format!("--target={tid}"));
    } else {
        nsenter.args([&format!("--target={tid}"), "--pid"]);
    }
    nsenter.args(["--user", "--preserve-credentials"]);
    nsenter.args(["--mount", "--net", "--uts", "--ipc", "--"]);
    if command.is_empty() {
        nsenter.arg("sh");
    }
    nsenter.args(command).env("PS1", format!("[{place}] # "));
    nsenter
}

fn inode(path: &str) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.ino())
}
