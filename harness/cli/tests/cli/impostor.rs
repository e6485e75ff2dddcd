//! `clean` ends what is a world's and nothing that only looks like it.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use nix::unistd::geteuid;

use crate::ground::{Ground, exits, text};

/// A process that takes up orphans, as an init or a container's shim does. Somebody else makes a namespace with a world's files, and
/// leaves it to that process: it stands where the first process of a world would.
const VICTIM: &str = r#"
    $| = 1;
    syscall($ENV{PRCTL}, 36, 1, 0, 0, 0) == 0 or die "PR_SET_CHILD_SUBREAPER: $!";
    my $makes = 'unshare -Urmpf sh -c "sleep 1000 & mount -t tmpfs none /run; mkdir -p /run/chainbreak/places/node/n1
        echo 3 > /run/chainbreak/places/node/n1/tid; touch /run/chainbreak/kept; echo made; wait" & made=$!
        sleep 0.5; kill -9 $made';
    if (fork == 0) { exec 'setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', 'sh', '-c', $makes }
    $SIG{TERM} = sub { kill 'KILL', glob_children(); exit };
    sub glob_children { open my $c, '<', "/proc/$$/task/$$/children"; split ' ', <$c> // '' }
    sleep 1 while 1;
"#;

#[test]
fn clean_lets_a_process_alone_that_only_stands_where_a_worlds_would() {
    // Nobody else's processes can be hit by an ordinary user.
    if !geteuid().is_root() {
        return;
    }
    let prctl = if cfg!(target_arch = "aarch64") {
        "167"
    } else {
        "157"
    };
    let mut victim = Command::new("perl");
    victim
        .args(["-e", VICTIM])
        .env("PRCTL", prctl)
        .stdout(Stdio::piped());
    let mut victim = victim.spawn().unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(victim.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "made\n");
    let adopts = || {
        let id = victim.id();
        let path = format!("/proc/{id}/task/{id}/children");
        std::fs::read_to_string(path)
            .unwrap()
            .split_whitespace()
            .any(|child| {
                let status = std::fs::read_to_string(format!("/proc/{child}/status"));
                status.is_ok_and(|it| {
                    it.lines()
                        .any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"))
                })
            })
    };
    crate::ground::until("the namespace is an orphan", adopts);
    let cleaned = Ground::new().chainbreak(&["clean"]);
    let lives = victim.try_wait().unwrap().is_none();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(victim.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    victim.wait().unwrap();
    assert!(lives, "{}", text(&cleaned.stdout));
    exits(&cleaned, 0);
}
