//! An unpacked image's root file system as a thread's own: an overlay whose writes vanish, with the
//! node's `/proc`, `/sys`, `/dev` and `/run` in it, as a privileged pod of the host's network has them. What
//! does not belong to an ordinary user cannot be written by that user's world.

use std::path::Path;

use nix::{
    mount::MsFlags,
    sched::{CloneFlags, unshare},
};

use super::{attach, make_dir, overlay, swap};
use crate::error::LabError;

/// Where overlays are put together, on the node's own `/run`, of which the image's program sees them too.
const ROOTS: &str = "/run/chainbreak/roots";
/// What the node lends. Of `/run` only itself: a bind of what lies below would show the root in itself.
const LENT: [(&str, MsFlags); 4] = [
    ("proc", MsFlags::MS_REC),
    ("sys", MsFlags::MS_REC),
    ("dev", MsFlags::MS_REC),
    ("run", MsFlags::empty()),
];

/// Gives the calling thread, and all that it will start, a mount namespace of its own in which the
/// directory `lower` is the root. `name` is unique among a node's roots.
pub(crate) fn enter(lower: &Path, name: &str) -> Result<(), LabError> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(LabError::isolate("make a mount namespace"))?;
    let base = Path::new(ROOTS).join(name);
    let root = base.join("root");
    make_dir(&root)?;
    overlay(lower, &base.join("upper"), &base.join("work"), &root)?;
    for (name, depth) in LENT {
        let (source, target) = (Path::new("/").join(name), root.join(name));
        make_dir(&target)?;
        let flags = MsFlags::MS_BIND | depth;
        attach(Some(&source.to_string_lossy()), &target, None, flags, None)?;
    }
    make_dir(&root.join("tmp"))?;
    swap(&root, || Ok(()))
}
