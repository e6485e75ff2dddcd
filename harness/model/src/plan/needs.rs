//! What a case needs of the machine.

use chainbreak_probe::wire::Protocol;

use super::{Choice, upgrades};
use crate::{
    case::{
        AgentFault, AgentSource, Case, Claim, ClusterSpec, Dataplane, Destination, Fault, HostSpec,
        IpFamily, IptablesVariant, PodOwner, Programs, Promise, ProxyMode, Step, Traffic, Via,
    },
    names::AgentName,
    pod_network::NETWORKS,
    version,
};

/// What eBPF programs do, and no model can: its table of nftables is asked for by `programs: work`.
pub(super) const BPF: &str = "bpf-service-nat";
/// eBPF programs can be loaded.
const EBPF: &str = "ebpf";

/// Which programs are attached can be listed: so a Felix that goes on without eBPF finds those of its life before, and takes them away.
const EBPF_LISTS: &str = "ebpf-lists";

/// Every capability that a case needs, in one place: the backend, what its manifests and agents run,
/// and what the scenario says beyond that.
pub(super) fn of(case: &Case, choice: &Choice, own: &[String]) -> Vec<String> {
    let mut needs = vec![choice.backend.clone()];
    if choice.real_clusters {
        needs.extend(of_a_real_cluster(case));
    }
    needs.extend(iptables(&case.cluster));
    let mode = case.cluster.kube_proxy.as_ref().map(|it| it.mode);
    let programs = case.loads_programs();
    // Without kube-proxy conntrack tells that programs answer.
    if mode.is_some() || programs {
        needs.push("conntrack".to_owned());
    }
    // Without eBPF mode, too: there Felix's model takes the table away.
    let stands_in = !case.has_real_felix() && case.programs() == Some(Programs::Work);
    if mode == Some(ProxyMode::Nftables) || stands_in {
        needs.push("nft".to_owned());
    }
    if mode == Some(ProxyMode::Ipvs) {
        needs.push("ipvs".to_owned());
    }
    // From v3.31 on its rules ask sets in whatever world.
    if case.cluster.version(AgentName::Felix).is_some() {
        needs.push("ipset".to_owned());
    }
    let hosts = case.cluster.hosts.values();
    if case.manifests.iter().any(runs_nginx) || hosts.into_iter().any(|host| host.nginx.is_some()) {
        needs.push("nginx".to_owned());
    }
    if !case.cluster.host_sysctls.is_empty() {
        needs.push("host-sysctl".to_owned());
    }
    if programs {
        needs.push(EBPF.to_owned());
        needs.extend(goes_on_without(case).then(|| EBPF_LISTS.to_owned()));
    }
    needs.extend(
        own.iter()
            .filter(|need| !needs.contains(need))
            .cloned()
            .collect::<Vec<_>>(),
    );
    needs
}

/// The capability that tells whether a need is met: a real Felix answers services by its programs wherever they can be loaded.
pub(super) fn told_by<'a>(need: &'a str, case: &Case) -> &'a str {
    if need == BPF && case.has_real_felix() {
        EBPF
    } else {
        need
    }
}

/// What the lab always has, and real clusters lack for now.
fn of_a_real_cluster(case: &Case) -> Vec<String> {
    let cluster = &case.cluster;
    let later = upgrades::of_kubernetes(case).flat_map(|(version, whole)| {
        if whole {
            way(cluster.kubernetes_version(), version)
        } else {
            vec![format!("kubernetes-{}", version::minor(version))]
        }
    });
    let first = cluster.kubernetes_version().into_iter();
    let first = first.map(|version| format!("kubernetes-{}", version::minor(version)));
    let kubernetes = first.chain(later);
    let upgrades_calico = upgrades::all(case).any(|(to, _)| to.contains_key(&AgentName::Felix));
    let mut faults = case.timeline.iter().filter_map(|step| match step {
        Step::Fault { fault, duration } => Some((fault, duration.is_some())),
        _ => None,
    });
    let parts = [
        ("off-cluster-hosts", !cluster.hosts.is_empty()),
        (
            "underlay-addresses",
            cluster.hosts.values().any(has_addressed_hops),
        ),
        ("further-interfaces", objects(case).any(has_attachments)),
        ("load-balancers", objects(case).any(is_balanced)),
        ("node-sysctls", !cluster.sysctls.is_empty()),
        ("vpc-cni", cluster.cni.is_some()),
        (
            "calico-upgrade",
            upgrades_calico && cluster.source(AgentName::Felix) == Some(&AgentSource::Cluster),
        ),
        (
            "telling-servers",
            case.promises.values().any(|it| hears_pods(case, it)),
        ),
        ("api-endpoints", case.timeline.iter().any(is_about_the_api)),
        ("own-bpffs", cluster.has_own_bpffs()),
        ("modelled-pods", models_pods(case)),
        (
            "reboots",
            faults
                .clone()
                .any(|(it, _)| matches!(it, Fault::Reboot { .. })),
        ),
        (
            "held-commands",
            faults
                .clone()
                .any(|(it, _)| matches!(it, Fault::Slow { .. })),
        ),
        // Who starts a command in a container does not end it by ending its own process.
        (
            "ended-commands",
            faults.any(|(it, lasts)| lasts && matches!(it, Fault::Run(_))),
        ),
    ];
    let parts = parts.into_iter().filter(|(_, needed)| *needed);
    let parts = parts.map(|(name, _)| name.to_owned());
    kubernetes.chain(parts).collect()
}

/// What nodes are upgraded to on the way from one version to another: no minor version is left out.
fn way(from: Option<&str>, to: &str) -> Vec<String> {
    let (from, to) = (version::minor(from.unwrap_or(to)), version::minor(to));
    let all = version::minors(&from, &to).unwrap_or_else(|_back| vec![to.clone()]);
    let later = all.into_iter().filter(|minor| *minor != from || from == to);
    later.map(|minor| format!("upgrade-to-{minor}")).collect()
}

/// Whether Felix's model is to know the pods' interfaces.
fn models_pods(case: &Case) -> bool {
    let calico = case.cluster.calico.as_ref();
    calico.is_some_and(|it| it.pods == PodOwner::Calico && it.source == AgentSource::Model)
}

/// Whether the API's endpoint is another one after it, or the way of an agent to it.
fn is_about_the_api(step: &Step) -> bool {
    let Step::Fault {
        fault: Fault::Agent { what, .. },
        ..
    } = step
    else {
        return *step == Step::MoveApi;
    };
    matches!(what, AgentFault::Recreate { api: Some(_) })
}

/// Whether Felix is switched to rules.
fn goes_on_without(case: &Case) -> bool {
    let switches = |step: &Step| {
        matches!(
            step,
            Step::Fault {
                fault: Fault::Switch {
                    dataplane: Dataplane::Iptables
                },
                ..
            }
        )
    };
    case.timeline.iter().any(switches)
}

/// Everything that a case makes.
fn objects(case: &Case) -> impl Iterator<Item = &serde_json::Value> {
    let later = case.timeline.iter().filter_map(|step| match step {
        Step::Apply(objects) => Some(objects),
        _ => None,
    });
    case.manifests.iter().chain(later.flatten())
}

/// Whether a promise is about what pods' servers say of the client and of themselves, as the lab's nginx does in headers. That of a
/// host outside is told to by every backend, and over UDP a pod's own program answers, the same everywhere.
fn hears_pods(case: &Case, promise: &Promise) -> bool {
    let (Claim::Source { traffic, .. }
    | Claim::SourcePorts { traffic, .. }
    | Claim::Balance { traffic, .. }) = &promise.claim
    else {
        return false;
    };
    let told = |traffic: &Traffic| {
        matches!(traffic.to, Destination::Host(_)) || traffic.protocol == Protocol::Udp
    };
    !case.traffic.get(traffic).is_some_and(told)
}

/// Whether a host's routes lead via addresses that the lab gives.
fn has_addressed_hops(host: &HostSpec) -> bool {
    let mut routes = host.routes.iter();
    routes.any(|route| matches!(route.via, Via::Address(_)))
}

/// Whether an object's pods want interfaces beside their first.
fn has_attachments(object: &serde_json::Value) -> bool {
    let own = &object["metadata"]["annotations"];
    let templates = &object["spec"]["template"]["metadata"]["annotations"];
    [own, templates].iter().any(|it| it.get(NETWORKS).is_some())
}

/// Whether somebody outside has to give it an address.
fn is_balanced(object: &serde_json::Value) -> bool {
    object["kind"] == "Service" && object["spec"]["type"] == "LoadBalancer"
}

/// The iptables backends of its nodes. IPv4's is there also where only IPv6 is routed: Felix programs both.
fn iptables(cluster: &ClusterSpec) -> impl Iterator<Item = String> {
    let variant = match cluster.iptables {
        IptablesVariant::Legacy => "legacy",
        IptablesVariant::Nft => "nft",
    };
    let v6 = cluster.ip_families.contains(&IpFamily::V6);
    let families = [IpFamily::V4].into_iter().chain(v6.then_some(IpFamily::V6));
    families.map(move |family| format!("{}-{variant}", family.iptables()))
}

/// The last part of an image's repository: `nginx` of `ghcr.io/nginx/nginx:1.27@sha256:…`.
pub fn image_name(image: &str) -> &str {
    let untagged = image.split('@').next().unwrap_or_default();
    let last = untagged.rsplit('/').next().unwrap_or_default();
    last.split(':').next().unwrap_or_default()
}

/// Whether an image is nginx itself, by [`image_name`]; not what goes with nginx, such as its exporter.
pub fn is_nginx(image: &str) -> bool {
    ["nginx", "nginx-unprivileged"].contains(&image_name(image))
}

/// Whether an object's pods run nginx.
fn runs_nginx(object: &serde_json::Value) -> bool {
    let spec = match object["kind"].as_str() {
        Some("Pod") => &object["spec"],
        _ => &object["spec"]["template"]["spec"],
    };
    let images = spec["containers"].as_array().into_iter().flatten();
    let mut images = images.filter_map(|container| container["image"].as_str());
    images.any(is_nginx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_upgraded_to_every_minor_version_on_the_way() {
        assert_eq!(
            way(Some("1.32.8"), "1.34"),
            ["upgrade-to-1.33", "upgrade-to-1.34"]
        );
        assert_eq!(way(Some("1.34.2"), "1.34.10"), ["upgrade-to-1.34"]);
        assert_eq!(way(Some("1.34"), "1.33"), ["upgrade-to-1.33"]);
    }

    #[test]
    fn nginx_is_known_by_its_repository_whatever_stands_around_it() {
        for image in [
            "nginx",
            "nginx:1.25",
            "docker.io/library/nginx:1",
            "ghcr.io:443/x/nginx-unprivileged@sha256:00",
            "localhost:5000/nginx:1.27@sha256:00",
        ] {
            assert!(is_nginx(image), "{image}");
        }
        for image in [
            "",
            "nginx/nginx-prometheus-exporter:1.1",
            "nginx-ingress",
            "nginx.example/busybox:1",
            "nginx:1/busybox",
        ] {
            assert!(!is_nginx(image), "{image}");
        }
    }
}
