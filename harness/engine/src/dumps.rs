//! What nodes hold when a case is over, and is kept with its report: rules, and the maps of Felix's eBPF programs.

use std::time::Duration;

use chainbreak_model::{
    case::{Case, IpFamily, ProxyMode},
    names::NodeName,
};
use futures::future::join_all;
use tokio::time::timeout;

use crate::{
    cluster::{Cluster, Command, FelixProgram, Place, nodes},
    output::output,
    ready::IPVS,
    run::Artifact,
};

/// What Felix lists of each family, and what it lists once.
const MAPS: [&str; 4] = ["nat", "conntrack", "routes", "ipsets"];
const MAPS_OF_BOTH: [&str; 2] = ["ifstate", "counters"];

/// What it notes of the policies in its programs, each file behind its name: of which family it is only that says.
const POLICIES: &str = "cd /var/run/calico/bpf/policy 2>/dev/null || exit 0; \
    for f in *_v?.json; do [ ! -e $f ] || { printf '%s:' $f; cat $f; }; done";

/// What Felix's programs know of a busy node are tens of megabytes; so much of it may be kept of each map.
const MOST: usize = 8 << 20;
/// How long a map may take: nobody's verdict waits for it.
const WITHIN: Duration = Duration::from_secs(10);

/// Rules of every node in every family, best effort: what cannot be had is left out.
pub(crate) async fn rules(cluster: &dyn Cluster, case: &Case) -> Vec<Artifact> {
    let (nodes, rules) = (nodes(cluster), rule_dumps(case));
    let all = nodes
        .iter()
        .flat_map(|node| rules.iter().map(move |dump| (node, dump)));
    join_all(all.map(|(node, dump)| rules_of(cluster, node, dump))).await
}

/// Maps of Felix's programs in the same way.
pub(crate) async fn maps(cluster: &dyn Cluster, case: &Case) -> Vec<Artifact> {
    let (nodes, maps) = (nodes(cluster), map_dumps(case, cluster.felix_program()));
    // One after the other: each takes a part of a second of a processor.
    let of_node = nodes.iter().map(async |node| {
        let mut kept = Vec::new();
        for map in &maps {
            kept.extend(map_of(cluster, node, map).await);
        }
        kept
    });
    join_all(of_node).await.into_iter().flatten().collect()
}

/// What lists something.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Dump {
    /// iptables' of a family, with counters.
    Save(IpFamily),
    /// nft's tables, of whatever family.
    Ruleset,
    /// What IPVS balances.
    Ipvs,
    /// A map of Felix's programs.
    Map(FelixProgram, &'static str, IpFamily),
    /// What policies its programs have.
    Policies,
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

fn rule_dumps(case: &Case) -> Vec<Dump> {
    let mode = case.cluster.kube_proxy.as_ref().map(|it| it.mode);
    dumps(&case.cluster.ip_families, mode)
}

/// Those of a real Felix that is in eBPF mode at some time.
fn map_dumps(case: &Case, felix: Option<FelixProgram>) -> Vec<Dump> {
    let Some(felix) = felix.filter(|_| case.wants_programs()) else {
        return Vec::new();
    };
    let once = MAPS_OF_BOTH.map(|map| (map, IpFamily::V4));
    let of_each = case.cluster.ip_families.iter();
    let of_each = of_each.flat_map(|family| MAPS.map(|map| (map, *family)));
    let all = of_each.chain(once);
    all.map(|(map, family)| Dump::Map(felix.clone(), map, family))
        .chain([Dump::Policies])
        .collect()
}

impl Dump {
    /// What the artifact is called, behind its node. Maps are called as `calicoctl cluster diags` calls them.
    fn name(&self) -> String {
        match self {
            Self::Save(family) => format!("{}-save", family.iptables()),
            Self::Ruleset => "nft".to_owned(),
            Self::Ipvs => "ip_vs".to_owned(),
            Self::Map(_, map, IpFamily::V4) => format!("bpf-{map}"),
            Self::Map(_, map, IpFamily::V6) => format!("bpf-{map}-6"),
            Self::Policies => "bpf-policies".to_owned(),
        }
    }

    /// What lists it.
    fn argv(&self) -> Vec<String> {
        match self {
            Self::Save(_) => vec![self.name(), "-c".to_owned()],
            Self::Ruleset => ["nft", "list", "ruleset"].map(str::to_owned).to_vec(),
            Self::Ipvs => IPVS.map(str::to_owned).to_vec(),
            Self::Map(felix, map, family) => felix.dump(map, *family),
            Self::Policies => ["sh", "-c", POLICIES].map(str::to_owned).to_vec(),
        }
    }
}

/// What lists all of them on a node.
pub(crate) fn commands(case: &Case, felix: Option<FelixProgram>) -> Vec<Command> {
    let all = rule_dumps(case).into_iter().chain(map_dumps(case, felix));
    all.map(|dump| Command::Argv(dump.argv())).collect()
}

async fn rules_of(cluster: &dyn Cluster, node: &NodeName, dump: &Dump) -> Artifact {
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

/// Nothing where there is no such map, or where Felix does not run.
async fn map_of(cluster: &dyn Cluster, node: &NodeName, dump: &Dump) -> Option<Artifact> {
    let (place, command) = (Place::Node(node.clone()), Command::Argv(dump.argv()));
    let listed = timeout(WITHIN, output(cluster, &place, &command)).await;
    let text = listed.ok()?.ok().filter(|text| !text.is_empty())?;
    let bytes = text.len();
    let text = if bytes > MOST {
        format!("left out: {bytes} bytes, and {MOST} of a map are kept\n")
    } else {
        text
    };
    let name = format!("{node}.{}", dump.name());
    Some(Artifact { name, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn a_case_in_nftables_mode_keeps_what_nft_lists() {
        let families = [IpFamily::V4, IpFamily::V6];
        let saves = families.map(Dump::Save);
        assert_eq!(dumps(&families, None), saves);
        assert_eq!(dumps(&families, Some(ProxyMode::Iptables)), saves);
        let both = dumps(&families, Some(ProxyMode::Nftables));
        assert_eq!(both, [&saves[..], &[Dump::Ruleset]].concat());
    }

    #[test]
    fn the_maps_of_a_felix_in_ebpf_mode_are_kept_of_each_family_and_of_no_other_felix() {
        let promise = "{ has-rule: { table: nat, chain: CHAIN, absent: true, always: true } }";
        let mut case = fake::case(promise);
        case.cluster.ip_families = vec![IpFamily::V4, IpFamily::V6];
        let names = |case: &Case, felix| {
            let maps = map_dumps(case, felix);
            maps.iter().map(Dump::name).collect::<Vec<_>>().join(" ")
        };
        let felix = Some(FelixProgram::at("/calico-node".as_ref()));
        assert_eq!(names(&case, felix.clone()), "");
        fake::switch_to_ebpf(&mut case);
        assert_eq!(
            names(&case, felix.clone()),
            "bpf-nat bpf-conntrack bpf-routes bpf-ipsets bpf-nat-6 bpf-conntrack-6 bpf-routes-6 bpf-ipsets-6 bpf-ifstate bpf-counters bpf-policies"
        );
        assert_eq!(names(&case, None), "");
        let words = "/calico-node -bpf counters dump".split(' ');
        let counters = Command::Argv(words.map(str::to_owned).collect());
        assert!(commands(&case, felix).contains(&counters));
    }
}
