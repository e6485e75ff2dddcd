//! What of real clusters this machine can run, found out by asking, and for what it cannot, the reason.

use std::{collections::BTreeMap, time::Duration};

use chainbreak_model::case::Capabilities;

use crate::{
    error::KindError,
    tool::Tool,
    versions::{Version, Versions},
};

/// What a program may take to say its version.
pub(crate) const SHORT: Duration = Duration::from_secs(20);
/// What every node image and every scenario's pods bring along.
const BROUGHT: [&str; 10] = [
    "conntrack",
    "ip",
    "ip6tables-legacy",
    "ip6tables-nft",
    "ipset",
    "iptables-legacy",
    "iptables-nft",
    "nft",
    "nginx",
    "telling-servers",
];
/// What Calico's real eBPF dataplane does and no model can, and that it can be loaded there.
const REAL: [&str; 3] = ["bpf-service-nat", "ebpf", "ebpf-lists"];

/// Why `calico-upgrade` is not there.
pub(crate) const CALICO_STAYS: &str =
    "Calico is not upgraded on kind yet: it takes its whole manifest, not an image alone";

/// What no real cluster has for now, and why.
const LACKING: [(&str, &str); 10] = [
    (
        "api-endpoints",
        "where a real cluster's API is, and how its pods reach it, is not the harness's to change",
    ),
    ("calico-upgrade", CALICO_STAYS),
    (
        "ended-commands",
        "what is run on somebody's nodes ends by itself: the backend kind can end it",
    ),
    (
        "further-interfaces",
        "pods of a real cluster have one interface: it takes Multus to attach another",
    ),
    (
        "held-commands",
        "what stands before agents' commands on somebody's nodes is not known: the backend kind can hold them back",
    ),
    (
        "load-balancers",
        "whether the cluster gives Services of type LoadBalancer an address is not known: the backend kind does",
    ),
    (
        "modelled-pods",
        "Felix's model on a real cluster knows no pods' interfaces: calico: { pods: third-party }, or the cluster's own Felix",
    ),
    (
        "own-bpffs",
        "Calico's manifest gives Felix the host's /sys/fs/bpf",
    ),
    (
        "reboots",
        "pods of a real node end with it: nothing of what is asked here would be left",
    ),
    (
        "underlay-addresses",
        "which addresses nodes and hosts have is Docker's to say: routes lead via node/NAME or host/NAME",
    ),
];
/// Hosts beside the cluster.
pub(crate) const HOSTS: &str = "off-cluster-hosts";

/// The capabilities of a backend that has these versions of Kubernetes, or none for that reason.
pub(crate) fn of(backend: &str, here: Result<Vec<Version>, KindError>) -> Capabilities {
    let mut found = BTreeMap::new();
    let reason = here.as_ref().map(|_| ()).map_err(ToString::to_string);
    let always = [backend].into_iter().chain(BROUGHT).chain(REAL);
    found.extend(always.map(|name| (name.to_owned(), reason.clone())));
    let lacking = LACKING.map(|(name, why)| (name.to_owned(), Err(why.to_owned())));
    found.extend(lacking);
    let nowhere = "it is not known which network the nodes are on: the backend kind has hosts";
    found.insert(HOSTS.to_owned(), Err(nowhere.to_owned()));
    let versions = here.or_else(|_error| Versions::pinned().map(|pins| pins.versions()));
    let versions = versions.into_iter().flatten();
    found.extend(versions.map(|version| (kubernetes(version), reason.clone())));
    Capabilities(found)
}

/// The capability to upgrade nodes to that Kubernetes.
pub(crate) fn upgrade_to(version: Version) -> String {
    format!("upgrade-to-{}", version.minor())
}

/// Whether there is a kubectl.
pub(crate) async fn kubectl() -> Result<(), KindError> {
    let version = Tool::new(SHORT, ["kubectl", "version", "--client"]);
    version.output().await.map(drop)
}

/// The capability to run that Kubernetes.
pub(crate) fn kubernetes(version: Version) -> String {
    format!("kubernetes-{}", version.minor())
}
