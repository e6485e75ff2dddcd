//! What does not fit together in what was attached.

mod backends;
mod begun;
mod endpoints;
mod felix;
mod interface;
mod jumps;
mod kernel;
mod known;
pub(crate) mod logged;
mod nat_map;
mod nftables;
mod stale;

pub use begun::last_beginning;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use chainbreak_model::{case::Symptom, names::AgentName};
use chainbreak_netfilter::{
    dumps::{At, Backends},
    nft::NftTable,
};

use crate::{
    Complaint, Evidence, Finding,
    services::{self, Led},
    tables::Tables,
};

/// What every check asks.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) evidence: &'a Evidence,
    pub(crate) tables: Vec<Tables>,
    /// Where kube-proxy's rules lead requests, in whichever mode.
    pub(crate) led: Vec<Led>,
    /// Where Felix's programs lead them.
    pub(crate) nat_map: Cow<'a, BTreeMap<At, Backends>>,
    /// Whether Felix is in eBPF mode: by its rules, its map, or by what the API holds.
    pub(crate) ebpf: bool,
}

impl<'a> Context<'a> {
    fn of(evidence: &'a Evidence) -> Self {
        let tables = Tables::of(evidence);
        let configuration = evidence.objects.felix_configuration();
        let nat_map = crate::nat_map::of(&evidence.dumps);
        Self {
            evidence,
            led: services::all(&tables, evidence),
            ebpf: !nat_map.is_empty()
                || tables.iter().any(|it| it.ruleset.is_beside_ebpf())
                || configuration.is_some_and(|spec| spec["bpfEnabled"] == true),
            tables,
            nat_map,
        }
    }

    /// kube-proxy's tables of nftables.
    pub(crate) fn nftables(&self) -> impl Iterator<Item = &'a NftTable> + use<'a> {
        services::nftables(self.evidence)
    }
}

/// What was attached comes to.
#[derive(Debug)]
pub struct Examined {
    /// What does not fit together, what breaks something first.
    pub findings: Vec<Finding>,
    /// What agents complained of beside that, from which nothing follows: agents that do their work complain, too.
    pub complaints: Vec<Complaint>,
}

/// Looks for all that is known to mean something.
pub fn examine(evidence: &Evidence) -> Examined {
    let context = Context::of(evidence);
    let checks: [fn(&Context<'_>) -> Vec<Finding>; 11] = [
        nat_map::check,
        jumps::check,
        nftables::check,
        backends::check,
        endpoints::check,
        stale::check,
        felix::check,
        begun::check,
        interface::check,
        kernel::check,
        known::check,
    ];
    let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(&context)).collect();
    findings.sort_by_key(|finding| finding.weight);
    let made_good = if rules_are_whole(&context, &findings) {
        findings.drain(..).map(Complaint::from).collect()
    } else {
        Vec::new()
    };
    let unknown = logged::complaints(evidence);
    Examined {
        findings,
        complaints: made_good.into_iter().chain(unknown).collect(),
    }
}

/// Whether nothing is found but restores that failed, after which the log goes on, and rules lead as the API wants it, so that later ones made up
/// for them: those of each family that an entry names lead some Service whose endpoints are known.
fn rules_are_whole(context: &Context<'_>, findings: &[Finding]) -> bool {
    let Some(endpoints) = context.evidence.objects.endpoints() else {
        return false;
    };
    let known: BTreeSet<String> = endpoints.keys().map(ToString::to_string).collect();
    let compared = |is_v6: bool| {
        let mut led = context.led.iter();
        led.any(|it| it.address.is_ipv6() == is_v6 && known.contains(&it.name))
    };
    let log = context.evidence.log(AgentName::KubeProxy);
    let failed = log.and_then(known::failed_restores);
    let are_all = findings.iter().all(|it| it.kind == Symptom::RestoreFails);
    are_all && failed.is_some_and(|failed| failed.into_iter().all(compared))
}

/// The first of many, and how many more there are.
pub(crate) fn first_of(all: impl IntoIterator<Item = String>) -> Vec<String> {
    const TOLD: usize = 5;
    let all: Vec<String> = all.into_iter().collect();
    let more = all.len().saturating_sub(TOLD);
    let mut told: Vec<String> = all.into_iter().take(TOLD).collect();
    if more > 0 {
        told.push(format!("… and {more} more"));
    }
    told
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What was attached, each text of which is known.
    pub(crate) fn evidence(texts: &[&str]) -> Evidence {
        let mut evidence = Evidence::default();
        for text in texts {
            assert!(evidence.add(text).unwrap(), "{text}");
        }
        evidence
    }

    /// What is found in these texts: kinds, and the lines.
    pub(crate) fn found(texts: &[&str]) -> Vec<(String, String)> {
        let findings = examine(&evidence(texts)).findings.into_iter();
        let told = findings.map(|it| {
            let lines: Vec<String> = [it.what].into_iter().chain(it.evidence).collect();
            (it.kind.to_string(), lines.join("\n"))
        });
        told.collect()
    }

    /// What agents complain of in these texts beside that.
    pub(crate) fn complaints(texts: &[&str]) -> Vec<Complaint> {
        examine(&evidence(texts)).complaints
    }

    /// Their kinds.
    pub(crate) fn kinds(texts: &[&str]) -> Vec<String> {
        found(texts).into_iter().map(|(kind, _)| kind).collect()
    }

    /// A Service with an address and a port (its name, its number, and that of its pods), and the slice of its endpoints.
    pub(crate) fn service(
        (namespace, name): (&str, &str),
        address: &str,
        (named, number, target): (&str, u16, u16),
        endpoints: &[&str],
    ) -> [Value; 2] {
        let endpoints = endpoints.iter().map(|ip| json!({ "addresses": [ip] }));
        let endpoints: Vec<Value> = endpoints.collect();
        let labels = json!({ "kubernetes.io/service-name": name });
        [
            json!({
                "kind": "Service", "metadata": { "namespace": namespace, "name": name },
                "spec": { "clusterIP": address, "ports": [{ "name": named, "port": number }] }
            }),
            json!({
                "kind": "EndpointSlice", "metadata": { "namespace": namespace, "labels": labels },
                "ports": [{ "name": named, "port": target, "protocol": "TCP" }], "endpoints": endpoints
            }),
        ]
    }

    /// Rules without the lines in which all of these stand.
    pub(crate) fn without(save: &str, words: &[&str]) -> String {
        let kept = save
            .lines()
            .filter(|line| !words.iter().all(|it| line.contains(it)));
        let kept = kept.map(|line| format!("{line}\n"));
        kept.collect()
    }

    /// Rules of real agents with which nothing is wrong.
    pub(crate) const HEALTHY: [&str; 4] = [
        include_str!("../../netfilter/tests/data/kube-proxy.save"),
        include_str!("../../netfilter/tests/data/felix-3.28.1-with-kube-proxy-1.32.3.save"),
        include_str!("../../netfilter/tests/data/kube-proxy-1.35.4.nft"),
        include_str!("../../netfilter/tests/data/kube-proxy-1.36.1.nft"),
    ];

    #[test]
    fn nothing_is_found_in_rules_with_which_nothing_is_wrong() {
        for text in HEALTHY {
            assert!(found(&[text]).is_empty(), "{:?}", found(&[text]));
        }
    }
}
