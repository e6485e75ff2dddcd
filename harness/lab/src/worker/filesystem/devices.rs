//! A world's `/dev`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use nix::mount::MsFlags;

use super::{attach, failed, make_dir};
use crate::error::LabError;

/// Devices that programs expect and that give no hold on the machine. No terminal: what can open one can type into it.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "net/tun"];
/// Fills a directory with them, and with what belongs to a `/dev` beside.
pub(super) fn make(dev: &Path) -> Result<(), LabError> {
    for name in ["net", "pts", "shm"] {
        make_dir(&dev.join(name))?;
    }
    fs::set_permissions(dev.join("shm"), fs::Permissions::from_mode(0o1777))
        .map_err(failed("set the mode of", dev))?;
    for name in DEVICES {
        let (source, at) = (Path::new("/dev").join(name), dev.join(name));
        if !source.exists() {
            continue;
        }
        fs::File::create(&at).map_err(failed("make", &at))?;
        attach(
            Some(&source.to_string_lossy()),
            &at,
            None,
            MsFlags::MS_BIND,
            None,
        )?;
    }
    let pts = dev.join("pts");
    let data = "newinstance,ptmxmode=0666,mode=0620";
    attach(
        Some("devpts"),
        &pts,
        Some("devpts"),
        MsFlags::empty(),
        Some(data),
    )?;
    let links = [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ];
    links.iter().try_for_each(|(aim, name)| {
        let at = dev.join(name);
        symlink(aim, &at).map_err(failed("link", &at))
    })
}
