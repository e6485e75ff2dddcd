//! What a world sees as its file system: the machine's, through overlays whose writes vanish with the
//! world, with /proc, /sys, /dev, /run and /tmp of its own.
//!
//! A directory is overlaid as a whole where the kernel allows it. It refuses below a mount point that
//! an ordinary user inherited (such mounts are locked together), and on some file systems; then the
//! directory is made from scratch and its entries are mirrored one by one. What cannot be overlaid at all is
//! shown read-only, and what the user may not read is left out, as it could not be used anyway. Paths
//! that a case names (a real agent's) are shown wherever they lie, also below the world's own parts.

mod devices;
pub(crate) mod image;
mod mounts;
mod shown;

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::statvfs::{FsFlags, statvfs},
    unistd::pivot_root,
};

use self::{mounts::MountPoints, shown::Held};
use crate::error::{LabError, tolerate};

/// Made from scratch for each world, never mirrored.
const OWN: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];
/// Where the world is put together: `/tmp`, which the world gets afresh anyway, so that nothing is
/// hidden that must be mirrored.
const BASE: &str = "/tmp";

/// Swaps the file system of this process, and of all that it will start, for the world's, in which
/// the paths of `show` are read-only at their places, each file or directory as the machine has it.
pub(super) fn enter(show: &[PathBuf]) -> Result<(), LabError> {
    attach(
        None,
        Path::new("/"),
        None,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None,
    )?;
    let points = mount_points()?;
    let shown: Vec<Held> = show.iter().filter_map(|path| Held::hold(path)).collect();
    let base = Path::new(BASE);
    tmpfs(base, "mode=755")?;
    let root = base.join("root");
    make_dir(&root)?;
    attach(
        Some(&root.to_string_lossy()),
        &root,
        None,
        MsFlags::MS_BIND,
        None,
    )?;
    let mut mirror = Mirror {
        points,
        base: base.to_owned(),
        overlays: 0,
    };
    mirror.directory(Path::new("/"), &root)?;
    own_parts(&root)?;
    // The machine's tree has to be there for the binds.
    swap(&root, || shown.iter().try_for_each(Held::put))
}

/// Lays a fresh `/run` over the calling thread's. What the world shows below it stays.
pub(crate) fn fresh_run() -> Result<(), LabError> {
    let run = Path::new("/run");
    let below = mount_points()?.next_below(run);
    let shown: Vec<Held> = below.iter().filter_map(|path| Held::hold(path)).collect();
    tmpfs(run, "mode=755")?;
    shown.iter().try_for_each(Held::put)
}

fn mount_points() -> Result<MountPoints, LabError> {
    MountPoints::read().map_err(failed("list the mounts of", "/proc/thread-self"))
}

struct Mirror {
    points: MountPoints,
    base: PathBuf,
    overlays: usize,
}

impl Mirror {
    /// Shows the directory `source` at `target`, which exists.
    fn directory(&mut self, source: &Path, target: &Path) -> Result<(), LabError> {
        if self.overlay(source, target).is_ok() {
            // The overlay shows what lies on this one file system: other mounts below come on top.
            for below in self.points.next_below(source) {
                let inside = below.strip_prefix(source).expect("it was found below");
                self.entry(&below, &target.join(inside))?;
            }
            return Ok(());
        }
        if source != Path::new("/") && self.points.next_below(source).is_empty() {
            // No lock is in the way, so it is the file system that cannot lie under an overlay.
            read_only(source, target);
            return Ok(());
        }
        let Ok(entries) = fs::read_dir(source) else {
            return Ok(());
        };
        for entry in entries.flatten() {
            let at = target.join(entry.file_name());
            self.entry(&entry.path(), &at)?;
        }
        Ok(())
    }

    /// Shows whatever `source` is at `target`.
    fn entry(&mut self, source: &Path, target: &Path) -> Result<(), LabError> {
        if is_own(source) {
            return Ok(());
        }
        let Ok(kind) = fs::symlink_metadata(source).map(|meta| meta.file_type()) else {
            return Ok(());
        };
        if kind.is_dir() {
            make_dir(target)?;
            return self.directory(source, target);
        }
        if kind.is_symlink() {
            let aim = fs::read_link(source).map_err(failed("read", source))?;
            return symlink(aim, target)
                .or_else(exists)
                .map_err(failed("link", target));
        }
        if kind.is_file() {
            fs::File::create(target).map_err(failed("make", target))?;
            read_only(source, target);
        }
        Ok(())
    }

    fn overlay(&mut self, source: &Path, target: &Path) -> Result<(), LabError> {
        let number = self.overlays;
        self.overlays += 1;
        let upper = self.base.join(format!("upper/{number}"));
        let work = self.base.join(format!("work/{number}"));
        overlay(source, &upper, &work, target)
    }
}

/// Shows the directory `lower` at `target`, which exists; what is written there goes to `upper`, which
/// is made, as is `work`, on the same file system.
fn overlay(lower: &Path, upper: &Path, work: &Path, target: &Path) -> Result<(), LabError> {
    make_dir(upper)?;
    make_dir(work)?;
    // The upper directory is the one whose mode is seen.
    let mode = fs::metadata(lower).map_err(failed("look at", lower))?;
    fs::set_permissions(upper, mode.permissions()).map_err(failed("set the mode of", upper))?;
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        escaped(lower),
        upper.display(),
        work.display()
    );
    // Without `userxattr`, an overlay of an ordinary user could not hide a deleted directory's
    // former entries; a true root has no need for it.
    let attempts = [layers.clone(), format!("{layers},userxattr")];
    let fits = |data: &String| {
        attach(
            Some("overlay"),
            target,
            Some("overlay"),
            MsFlags::MS_NODEV,
            Some(data),
        )
    };
    fits(&attempts[0]).or_else(|_| fits(&attempts[1]))
}

/// Proc, sys, dev, run and tmp.
fn own_parts(root: &Path) -> Result<(), LabError> {
    for name in OWN {
        make_dir(&root.join(name))?;
    }
    let proc = root.join("proc");
    attach(Some("proc"), &proc, Some("proc"), MsFlags::empty(), None)?;
    guard_settings(&proc)?;
    sys(&root.join("sys"))?;
    tmpfs(&root.join("run"), "mode=755")?;
    tmpfs(&root.join("tmp"), "mode=1777")?;
    tmpfs(&root.join("dev"), "mode=755")?;
    make_dir(&root.join("run/lock"))?;
    devices::make(&root.join("dev"))
}

/// A fresh `/sys` that shows the devices of the caller's network namespace. Read-only: module
/// parameters are the machine's (kube-proxy would raise conntrack's hash size there).
pub(crate) fn sys(target: &Path) -> Result<(), LabError> {
    attach(
        Some("sysfs"),
        target,
        Some("sysfs"),
        MsFlags::MS_RDONLY,
        None,
    )
}

/// Only the settings below `/proc/sys/net` belong to a network namespace; the rest of what can be written there, beside
/// processes, is the machine's, and the root of a world of root has the machine's root's files.
fn guard_settings(proc: &Path) -> Result<(), LabError> {
    let bind = |path: &Path, last: MsFlags| {
        attach(
            Some(&path.to_string_lossy()),
            path,
            None,
            MsFlags::MS_BIND,
            None,
        )?;
        attach(
            None,
            path,
            None,
            MsFlags::MS_BIND | MsFlags::MS_REMOUNT | last,
            None,
        )
    };
    for entry in fs::read_dir(proc).map_err(failed("read", proc))?.flatten() {
        if is_of_machine(&entry) {
            bind(&entry.path(), MsFlags::MS_RDONLY)?;
        }
    }
    bind(&proc.join("sys/net"), MsFlags::empty())
}

/// Whether it is no process's. What is a link leads to a process. Root may open even what nobody may write.
fn is_of_machine(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let process = name
        .as_encoded_bytes()
        .first()
        .is_some_and(u8::is_ascii_digit);
    !process && entry.file_type().is_ok_and(|kind| !kind.is_symlink())
}

/// A fresh tmpfs.
pub(crate) fn tmpfs(target: &Path, options: &str) -> Result<(), LabError> {
    attach(
        Some("tmpfs"),
        target,
        Some("tmpfs"),
        MsFlags::MS_NODEV,
        Some(options),
    )
}

/// Makes `root` the root; the old tree goes out of reach, after `between`, for which both are there.
fn swap(root: &Path, between: impl FnOnce() -> Result<(), LabError>) -> Result<(), LabError> {
    std::env::set_current_dir(root).map_err(failed("enter", root))?;
    // Stacking the old root on the new one needs no directory for it (pivot_root(2), "." twice).
    pivot_root(".", ".").map_err(failed("make the root", root))?;
    between()?;
    umount2(".", MntFlags::MNT_DETACH).map_err(failed("let go of the old root", "/"))?;
    std::env::set_current_dir("/").map_err(failed("enter", "/"))
}

/// Of statfs(2), which nix knows of glibc alone.
const ST_RELATIME: FsFlags = FsFlags::from_bits_retain(0x1000);

/// Best effort: what cannot be shown stays an empty file or directory.
fn read_only(source: &Path, target: &Path) {
    tolerate("show", bind_read_only(source, target));
}

fn bind_read_only(source: &Path, target: &Path) -> Result<(), LabError> {
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    attach(Some(&source.to_string_lossy()), target, None, bind, None)?;
    // Flags an ordinary user inherited are locked: a remount has to repeat them.
    let kept = statvfs(target).map_or(FsFlags::empty(), |stat| stat.flags());
    // What is a device on the machine is none in a world.
    let pairs = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    let locked = pairs.iter().filter(|(has, _)| kept.contains(*has));
    let flags = locked.fold(
        MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NODEV,
        |flags, (_, flag)| flags | *flag,
    );
    attach(None, target, None, flags, None).inspect_err(|_| {
        // Better not there than writable.
        tolerate("unmount", umount2(target, MntFlags::MNT_DETACH));
    })
}

fn attach(
    source: Option<&str>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    data: Option<&str>,
) -> Result<(), LabError> {
    mount(source, target, kind, flags, data).map_err(failed("mount", target))
}

fn make_dir(path: &Path) -> Result<(), LabError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    builder.create(path).map_err(failed("make", path))
}

fn is_own(path: &Path) -> bool {
    OWN.iter().any(|name| {
        path.strip_prefix("/")
            .is_ok_and(|rest| rest.starts_with(name))
    })
}

/// overlayfs splits its layers at colons and its options at commas.
fn escaped(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.replace('\\', "\\\\")
        .replace(':', "\\:")
        .replace(',', "\\,")
}

fn exists(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    }
}

fn failed<E: Into<io::Error>>(
    what: &'static str,
    target: impl AsRef<Path>,
) -> impl FnOnce(E) -> LabError {
    let target = target.as_ref().to_owned();
    move |source| LabError::FileSystem {
        what,
        target,
        source: source.into(),
    }
}
