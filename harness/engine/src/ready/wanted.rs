//! What a node's nat table, or kube-proxy's own of nftables mode, shows when its agents have synced with
//! what the API holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
};

use chainbreak_model::{agent::Ready, case::Case, names::AgentName};
use k8s_openapi::api::{
    core::v1::{Pod, Service, ServiceSpec},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use super::Objects;
use crate::{endpoints, evidence};

/// The parts of a line, saved, listed or written, that say that an agent knows a cluster IP or an endpoint,
/// or that an agent which jumps has begun.
pub(super) fn tellings(line: &str) -> impl Iterator<Item = String> + '_ {
    let others = tellings_of_nft(line).chain(telling_of_ipvs(line));
    telling(line).into_iter().chain(others)
}

/// Of a line of `/proc/net/ip_vs`, in the words of iptables: `TCP  0A600001:01BB rr` is a service, and below it
/// `  -> 0A140102:0050 Masq 1 0 0` a real server; addresses of IPv6 stand in brackets (Linux, `net/netfilter/ipvs/ip_vs_ctl.c`).
fn telling_of_ipvs(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.get(..2)? {
        ["TCP" | "UDP" | "SCTP", at] => Some(format!("-d {}", of_ipvs(at)?.ip())),
        ["->", at] => Some(format!("--to-destination {}", of_ipvs(at)?)),
        _ => None,
    }
}

fn of_ipvs(at: &str) -> Option<SocketAddr> {
    let (ip, port) = at.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let ip = match ip.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(v6) => v6.parse().ok()?,
        None => Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?).into(),
    };
    Some(SocketAddr::new(ip, port))
}

/// Of elements and rules as nft writes them: in the words of iptables. From 1.36 on a rule does DNAT to the elements of a
/// map that stands in it, `0 : 10.20.1.2 . 80`; before, to one address. Felix's chains of a table of its own begin with iptables' name of the
/// table (v3.32.1, which takes one beside a kube-proxy in nftables mode).
fn tellings_of_nft(line: &str) -> impl Iterator<Item = String> + '_ {
    let words: Vec<&str> = line.split_whitespace().collect();
    let by_map = words.contains(&"dnat") && words.contains(&"map");
    let positions = 0..words.len();
    positions.filter_map(move |at| match words.get(at..)? {
        [
            ip,
            ".",
            "tcp" | "udp" | "sctp",
            ".",
            _,
            ":",
            "goto",
            chain,
            ..,
        ] if chain.contains('/') => Some(format!("-d {ip}")),
        [":", ip, ".", port, ..] if by_map => destination(ip, port.trim_end_matches(',')),
        ["dnat", "to", target, ..] => Some(format!("--to-destination {target}")),
        ["jump", to, ..] => jumps(AgentName::ALL)
            .find(|chain| to.strip_prefix("nat-") == Some(chain))
            .map(jump),
        _ => None,
    })
}

fn destination(ip: &str, port: &str) -> Option<String> {
    let target = SocketAddr::new(ip.parse().ok()?, port.parse().ok()?);
    Some(format!("--to-destination {target}"))
}

fn telling(rule: &str) -> Option<String> {
    if let Some(chain) = jumps(AgentName::ALL).find(|chain| rule.ends_with(*chain))
        && rule.starts_with('-')
    {
        return Some(jump(chain));
    }
    let mut words = rule
        .split(' ')
        .skip_while(|word| !matches!(*word, "--to-destination" | "-d"));
    let (option, value) = (words.next()?, words.next()?);
    let value = value.trim_end_matches("/32").trim_end_matches("/128");
    Some(format!("{option} {value}"))
}

/// The chains of agents that are ready with a jump.
fn jumps(agents: impl IntoIterator<Item = AgentName>) -> impl Iterator<Item = &'static str> {
    let ready = agents.into_iter().map(|agent| agent.kind().ready);
    ready.filter_map(|ready| match ready {
        Ready::Jump(chain) => Some(chain),
        Ready::Services => None,
    })
}

fn jump(chain: &str) -> String {
    format!("-j {chain}")
}

/// The parts of rules that must have been seen on every node, as each agent is ready: a match on each cluster IP that
/// has endpoints and a DNAT to each of them, and jumps. An `Err` says what the API still lacks.
pub(super) async fn wanted(objects: &Objects, case: &Case) -> Result<BTreeSet<String>, String> {
    let mut wanted: BTreeSet<String> = jumps(case.cluster.agents()).map(jump).collect();
    let serves = |agent: AgentName| agent.kind().ready == Ready::Services;
    if !case.cluster.agents().any(serves) {
        return Ok(wanted);
    }
    let slices = objects.ours(slices(&objects.client).await?);
    let pods = objects.list::<Pod>().await?;
    for service in objects.list::<Service>().await? {
        let Some((spec, selector)) = service.spec.as_ref().and_then(selecting) else {
            continue;
        };
        let ready = pods.iter().filter(|pod| {
            pod.namespace() == service.namespace() && matches(selector, pod) && is_ready(pod)
        });
        let ready = ready.count();
        let slices: Vec<_> = slices.iter().filter(|it| owns(&service, it)).collect();
        for (family, cluster_ip) in cluster_ips(spec) {
            let ours = slices.iter().copied();
            let endpoints = Endpoints::of(ours.filter(|slice| slice.address_type == family));
            if endpoints.addresses.len() != ready {
                let known = endpoints.addresses.len();
                let name = service.name_any();
                return Err(format!(
                    "service {name}: {known} of {ready} ready pods are {family} endpoints"
                ));
            }
            if in_nat_of_every_node(&service, spec) && ready > 0 {
                wanted.insert(format!("-d {cluster_ip}"));
                wanted.extend(endpoints.targets);
            }
        }
    }
    Ok(wanted)
}

/// All EndpointSlices. Before Kubernetes 1.21 they are `discovery.k8s.io/v1beta1`, whose objects differ in nothing that is looked
/// at here.
async fn slices(client: &Client) -> Result<Vec<EndpointSlice>, String> {
    let every = ListParams::default();
    let slices = Api::<EndpointSlice>::all(client.clone());
    match slices.list(&every).await {
        Ok(list) => return Ok(list.items),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(error.to_string()),
    }
    let kind = GroupVersionKind::gvk("discovery.k8s.io", "v1beta1", "EndpointSlice");
    let old = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let listed = old.list(&every).await.map_err(|error| error.to_string())?;
    let read = |mut object: DynamicObject| {
        object.types = None;
        let object = serde_json::to_value(object).and_then(serde_json::from_value);
        object.map_err(|error| error.to_string())
    };
    listed.items.into_iter().map(read).collect()
}

/// A Service whose endpoints are pods. A headless one is nothing to kube-proxy.
fn selecting(spec: &ServiceSpec) -> Option<(&ServiceSpec, &BTreeMap<String, String>)> {
    let selector = spec
        .selector
        .as_ref()
        .filter(|selector| !selector.is_empty())?;
    (spec.cluster_ip.as_deref() != Some("None")).then_some((spec, selector))
}

/// The families of a Service and its address of each.
fn cluster_ips(spec: &ServiceSpec) -> impl Iterator<Item = (&str, &str)> {
    let families = spec.ip_families.iter().flatten().map(String::as_str);
    families.zip(spec.cluster_ips.iter().flatten().map(String::as_str))
}

/// Not so where another proxy serves it, or where only a node's own endpoints count.
fn in_nat_of_every_node(service: &Service, spec: &ServiceSpec) -> bool {
    !service
        .labels()
        .contains_key("service.kubernetes.io/service-proxy-name")
        && spec.internal_traffic_policy.as_deref() != Some("Local")
}

fn matches(selector: &BTreeMap<String, String>, pod: &Pod) -> bool {
    selector
        .iter()
        .all(|(key, value)| pod.labels().get(key) == Some(value))
}

/// Whether the pod is Ready and stays.
pub(super) fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && evidence::is_ready(pod)
}

fn owns(service: &Service, slice: &EndpointSlice) -> bool {
    slice.namespace() == service.namespace()
        && slice.labels().get("kubernetes.io/service-name") == Some(&service.name_any())
}

/// The ready endpoints of a Service.
#[derive(Default)]
struct Endpoints<'a> {
    addresses: BTreeSet<&'a str>,
    /// One for each address and port.
    targets: BTreeSet<String>,
}

impl<'a> Endpoints<'a> {
    fn of(slices: impl Iterator<Item = &'a EndpointSlice>) -> Self {
        let mut all = Self::default();
        for slice in slices {
            let addresses: Vec<&str> = endpoints::ready(slice).collect();
            for port in slice.ports.iter().flatten().filter_map(|port| port.port) {
                let target = |address: &&str| match slice.address_type.as_str() {
                    "IPv6" => format!("--to-destination [{address}]:{port}"),
                    _ => format!("--to-destination {address}:{port}"),
                };
                all.targets.extend(addresses.iter().map(target));
            }
            all.addresses.extend(addresses);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_tells_the_same_whether_written_or_saved() {
        let written = "-A KUBE-SERVICES -m comment --comment \"test/nginx:http cluster IP\" -m tcp \
                       -p tcp -d 10.96.10.10 --dport 80 -j KUBE-SVC-IU46S4VZFN77LK6S";
        let saved = "-A KUBE-SERVICES -d 10.96.10.10/32 -p tcp -m comment --comment \
                     \"test/nginx:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-IU46S4VZFN77LK6S";
        assert_eq!(telling(written).as_deref(), Some("-d 10.96.10.10"));
        assert_eq!(telling(written), telling(saved));
        let dnat = "-A KUBE-SEP-X -p tcp -m tcp -j DNAT --to-destination 10.20.10.127:80";
        assert_eq!(
            telling(dnat).as_deref(),
            Some("--to-destination 10.20.10.127:80")
        );
        let written = "-A KUBE-SERVICES -m tcp -p tcp -d fd00:10:96::a --dport 80 -j KUBE-SVC-X";
        let saved = "-A KUBE-SERVICES -d fd00:10:96::a/128 -p tcp -m tcp --dport 80 -j KUBE-SVC-X";
        assert_eq!(telling(written).as_deref(), Some("-d fd00:10:96::a"));
        assert_eq!(telling(written), telling(saved));
        let felix = "-m comment --comment \"cali:O3lYWMrLQYEMJtB5\" ";
        for jump in ["-j", "--jump"] {
            let rule = format!("-A POSTROUTING {felix}{jump} cali-POSTROUTING");
            assert_eq!(telling(&rule).as_deref(), Some("-j cali-POSTROUTING"));
        }
        assert_eq!(telling(":cali-POSTROUTING - [0:0]"), None);
    }

    #[test]
    fn a_table_of_nftables_mode_tells_the_same() {
        let all = |line: &str| tellings(line).collect::<Vec<_>>();
        let chain = "goto service-3DQLO4TQ-test/nginx/tcp/http";
        for line in [
            format!("add element ip kube-proxy service-ips {{ 10.96.10.10 . tcp . 80 : {chain} }}"),
            format!("elements = {{ 10.96.10.10 . tcp . 80 : {chain},"),
            format!("\t      10.96.10.10 . tcp . 80 : {chain} }}"),
        ] {
            assert_eq!(all(&line), ["-d 10.96.10.10"], "{line}");
        }
        let refused = "{ 10.96.10.10 . tcp . 80 comment \"test/nginx\" : goto reject-chain }";
        assert_eq!(all(refused), [""; 0], "it leads nowhere");
        assert_eq!(
            all("\t\tmeta l4proto tcp dnat to 10.20.10.127:80"),
            ["--to-destination 10.20.10.127:80"]
        );
    }

    #[test]
    fn what_ipvs_lists_tells_the_same_in_both_families() {
        let listed = "IP Virtual Server version 1.2.1 (size=4096)\n\
            Prot LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n\
            TCP  0A600A0A:0050 rr \n  -> 0A140A7F:0050      Masq    1      0          0         \n\
            UDP  [fd00:0010:0096:0000:0000:0000:0000:000a]:0035 rr \n\
            \x20 -> [fd00:0000:0000:0000:0000:0000:0000:0001]:0035      Masq    1      0          0\n";
        let told: Vec<String> = listed.lines().flat_map(tellings).collect();
        assert_eq!(
            told,
            [
                "-d 10.96.10.10",
                "--to-destination 10.20.10.127:80",
                "-d fd00:10:96::a",
                "--to-destination [fd00::1]:53"
            ]
        );
    }

    #[test]
    fn felix_tells_the_same_in_a_table_of_its_own() {
        let jump = "counter packets 799 bytes 47940 jump nat-cali-POSTROUTING comment \"cali:z057H0Z77Fcko47w;\"";
        let told: Vec<String> = tellings(jump).collect();
        assert_eq!(told, ["-j cali-POSTROUTING"]);
        let other = jump.replace("nat-", "mangle-");
        assert_eq!(tellings(&other).count(), 0, "{other}");
    }

    #[test]
    fn a_map_of_endpoints_tells_of_each_whether_written_or_listed() {
        let all = |line: &str| tellings(line).collect::<Vec<_>>();
        let both = [
            "--to-destination 10.20.1.2:80",
            "--to-destination 10.20.1.3:8080",
        ];
        for map in [
            "dnat ip addr . port to numgen random mod 2 map { 0 : 10.20.1.2 . 80 , 1 : 10.20.1.3 . 8080 }",
            "dnat ip to numgen random mod 2 map { 0 : 10.20.1.2 . 80, 1 : 10.20.1.3 . 8080 }",
        ] {
            assert_eq!(all(&format!("\t\tmeta l4proto tcp {map}")), both);
        }
        assert_eq!(
            all("meta l4proto tcp dnat ip6 to numgen random mod 1 map { 0 : fd00::1 . 80 }"),
            ["--to-destination [fd00::1]:80"]
        );
        assert_eq!(
            all("numgen random mod 1 vmap { 0 : goto endpoint-A-a/b/tcp/__10.20.1.2/80 }"),
            [""; 0],
            "this leads to a chain"
        );
    }
}
