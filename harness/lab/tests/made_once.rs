//! What is made from Debian's packages is made once, and counts as made only when it is whole. The
//! scripts' common part is run as it is, by a script that makes little, with a folder for a mirror.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

#[path = "support/waits.rs"]
mod waits;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

use waits::{fifo, within};

const COMMON: &str = include_str!("../../../clusters/lab/real/debian.sh");
/// `printf 'a package' | sha256sum`
const SUM: &str = "c0cd5ccfdb563a59366e33e73001b78fdb8cca5a6c48e2f90fffcde44b81f1f6";

/// A folder with the script, its mirror and its cache.
struct Maker {
    folder: TempDir,
}

impl Maker {
    /// The last steps are a shell's; `$part/a.deb` is there before them.
    fn new(steps: &str) -> Self {
        let maker = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(maker.path("mirror")).unwrap();
        fs::write(maker.path("mirror/a.deb"), "a package").unwrap();
        fs::write(maker.path("debian.sh"), COMMON).unwrap();
        maker.steps(steps);
        maker
    }

    fn steps(&self, steps: &str) {
        let script = format!(
            "#!/bin/sh\nset -eu\nhere=$(dirname \"$0\")\n. \"$here/debian.sh\"\n\
             begin thing \"$0\"\nroom 1\necho made >>\"$here/times\"\n\
             echo {SUM} a.deb | download\n{steps}\nfinish \"$part/a.deb\"\n"
        );
        fs::write(self.path("make-thing"), script).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mirror = format!("copy:{}", self.path("mirror").display());
        // Not run itself: another test's child may hold what was just written open for writing (ETXTBSY).
        let mut command = Command::new("sh");
        command
            .arg(self.path("make-thing"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("CHAINBREAK_DEBIAN_MIRROR", mirror)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The path that a run answers with.
    #[track_caller]
    fn makes(&self) -> PathBuf {
        made(&self.command().output().unwrap())
    }

    /// How often it was begun to be made.
    fn times(&self) -> usize {
        let times = fs::read_to_string(self.path("times"));
        times.map_or(0, |lines| lines.lines().count())
    }

    /// What is in the cache but locks.
    fn cached(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache/chainbreak")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| Path::new(name).extension().is_none_or(|end| end != "lock"))
            .collect()
    }
}

#[track_caller]
fn made(output: &Output) -> PathBuf {
    assert!(output.status.success(), "{output:?}");
    let path = String::from_utf8(output.stdout.clone()).unwrap();
    let path = path.strip_suffix('\n').unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "a package");
    path.into()
}

/// What a run that has to fail says.
#[track_caller]
fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// What a run did that has to end by itself.
fn ended(child: Child) -> Output {
    let pid = Pid::from_raw(child.id().cast_signed());
    within(|| child.wait_with_output().unwrap()).unwrap_or_else(|| {
        kill(pid, Signal::SIGKILL).unwrap();
        panic!("it does not end")
    })
}

/// A run that has its package and waits for somebody to write to `gate`.
fn held(maker: &Maker) -> Child {
    let begun = maker.path("begun");
    fifo(&begun);
    fifo(&maker.path("gate"));
    maker.steps("echo begun >\"$here/begun\"\nread -r _ <\"$here/gate\"");
    let child = maker.command().spawn().unwrap();
    within(|| fs::read(begun).unwrap()).expect("it begins");
    child
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "the scripts make things for amd64 only"
)]
fn what_was_made_is_answered_without_making_it_again() {
    let maker = Maker::new("");
    let path = maker.makes();
    assert_eq!(maker.makes(), path);
    assert_eq!(maker.times(), 1);
    assert_eq!(maker.cached().len(), 1, "{:?}", maker.cached());
    maker.steps(": another way");
    assert_ne!(maker.makes(), path, "another script makes another thing");
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "the scripts make things for amd64 only"
)]
fn a_killed_maker_leaves_nothing_that_counts_as_made() {
    let maker = Maker::new("");
    let mut child = held(&maker);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(maker.cached(), ["thing.part"]);
    maker.steps("");
    maker.makes();
    assert_eq!(maker.times(), 2);
    assert_eq!(maker.cached().len(), 1, "{:?}", maker.cached());
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "the scripts make things for amd64 only"
)]
fn two_at_once_make_it_once() {
    let maker = Maker::new("");
    let first = held(&maker);
    let mut second = maker.command().spawn().unwrap();
    let mut says = BufReader::new(second.stderr.take().unwrap()).lines();
    // Its pipe stays open: it may say more.
    let says = within(move || {
        let waits = says.any(|line| line.unwrap().contains("waiting for it"));
        waits.then_some(says)
    });
    let _says = says.flatten().expect("the second waits");
    let gate = maker.path("gate");
    within(|| fs::write(gate, "go\n").unwrap()).expect("the first waits");
    let first = made(&ended(first));
    assert_eq!(made(&ended(second)), first);
    assert_eq!(maker.times(), 1);
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "the scripts make things for amd64 only"
)]
fn a_file_other_than_the_named_one_is_refused() {
    let maker = Maker::new("");
    fs::write(maker.path("mirror/a.deb"), "another package").unwrap();
    let said = refused(&mut maker.command());
    assert!(said.contains("Hash Sum mismatch"), "{said}");
    assert!(
        said.contains("could not download a.deb from copy:"),
        "{said}"
    );
    assert_eq!(maker.cached(), [""; 0]);
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "the scripts make things for amd64 only"
)]
fn the_next_mirror_has_what_the_first_one_lacks() {
    let maker = Maker::new("");
    let mirror = maker.path("mirror");
    let mirrors = format!("copy:{0}/absent copy:{0}", mirror.display());
    let output = maker
        .command()
        .env("CHAINBREAK_DEBIAN_MIRROR", mirrors)
        .output();
    made(&output.unwrap());
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "the scripts make things for amd64 only"
)]
fn a_cache_that_cannot_be_is_named() {
    let maker = Maker::new("");
    let said = refused(maker.command().env("XDG_CACHE_HOME", "/proc/nowhere"));
    assert!(said.contains("could not write to /proc/nowhere"), "{said}");
    let homeless = refused(maker.command().env_remove("XDG_CACHE_HOME").env("HOME", ""));
    assert!(
        homeless.contains("set HOME or XDG_CACHE_HOME"),
        "{homeless}"
    );
    maker.steps("room 1000000000");
    let full = refused(&mut maker.command());
    assert!(full.contains("needs 1000000000 MB"), "{full}");
}
