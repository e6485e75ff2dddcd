//! The rules of nodes as they are when a case is over, which are kept with its report.

use chainbreak_model::{
    case::{ClusterSpec, IpFamily, ProxyMode},
    names::NodeName,
};
use futures::future::join_all;

use crate::{
    cluster::{Cluster, Command, Place, nodes},
    output::output,
    ready::IPVS,
    run::Artifact,
};

/// The rules of every node in every family, best effort: what cannot be had is left out.
pub(crate) async fn rules(cluster: &dyn Cluster, spec: &ClusterSpec) -> Vec<Artifact> {
    let nodes = nodes(cluster);
    let dumps = dumps_of(spec);
    let all = nodes
        .iter()
        .flat_map(|node| dumps.iter().map(move |dump| (node, *dump)));
    join_all(all.map(|(node, dump)| rules_of(cluster, node, dump))).await
}

/// What lists rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dump {
    /// iptables' of a family, with counters.
    Save(IpFamily),
    /// nft's tables, of whatever family.
    Ruleset,
    /// What IPVS balances.
    Ipvs,
}

/// What is kept of each node: where kube-proxy writes a table of its own, nft's tables too, and what IPVS balances.
fn dumps(families: &[IpFamily], mode: Option<ProxyMode>) -> Vec<Dump> {
    let saves = families.iter().copied().map(Dump::Save);
    let own = match mode {
        Some(ProxyMode::Nftables) => Some(Dump::Ruleset),
        Some(ProxyMode::Ipvs) => Some(Dump::Ipvs),
        Some(ProxyMode::Iptables) | None => None,
    };
    saves.chain(own).collect()
}

fn dumps_of(cluster: &ClusterSpec) -> Vec<Dump> {
    let mode = cluster.kube_proxy.as_ref().map(|it| it.mode);
    dumps(&cluster.ip_families, mode)
}

impl Dump {
    /// What the artifact is called, behind its node.
    fn name(self) -> String {
        match self {
            Self::Save(family) => format!("{}-save", family.iptables()),
            Self::Ruleset => "nft".to_owned(),
            Self::Ipvs => "ip_vs".to_owned(),
        }
    }

    /// What lists it.
    fn argv(self) -> Vec<String> {
        match self {
            Self::Save(_) => vec![self.name(), "-c".to_owned()],
            Self::Ruleset => ["nft", "list", "ruleset"].map(str::to_owned).to_vec(),
            Self::Ipvs => IPVS.map(str::to_owned).to_vec(),
        }
    }
}

/// What lists all of them on a node.
pub(crate) fn commands(cluster: &ClusterSpec) -> Vec<Command> {
    let all = dumps_of(cluster).into_iter();
    all.map(|dump| Command::Argv(dump.argv())).collect()
}

async fn rules_of(cluster: &dyn Cluster, node: &NodeName, dump: Dump) -> Artifact {
    let place = Place::Node(node.clone());
    let list = async |argv: Vec<String>| {
        let listed = output(cluster, &place, &Command::Argv(argv)).await;
        listed.unwrap_or_default()
    };
    let mut text = list(dump.argv()).await;
    if text.is_empty() && matches!(dump, Dump::Save(_)) {
        // An ordinary user may not list which tables there are (legacy).
        for table in ["raw", "mangle", "nat", "filter"] {
            let of_table = ["-t", table].map(str::to_owned);
            text.push_str(&list([dump.argv(), of_table.to_vec()].concat()).await);
        }
    }
    Artifact {
        name: format!("{node}.{}", dump.name()),
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_in_nftables_mode_keeps_what_nft_lists() {
        let families = [IpFamily::V4, IpFamily::V6];
        let saves = families.map(Dump::Save);
        assert_eq!(dumps(&families, None), saves);
        assert_eq!(dumps(&families, Some(ProxyMode::Iptables)), saves);
        let both = dumps(&families, Some(ProxyMode::Nftables));
        assert_eq!(both, [&saves[..], &[Dump::Ruleset]].concat());
    }
}
