//! Felix's own program, for what it tells of its eBPF maps.

use std::path::Path;

use chainbreak_model::case::IpFamily;

/// Its maps and process file system are those of the Felix that runs on the node. The container runs several programs of that name.
/// (`calico-node -felix` up to v3.32.)
const IN_ITS_POD: &str = "for p in $(grep -lsaz '^calico-node' /proc/[0-9]*/cmdline); do \
    grep -qsaxz -e -felix $p || continue; p=${p#/proc/}; \
    exec nsenter --mount --pid --target ${p%/cmdline} -- calico-node \"$@\"; done; \
    echo 'no Felix runs here' >&2; exit 1";

/// What runs `calico-node` on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FelixProgram(Vec<String>);

impl FelixProgram {
    /// As a container of a pod that is on the node.
    pub fn in_its_pod() -> Self {
        Self(["sh", "-c", IN_ITS_POD, "sh"].map(str::to_owned).to_vec())
    }

    /// A program on the node.
    pub fn at(path: &Path) -> Self {
        Self(vec![path.to_string_lossy().into_owned()])
    }

    /// What has it list one of its maps: `calico-node -bpf counters dump`. Where there is no such map it prints nothing, or fails.
    pub(crate) fn dump(&self, map: &str, family: IpFamily) -> Vec<String> {
        let words = ["-bpf", map, "dump"].into_iter();
        let words = words.chain((family == IpFamily::V6).then_some("--ipv6"));
        self.0
            .iter()
            .cloned()
            .chain(words.map(str::to_owned))
            .collect()
    }
}
