use std::{
    os::unix::fs::symlink,
    process::{Child, Command},
};

use nix::libc;

use super::{
    executed::{LOOK, path_of},
    *,
};

const BY: Duration = Duration::from_millis(700);
const NAMES: [&str; 4] = [
    "iptables",
    "iptables-restore",
    "iptables-save",
    "iptables-nft-restore",
];

/// A root with a program of many names, as iptables is one.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("usr/sbin");
    fs::create_dir_all(&folder).unwrap();
    let multi = folder.join("xtables-nft-multi");
    fs::copy("/bin/true", &multi).unwrap();
    for name in NAMES {
        symlink("/usr/sbin/xtables-nft-multi", folder.join(name)).unwrap();
        // The other one leads nowhere outside of the root.
        symlink(&multi, root.path().join(name)).unwrap();
    }
    root
}

fn begin(root: &tempfile::TempDir, program: &str, by: Duration) -> io::Result<Holding> {
    let root = File::open(root.path()).unwrap();
    Holding::begin(root.as_fd(), program.to_owned(), by)
}

/// Holds `iptables-restore` there so long. To nobody but root permissions to execute are given to decide.
fn hold(root: &tempfile::TempDir, by: Duration) -> Option<Arc<Held>> {
    let holding = begin(root, "iptables-restore", by);
    if !nix::unistd::geteuid().is_root() {
        let why = holding.err().unwrap().to_string();
        assert!(why.contains("it takes root"), "{why}");
        return None;
    }
    let holding = holding.unwrap();
    let held = Arc::clone(&holding.held);
    thread::spawn(move || holding.answer());
    Some(held)
}

fn start(root: &tempfile::TempDir, name: &str) -> Child {
    Command::new(root.path().join(name)).spawn().unwrap()
}

/// How long a program takes, of that name.
fn took(root: &tempfile::TempDir, name: &str) -> Duration {
    let began = Instant::now();
    assert!(start(root, name).wait().unwrap().success());
    began.elapsed()
}

#[test]
fn a_program_begins_late_by_the_name_that_is_held_and_in_time_by_its_others() {
    let root = root();
    if hold(&root, BY).is_some() {
        assert!(took(&root, "iptables-restore") >= BY);
        assert!(took(&root, "iptables-nft-restore") >= BY);
        assert!(took(&root, "iptables-save") < BY);
        assert!(took(&root, "iptables") < BY);
    }
}

/// As Go's do, this process waits for whom it starts until that executes something (`vfork`).
#[test]
fn who_starts_a_command_that_is_held_goes_on_and_the_command_when_it_is_let_go() {
    let root = root();
    let Some(held) = hold(&root, Duration::MAX) else {
        return;
    };
    let mut child = start(&root, "iptables-restore");
    let began = Instant::now();
    while began.elapsed() < BY {
        assert!(child.try_wait().unwrap().is_none(), "it has begun");
        thread::park_timeout(LOOK);
    }
    assert_eq!(held.threads().len(), 1);
    drop(held.let_all_go());
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_executed_is_read_from_the_call_that_waits() {
    let execve = libc::SYS_execve;
    let execveat = libc::SYS_execveat;
    for (call, path) in [
        (
            format!("{execve} 0xc00012 0xc00034 0x0 0x0 0x0 0x0 0x7ffd 0x40"),
            Some(0x00c0_0012),
        ),
        (
            format!("{execveat} 0xffffff9c 0x10 0x0 0x0 0x0 0x0 0x7ffd 0x40"),
            Some(0x10),
        ),
        ("-1 0x7ffd 0x40".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(path_of(&call), path, "{call}");
    }
}

#[test]
fn a_program_has_the_names_of_either_front_end() {
    let of = |program| names(program).join(" ");
    let restore = "ip6tables-restore ip6tables-legacy-restore ip6tables-nft-restore";
    assert_eq!(of("ip6tables-restore"), restore);
    assert_eq!(of("iptables"), "iptables iptables-legacy iptables-nft");
}

#[test]
fn a_container_without_the_program_is_told_and_one_that_is_gone() {
    if nix::unistd::geteuid().is_root() {
        let missing = begin(&root(), "nft", BY).err().unwrap();
        assert_eq!(missing.to_string(), "its container has no nft");
    }
    let gone = root_of("no-such-container").unwrap_err();
    assert_eq!(gone.to_string(), "no process is in no-such-container");
}
