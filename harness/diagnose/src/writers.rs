//! Who wrote the rules of a node, in which mode and by which releases.

use chainbreak_model::names::AgentName;
use chainbreak_netfilter::{Owner, Rule, nft::NftTable, replay::Backend};
use serde::Serialize;

use crate::{
    Evidence,
    logs::Log,
    services,
    tables::{KubeProxy, Tables},
};

/// Somebody who has rules here, or says something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Writer {
    /// Who: `kube-proxy`, `felix`, or a program that is known by its chains.
    pub who: String,
    /// What is known of it, in words.
    pub what: String,
}

/// So much of FelixConfiguration is told.
const SHOWN: usize = 400;

/// Programs that are known by what their chains are called, beside those that have an [`Owner`].
const OTHERS: [(&str, &str); 10] = [
    ("DOCKER", "Docker"),
    ("CNI-", "portmap or another CNI plugin"),
    ("KUBE-ROUTER-", "kube-router"),
    ("AWS-", "the AWS VPC CNI"),
    ("ISTIO_", "Istio"),
    ("CILIUM_", "Cilium"),
    ("OLD_CILIUM_", "Cilium, before an update"),
    ("FLANNEL-", "Flannel"),
    ("ufw-", "ufw"),
    ("f2b-", "fail2ban"),
];

/// Whoever wrote rules, then what logs and objects say of versions and settings.
pub fn writers(evidence: &Evidence) -> Vec<Writer> {
    let all = Tables::of(evidence);
    let mut writers: Vec<Writer> = all.iter().flat_map(of_iptables).collect();
    writers.extend(of_nftables(evidence, &all));
    writers.extend(evidence.logs.iter().filter_map(of_log));
    let versions = evidence.objects.versions().into_iter();
    writers
        .extend(versions.map(|(who, version)| writer(who, format!("{version}, as objects say"))));
    if let Some(spec) = evidence.objects.felix_configuration() {
        let spec: String = spec.to_string().chars().take(SHOWN).collect();
        writers.push(writer("felix", format!("FelixConfiguration {spec}")));
    }
    writers
}

fn writer(who: impl Into<String>, what: impl Into<String>) -> Writer {
    let (who, what) = (who.into(), what.into());
    Writer { who, what }
}

fn of_iptables(tables: &Tables) -> Vec<Writer> {
    let mut writers = Vec::new();
    match tables.kube_proxy() {
        KubeProxy::Iptables => writers.push(writer("kube-proxy", in_iptables_mode(tables))),
        KubeProxy::Ipvs => writers.push(writer(
            "kube-proxy",
            format!("ipvs mode ({tables}), which is not judged"),
        )),
        KubeProxy::Canary => writers.push(writer(
            "kube-proxy",
            format!("its canary, and no chain of a service ({tables})"),
        )),
        KubeProxy::None => {}
    }
    if tables.has_felix() {
        let mode = if tables.ruleset.is_beside_ebpf() {
            "eBPF mode's own rules"
        } else {
            "rules"
        };
        writers.push(writer("felix", format!("{mode} ({tables})")));
    }
    for (prefix, who) in OTHERS {
        let chains = tables
            .chains()
            .filter(|(_, name, _)| name.starts_with(prefix))
            .count();
        if chains > 0 {
            writers.push(writer(who, format!("{chains} chains ({tables})")));
        }
    }
    writers
}

fn in_iptables_mode(tables: &Tables) -> String {
    let mut parts = vec![format!("iptables mode ({tables})")];
    if tables.ruleset.tables.contains_key("nat") {
        let led = services::of_iptables(tables).len();
        let rejected = services::rejected(tables).len();
        parts.push(format!("{}, {rejected} rejected", ports_led(led)));
    } else {
        parts.push("nat was not attached, or not whole".to_owned());
    }
    parts.extend(layout(tables).map(|it| format!("laid out as {it}")));
    parts.join(", ")
}

fn ports_led(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} port{plural} of services led")
}

/// A release of kube-proxy that lays out its rules like these.
pub(crate) fn release(tables: &Tables) -> Option<&'static str> {
    let known = [
        ("1.31", "1.32"),
        ("1.25", "1.28"),
        ("1.21", "1.23"),
        ("1.24", "1.24"),
        ("1.23", "1.23"),
        ("1.20", "1.20"),
    ];
    let layout = layout(tables)?;
    let mut known = known.iter().filter(|(first, _)| layout.starts_with(first));
    known.next().map(|(_, release)| *release)
}

/// The releases of kube-proxy that lay out their rules like these (1.20 to 1.36, proxier.go; docs/real-agents.md has each by its source).
fn layout(tables: &Tables) -> Option<&'static str> {
    // Which it is stands in filter.
    tables.ruleset.tables.get("filter")?;
    let begins = |prefix: &str| tables.chains().any(|(_, name, _)| name.starts_with(prefix));
    let counts = |rule: &Rule| rule.text.contains("--nfacct-name");
    let is_counted = tables.rules("filter", "KUBE-FORWARD").iter().any(counts);
    Some(if is_counted {
        "1.31 and later do"
    } else if tables.chain("filter", "KUBE-PROXY-FIREWALL").is_some() {
        "1.25 and later do"
    } else if begins("KUBE-XLB-") {
        "1.23 and earlier do"
    } else if begins("KUBE-EXT-") || begins("KUBE-SVL-") {
        "1.24 does"
    } else if tables.chain("filter", "KUBE-NODEPORTS").is_some() {
        "1.21 to 1.24 do"
    } else if tables.chain("nat", "KUBE-SERVICES").is_some()
        && tables.chain("filter", "KUBE-SERVICES").is_some()
    {
        "1.20 and earlier do"
    } else {
        return None;
    })
}

fn of_nftables(evidence: &Evidence, all: &[Tables]) -> Vec<Writer> {
    let is_unread = |table: &NftTable| {
        let mut of_its = all.iter().filter(|it| it.backend != Some(Backend::Legacy));
        is_of_agents(table) && !of_its.any(|it| it.has(table))
    };
    let tables = evidence.dumps.nft_tables().iter();
    let told = tables.filter_map(|table| match table.name.as_str() {
        "kube-proxy" => {
            let led = services::of_nftables(table).len();
            let (family, led) = (&table.family, ports_led(led));
            let text = format!("nftables mode (table {family} kube-proxy): {led}");
            Some(writer("kube-proxy", text))
        }
        "calico" => Some(writer(
            "felix",
            format!("nftables mode (table {} calico)", table.family),
        )),
        "nat" | "filter" | "mangle" | "raw" if is_unread(table) => Some(writer(
            "iptables-nft",
            format!(
                "rules of kube-proxy or Felix in table {} {}, which are not judged: attach `iptables-save -c`",
                table.family, table.name
            ),
        )),
        "firewalld" => Some(writer(
            "firewalld",
            format!("table {} firewalld", table.family),
        )),
        _ => None,
    });
    told.collect()
}

/// Whether a table of nft has chains of kube-proxy or Felix.
fn is_of_agents(table: &NftTable) -> bool {
    let mut chains = table.table.chains.keys();
    chains.any(|name| matches!(Owner::of_chain(name), Owner::KubeProxy | Owner::Felix))
}

/// What a log says of its version.
fn of_log(log: &Log) -> Option<Writer> {
    let mark = match log.agent {
        AgentName::KubeProxy => ["\"Version info\" version=\"", "Version: "],
        AgentName::Felix => [" version=\"", "felix version="],
    };
    let said = log.entries.iter().find_map(|entry| {
        let (_, rest) = mark.iter().find_map(|it| entry.split_once(it))?;
        let mut words = rest.split([' ', '"', '=', ',']);
        words
            .find(|word| word.starts_with('v') && word.contains('.'))
            .map(str::to_owned)
    });
    Some(writer(
        log.agent.as_str(),
        format!("{}, as its log says", said?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(texts: &[&str]) -> Vec<String> {
        let mut evidence = Evidence::default();
        for text in texts {
            evidence.add(text).unwrap();
        }
        let told = writers(&evidence)
            .into_iter()
            .map(|it| format!("{}: {}", it.who, it.what));
        told.collect()
    }

    #[test]
    fn who_wrote_the_rules_of_real_agents_is_known_with_mode_and_layout() {
        let both = told(&[include_str!(
            "../../netfilter/tests/data/felix-3.28.1-with-kube-proxy-1.32.3.save"
        )]);
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(
            both[0].starts_with("kube-proxy: iptables mode (")
                && both[0].contains("laid out as 1."),
            "{both:?}"
        );
        assert!(both[1].starts_with("felix: rules ("), "{both:?}");
        let ebpf = told(&[include_str!(
            "../../netfilter/tests/data/felix-3.28.1-ebpf.save"
        )]);
        assert!(
            ebpf.iter()
                .any(|it| it.starts_with("felix: eBPF mode's own rules")),
            "{ebpf:?}"
        );
        let nft = told(&[include_str!(
            "../../netfilter/tests/data/kube-proxy-1.36.1.nft"
        )]);
        assert!(
            nft[0].starts_with("kube-proxy: nftables mode (table ip kube-proxy): "),
            "{nft:?}"
        );
    }

    #[test]
    fn what_logs_and_objects_say_of_versions_is_told() {
        let log = "I1121 06:30:05.0 1 server.go:1] \"Version info\" version=\"v1.32.3\"\nI1121 06:30:05.0 1 proxier.go:1] x\n";
        let pod = r#"{"kind": "Pod", "spec": {"containers": [{"image": "calico/node:v3.28.1"}]}}"#;
        assert_eq!(
            told(&[log, pod]),
            [
                "kube-proxy: v1.32.3, as its log says",
                "calico: v3.28.1, as objects say"
            ]
        );
    }
}
