//! The services that kube-proxy's rules know: where requests to them are led.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use chainbreak_netfilter::{Rule, names::PortName, nft::NftTable};

use crate::{Evidence, tables::Tables};

/// kube-proxy's comment of the rule for a service's own address.
pub(crate) const CLUSTER_IP: &str = " cluster IP";
/// What a rule's comment ends with that rejects.
pub(crate) const NO_ENDPOINTS: [&str; 2] = [" has no endpoints", " has no local endpoints"];

/// A service's port at its cluster IP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Led {
    /// `test/web:http`, as kube-proxy writes it.
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// `tcp`.
    pub(crate) protocol: String,
    pub(crate) port: u16,
    /// The chain that leads to its endpoints.
    pub(crate) chain: String,
    pub(crate) endpoints: BTreeSet<SocketAddr>,
}

/// Those that rules lead, in whichever mode.
pub(crate) fn all(tables: &[Tables], evidence: &Evidence) -> Vec<Led> {
    let of_iptables = tables.iter().flat_map(of_iptables);
    of_iptables
        .chain(nftables(evidence).flat_map(of_nftables))
        .collect()
}

/// kube-proxy's tables of nftables.
pub(crate) fn nftables(evidence: &Evidence) -> impl Iterator<Item = &NftTable> {
    let tables = evidence.dumps.nft_tables().iter();
    tables.filter(|table| table.name == "kube-proxy")
}

/// Those that rules of iptables lead.
pub(crate) fn of_iptables(tables: &Tables) -> Vec<Led> {
    let mut known: BTreeMap<String, BTreeSet<SocketAddr>> = BTreeMap::new();
    let rules = tables.rules("nat", "KUBE-SERVICES").iter();
    let led = rules.filter_map(|rule| {
        let comment = rule.comment()?;
        let name = comment.strip_suffix(CLUSTER_IP)?.to_owned();
        let chain = rule.target()?.into_owned();
        // Until 1.21 a rule that marks for masquerading stands before it.
        hash(&chain)
            .and_then(|_| endpoint(rule))
            .map(|(address, protocol, port)| Led {
                endpoints: known
                    .entry(chain.clone())
                    .or_insert_with(|| endpoints(tables, &chain))
                    .clone(),
                name,
                address,
                protocol,
                port,
                chain,
            })
    });
    led.collect()
}

/// What its chains share behind their prefixes, by the name of one that leads a port's cluster IP.
pub(crate) fn hash(chain: &str) -> Option<&str> {
    let prefixes = ["KUBE-SVC-", "KUBE-SVL-"];
    prefixes.iter().find_map(|it| chain.strip_prefix(it))
}

/// Those of them that are led to no endpoint, in words.
pub(crate) fn nowhere(led: Vec<Led>) -> Vec<String> {
    let dead = led.into_iter().filter(|it| it.endpoints.is_empty());
    dead.map(|it| format!("{}: chain {} leads to no endpoint", it.name, it.chain))
        .collect()
}

/// The services that rules of iptables reject because they have no endpoints.
pub(crate) fn rejected(tables: &Tables) -> BTreeSet<String> {
    let rules = tables.rules("filter", "KUBE-SERVICES").iter();
    let names = rules.filter_map(|rule| {
        let comment = rule.comment()?;
        let name = NO_ENDPOINTS
            .iter()
            .find_map(|it| comment.strip_suffix(it))?;
        Some(name.to_owned())
    });
    names.collect()
}

/// Where a rule's packets go: address, protocol, port.
pub(crate) fn endpoint(rule: &Rule) -> Option<(IpAddr, String, u16)> {
    let address = rule.value(&["-d", "--destination"])?;
    let address = address.split('/').next()?.parse().ok()?;
    let protocol = rule.value(&["-p", "--protocol"])?.into_owned();
    let port = rule
        .value(&["--dport", "--destination-port"])?
        .parse()
        .ok()?;
    Some((address, protocol, port))
}

/// The endpoints to which a service's chain leads.
fn endpoints(tables: &Tables, chain: &str) -> BTreeSet<SocketAddr> {
    let jumps = tables.rules("nat", chain).iter().filter_map(Rule::target);
    let to = jumps.filter(|target| target.starts_with("KUBE-SEP-"));
    let to = to.flat_map(|target| destinations(tables.rules("nat", &target)).collect::<Vec<_>>());
    to.collect()
}

fn destinations(rules: &[Rule]) -> impl Iterator<Item = SocketAddr> {
    let to = rules
        .iter()
        .filter_map(|rule| rule.value(&["--to-destination"]));
    to.filter_map(|to| to.parse().ok())
}

/// Those that elements of kube-proxy's table of nftables lead: `10.96.1.0 . tcp . 80 : goto service-3DQLO4TQ-test/nginx/tcp/http`.
pub(crate) fn of_nftables(table: &NftTable) -> Vec<Led> {
    let mut known: BTreeMap<String, BTreeSet<SocketAddr>> = BTreeMap::new();
    let elements = table.elements("service-ips").unwrap_or_default().iter();
    let led = elements.filter_map(|element| {
        let (key, verdict) = element.split_once(" : ")?;
        let mut parts = key.split(" . ").map(str::trim);
        let (address, protocol, port) = (parts.next()?, parts.next()?, parts.next()?);
        let port = port.split_whitespace().next()?.parse().ok()?;
        let chain = verdict.split_whitespace().nth(1)?.to_owned();
        let name = PortName::of_nftables_chain(&chain)?.to_string();
        Some(Led {
            endpoints: known
                .entry(chain.clone())
                .or_insert_with(|| endpoints_of_nftables(table, &chain))
                .clone(),
            name,
            address: address.parse().ok()?,
            protocol: protocol.to_owned(),
            port,
            chain,
        })
    });
    led.collect()
}

/// The endpoints that a service's chain leads to: until 1.35 by chains of their own, whose names have them
/// (`endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80`), from 1.36 on as elements of a map (`0 : 10.20.1.2 . 80`).
fn endpoints_of_nftables(table: &NftTable, chain: &str) -> BTreeSet<SocketAddr> {
    let (mut endpoints, mut seen) = (BTreeSet::new(), BTreeSet::from([chain]));
    let mut open = vec![chain];
    while let Some(chain) = open.pop() {
        for rule in table
            .table
            .chains
            .get(chain)
            .into_iter()
            .flat_map(|it| &it.rules)
        {
            let parts = rule.text.split([',', '{', '}']);
            endpoints.extend(parts.filter_map(|part| of_chain(part).or_else(|| of_element(part))));
            // What comes from outside passes a chain of its own.
            let leads_on = ["service-", "local-", "external-"];
            let words = rule.text.split_whitespace();
            let further = words.filter(|word| leads_on.iter().any(|it| word.starts_with(it)));
            open.extend(further.filter(|word| seen.insert(*word)));
        }
    }
    endpoints
}

fn of_chain(part: &str) -> Option<SocketAddr> {
    let name = part
        .split_whitespace()
        .find(|word| word.starts_with("endpoint-"))?;
    let (ip, port) = name.split_once("__")?.1.split_once('/')?;
    // Of IPv6 the colons are dots.
    let ip = ip.parse().or_else(|_| ip.replace('.', ":").parse()).ok()?;
    Some(SocketAddr::new(ip, port.parse().ok()?))
}

fn of_element(part: &str) -> Option<SocketAddr> {
    let (ip, port) = part.split_once(" : ")?.1.split_once(" . ")?;
    Some(SocketAddr::new(
        ip.trim().parse().ok()?,
        port.trim().parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use chainbreak_netfilter::dumps::Dumps;

    use super::*;

    fn told(led: &[Led]) -> Vec<String> {
        let told = led.iter().map(|it| {
            let endpoints: Vec<String> = it.endpoints.iter().map(ToString::to_string).collect();
            format!(
                "{} {} {} {} → {}",
                it.name,
                it.address,
                it.protocol,
                it.port,
                endpoints.join(" ")
            )
        });
        told.collect()
    }

    #[test]
    fn where_requests_are_led_is_read_from_rules_of_kube_proxy() {
        let mut evidence = Evidence::default();
        let save = include_str!("../../netfilter/tests/data/kube-proxy.save");
        evidence.add(save).unwrap();
        let [tables] = Tables::of(&evidence).try_into().unwrap();
        let led = of_iptables(&tables);
        assert!(
            !led.is_empty() && led.iter().all(|it| !it.endpoints.is_empty()),
            "{led:?}"
        );
        assert!(
            told(&led)
                .iter()
                .any(|it| it.starts_with("test/nginx:http ")),
            "{led:?}"
        );
    }

    #[test]
    fn where_requests_are_led_is_read_from_tables_of_nftables() {
        let mut dumps = Dumps::default();
        dumps
            .add(include_str!(
                "../../netfilter/tests/data/kube-proxy-1.36.1.nft"
            ))
            .unwrap();
        let table = dumps
            .nft_tables()
            .iter()
            .find(|it| it.name == "kube-proxy")
            .unwrap();
        let led = of_nftables(table);
        assert!(!led.is_empty(), "{table:?}");
        assert!(
            led.iter().all(|it| !it.endpoints.is_empty()),
            "{:?}",
            told(&led)
        );
    }
}
