//! kube-proxy's table of nftables.

use std::collections::BTreeSet;

use chainbreak_model::case::Symptom;
use chainbreak_netfilter::{names::PortName, nft::NftTable};

use super::{Context, first_of};
use crate::{
    Finding,
    reproduction::{Made, Mends},
    services,
};

/// Its chains that hooks lead to (1.31 to 1.36).
const HOOKED: [&str; 2] = ["nat-prerouting", "nat-output"];

fn again(family: &str) -> String {
    format!(
        "a restart of kube-proxy, after `nft delete table {family} kube-proxy`, writes everything of that family again"
    )
}

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    context.nftables().flat_map(of).collect()
}

fn of(table: &NftTable) -> Vec<Finding> {
    let mut findings = Vec::new();
    let family = &table.family;
    // A map or a set alone, or a listing without elements (`nft -t`).
    if table.table.chains.is_empty() || table.sets.values().all(Vec::is_empty) {
        return findings;
    }
    let gone = HOOKED
        .iter()
        .filter(|chain| !table.table.chains.contains_key(**chain));
    let gone: Vec<String> = gone
        .map(|chain| format!("chain {chain} is not there"))
        .collect();
    if !gone.is_empty() {
        let what = format!(
            "table {family} kube-proxy lacks chains that the kernel calls: no service is led anywhere"
        );
        findings.push(
            Finding::breaks(Symptom::ChainsMissing, what)
                .on(gone)
                .mended_by(again(family)),
        );
    }
    let led = services::of_nftables(table);
    let names: BTreeSet<&str> = led.iter().map(|it| it.name.as_str()).collect();
    let refused = names_refused(table);
    // The chain of a service that is gone is empty until a later sync deletes it.
    let chains = table.table.chains.iter();
    let chains =
        chains.filter(|(name, chain)| name.starts_with("service-") && !chain.rules.is_empty());
    let named = chains.filter_map(|(name, _)| PortName::of_nftables_chain(name));
    let named = named.map(|it| it.to_string());
    // An external policy's chain is another's element; what is refused needs none.
    let lost: BTreeSet<String> = named
        .filter(|name| !names.contains(name.as_str()) && !refused.contains(name))
        .collect();
    if !lost.is_empty() {
        let what = format!(
            "table {family} kube-proxy has chains of services and no element of service-ips that leads to them: packets to these services pass untranslated"
        );
        findings.push(
            Finding::breaks(Symptom::ElementsMissing, what)
                .on(first_of(lost))
                .mended_by(again(family))
                .made_by(emptied(family)),
        );
    }
    let dead = services::nowhere(led);
    if !dead.is_empty() {
        let what =
            format!("table {family} kube-proxy leads requests into chains that lead nowhere");
        findings.push(
            Finding::breaks(Symptom::ServiceLeadsNowhere, what)
                .on(first_of(dead))
                .mended_by(again(family)),
        );
    }
    findings
}

/// What empties the map, in a cluster of IPv4.
fn emptied(family: &str) -> Option<Made> {
    let command = "nft flush map ip kube-proxy service-ips";
    (family == "ip").then(|| Made {
        steps: vec![format!(
            "run: {{ at: node/n1, as: somebody, command: {command} }}"
        )],
        pods: true,
        node: true,
        mends: Some(Mends::Restart),
        ..Made::default()
    })
}

/// Services whose requests are rejected: their elements have the name as a comment.
fn names_refused(table: &NftTable) -> BTreeSet<String> {
    let elements = table
        .elements("no-endpoint-services")
        .unwrap_or_default()
        .iter();
    let comments = elements.filter_map(|element| {
        let (_, rest) = element.split_once("comment \"")?;
        Some(rest.split_once('"')?.0.to_owned())
    });
    comments.collect()
}

#[cfg(test)]
mod tests {
    use crate::checks::tests::{HEALTHY, evidence, found};

    #[test]
    fn elements_that_were_flushed_are_missed() {
        let listing = HEALTHY[3];
        let at = listing.find("map service-ips").unwrap();
        let (before, rest) = listing.split_at(at);
        let begin = rest.find("elements = {").unwrap();
        let end = rest.find('}').unwrap() + 1;
        let (kept, _) = rest.split_at(begin);
        let (_, after) = rest.split_at(end);
        let flushed = [before, kept, after].concat();
        let [(kind, text)] = found(&[&flushed]).try_into().unwrap();
        assert_eq!(kind, "elements-missing");
        assert!(text.contains("test/nginx:http"), "{text}");
    }

    #[test]
    fn a_table_without_the_chains_that_the_kernel_calls_is_found() {
        let cut = HEALTHY[3].replace("chain nat-prerouting {", "chain other {");
        assert_eq!(found(&[&cut])[0].0, "chains-missing");
    }

    #[test]
    fn a_part_of_a_listing_and_the_chain_of_a_service_that_is_gone_are_nothing() {
        let map = "table ip kube-proxy {\n\tmap service-ips {\n\t\telements = { 10.96.1.0 . tcp . 80 : goto service-3DQLO4TQ-test/nginx/tcp/http }\n\t}\n}\n";
        assert!(found(&[map]).is_empty(), "{:?}", found(&[map]));
        let gone = HEALTHY[3].replacen(
            "\tchain ",
            "\tchain service-ABCDEFGH-test/old/tcp/http {\n\t}\n\n\tchain ",
            1,
        );
        assert_ne!(gone, HEALTHY[3]);
        assert!(found(&[&gone]).is_empty(), "{:?}", found(&[&gone]));
    }

    #[test]
    fn what_mends_a_familys_table_leaves_the_other_familys_alone() {
        let v6 = HEALTHY[3]
            .replace("table ip kube-proxy", "table ip6 kube-proxy")
            .replace("chain nat-prerouting {", "chain other {");
        let findings = crate::examine(&evidence(&[&v6])).findings;
        assert!(
            findings[0]
                .mends
                .as_ref()
                .unwrap()
                .contains("nft delete table ip6 kube-proxy")
        );
    }
}
