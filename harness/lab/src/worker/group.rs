//! A cgroup for each world, below that of whoever runs it, which is gone with the world. It takes the right to make one: root
//! has it, an ordinary user where a part of the tree was delegated. Only cgroups of version 2 are made.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nix::{
    poll::{PollTimeout, poll},
    unistd::{Pid, getpid},
};

use crate::error::tolerate;

/// Before the id of the world's first process outside.
const PREFIX: &str = "chainbreak-";
/// So many tasks has no world: nodes and pods are a thread each, and what they run comes to it.
const TASKS: &str = "32768";
/// Distance of two looks at a cgroup whose last process is on its way out, in milliseconds, and how many there are.
const LOOKS: (u16, usize) = (10, 100);

/// The cgroup of a world.
#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    /// `None` where none may be made.
    pub(super) fn make() -> Option<Self> {
        drop(remove_left());
        let folder = own()?.join(format!("{PREFIX}{}", getpid()));
        fs::create_dir(&folder).ok()?;
        // Where nobody handed that controller down, there is no such file.
        tolerate("bound a world", fs::write(folder.join("pids.max"), TASKS));
        Some(Self(folder))
    }

    /// Moves a process into it, with all that it will start.
    pub(super) fn take(&self, process: Pid) {
        let procs = self.0.join("cgroup.procs");
        tolerate("move a world", fs::write(procs, process.to_string()));
    }

    /// Removes it. To be called when the world has ended.
    pub(super) fn end(self) {
        tolerate("end a world's cgroup", remove(&self.0));
    }
}

/// Why worlds of this user have no cgroup of their own, where they have none.
pub(crate) fn missing() -> Result<(), String> {
    let own = own().ok_or_else(|| {
        "no cgroups of version 2 are mounted: nothing bounds how many processes a world starts"
            .to_owned()
    })?;
    let may = |name: &str| {
        nix::unistd::access(&own.join(name), nix::unistd::AccessFlags::W_OK).map_err(|why| {
            format!(
                "{} cannot be written ({why}): nothing bounds how many processes a world starts\n\
                 systemd-run --user --scope --property=Delegate=yes chainbreak …",
                own.join(name).display()
            )
        })
    };
    may("")?;
    may("cgroup.procs")?;
    if fs::read_to_string(own.join("cgroup.subtree_control")).is_ok_and(|it| it.contains("pids")) {
        return Ok(());
    }
    Err(format!(
        "worlds have cgroups of their own, but {} hands no pids controller down: nothing bounds how many processes a world starts",
        own.display()
    ))
}

/// Removes the cgroups of worlds whose first process was killed, and says each.
pub fn remove_left() -> Vec<PathBuf> {
    let groups = own().and_then(|own| fs::read_dir(own).ok());
    let left = groups.into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name();
        let pid = name.to_str()?.strip_prefix(PREFIX)?;
        let gone = pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists();
        // Whose processes are counted elsewhere may live for all that: what has some is not removed.
        (gone && remove_tree(&entry.path()).is_ok()).then(|| entry.path())
    });
    left.collect()
}

/// Ends what is in a cgroup, and the cgroup, with all below it.
fn remove(group: &Path) -> io::Result<()> {
    // Its namespace is gone, so nothing should be there.
    tolerate(
        "end what is in a cgroup",
        fs::write(group.join("cgroup.kill"), "1"),
    );
    let (distance, looks) = LOOKS;
    let mut removed = remove_tree(group);
    for _ in 1..looks {
        if removed.is_ok() {
            break;
        }
        poll(&mut [], PollTimeout::from(distance))?;
        removed = remove_tree(group);
    }
    removed
}

fn remove_tree(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

/// The folder of this process's cgroup.
fn own() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    folder(&mounts, &groups)
}

fn folder(mounts: &str, groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then_some(())?;
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        let below = Path::new(group).strip_prefix(root).ok()?;
        Some(Path::new(at).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_a_process_is_found_where_it_is_mounted() {
        let mounts = "28 24 0:25 / /sys/fs/cgroup rw shared:4 - tmpfs tmpfs rw\n\
                      38 28 0:26 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        let found = folder(mounts, "4:memory:/x\n0::/user.slice/a\n");
        let path = Path::new("/sys/fs/cgroup/unified/user.slice/a");
        assert_eq!(found.as_deref(), Some(path));
        let in_a_container = "38 28 0:26 /job /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        let found = folder(in_a_container, "0::/job\n");
        assert_eq!(found.as_deref(), Some(Path::new("/sys/fs/cgroup/")));
        assert_eq!(
            folder(in_a_container, "0::/other\n"),
            None,
            "it is not shown there"
        );
        assert_eq!(folder("", "0::/\n"), None);
    }
}
