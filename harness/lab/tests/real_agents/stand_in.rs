//! Little programs that stand in for real agents, and roots for them.

use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::support::open;

/// Who runs a world for [`crate::support::User::Ordinary`].
const NOBODY: u32 = 65534;
/// What every stand-in for kube-proxy begins with. What it says with `say` is an entry each.
pub(crate) const KUBE_PROXY: &str = "#!/bin/sh\n[ \"$1\" = --version ] && { echo Kubernetes v1.99.1; exit; }\n\
     say() { echo \"I0610 07:32:16.910840       1 stand-in] $*\"; }\n";
/// And for calico-node.
pub(crate) const CALICO_NODE: &str = "#!/bin/sh\n[ \"$1\" = -v ] && { echo v3.99.1; exit; }\n";

/// A script as a program that everybody may run, in a folder that everybody may see.
pub(crate) fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    open(folder);
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("it has a folder")).expect("it can be made");
    fs::write(&path, text).expect("it can be written");
    open(&path);
    path
}

/// A case of one node whose kube-proxy is that program, and without Felix.
pub(crate) fn kube_proxy(case: Value, source: &Path) -> Value {
    let mut case = case;
    case["cluster"]["kube-proxy"]["source"] = json!({ "path": source });
    case["cluster"]["calico"] = Value::Null;
    case
}

/// A root file system with a shell, some programs and the machine's iptables, as `ldd` tells what they
/// need, each file at its place.
pub(crate) fn root(folder: &Path, programs: &[&str]) -> PathBuf {
    let root = folder.join("root");
    for program in ["sh", "cat", "sleep"].iter().chain(programs) {
        let found = find(program);
        copy(&found, &root.join("usr/bin").join(program));
        for library in libraries(&found) {
            copy(
                &library,
                &root.join(library.strip_prefix("/").expect("it is absolute")),
            );
        }
    }
    // Where scripts have their interpreter.
    copy(&find("sh"), &root.join("bin/sh"));
    root
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("it has a folder")).expect("it can be made");
    // By a child, for what this process writes to cannot be run (`support/user.rs`).
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.expect("cp runs").success(), "{}", from.display());
}

/// Gives a folder with all in it to the ordinary user of these tests, as if that one had unpacked it:
/// nobody else's files can be written in a world, though all can be read.
pub(crate) fn give_away(path: &Path) {
    if nix::unistd::geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    if path.is_dir() {
        open(path);
        let entries = fs::read_dir(path).expect("it is a folder").flatten();
        entries.for_each(|entry| give_away(&entry.path()));
    }
}

fn find(program: &str) -> PathBuf {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let mut found = places.iter().map(|place| Path::new(place).join(program));
    let found = found.find(|path| path.exists());
    let found = found.unwrap_or_else(|| panic!("this machine has no {program}"));
    fs::canonicalize(found).expect("it leads somewhere")
}

/// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)` or `/lib64/ld-linux-x86-64.so.2 (0x…)`.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .expect("there is an ldd");
    let text = String::from_utf8(output.stdout).expect("it writes text");
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(PathBuf::from).collect()
}
