//! Felix's own program, for what it tells of its eBPF maps.

use std::path::Path;

use chainbreak_model::case::{AgentSource, IpFamily};

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
    /// That of a Felix from there: in a container of a pod that is on the node, or a program that the node sees. A model has none, and the root of an
    /// image is not where commands of a node are.
    pub fn of(source: &AgentSource) -> Option<Self> {
        match source {
            AgentSource::Cluster => {
                let words = ["sh", "-c", IN_ITS_POD, "sh"];
                Some(Self(words.map(str::to_owned).to_vec()))
            }
            AgentSource::Path(path) => path.is_file().then(|| Self::at(path)),
            AgentSource::Model | AgentSource::Build | AgentSource::Image(_) => None,
        }
    }

    /// A program on the node.
    pub(crate) fn at(path: &Path) -> Self {
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
