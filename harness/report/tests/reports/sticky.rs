//! Rules that keep a client with its endpoint, and that they are not told where they keep nobody.

use crate::{
    history::{RESTORE, SVC, command},
    spared::answered_by_one,
};

/// What is said of requests that one endpoint answered alone, after kube-proxy wrote these rules of the service's chain.
fn said(rules: &str, at_us: u64) -> String {
    let nat = format!(
        "*nat\n:{SVC} - [0:0]\n{rules}-A {SVC} -j DNAT --to-destination 10.20.10.128:80\nCOMMIT\n"
    );
    answered_by_one(command("n2", at_us, "kube-proxy", &RESTORE, &nat))
}

fn remembers() -> String {
    format!(
        "-A {SVC} -m recent --name KUBE-SEP-A --rcheck --seconds 10800 --reap -j DNAT --to-destination 10.20.10.127:80\n"
    )
}

#[test]
fn a_rule_that_remembers_clients_is_told_with_who_wrote_it() {
    let said = said(&remembers(), 500_000);
    let told = "; kube-proxy's rules on n2 keep a client with the endpoint that it met first: nat KUBE-SVC-IU46S4VZFN77LK6S \
                -m recent --name KUBE-SEP-A --rcheck --seconds 10800";
    assert!(said.contains(told), "{said}");
}

/// As kube-proxy 1.36 writes it: a set of clients for each endpoint.
const SETS: &str = "\
add table ip kube-proxy
add set ip kube-proxy affinity-A { type ipv4_addr ; flags dynamic,timeout ; timeout 10800s ; }
add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -110 ; }
add chain ip kube-proxy endpoint-A
add rule ip kube-proxy endpoint-A update @affinity-A { ip saddr }
add rule ip kube-proxy endpoint-A dnat to 10.20.10.127:80
add rule ip kube-proxy nat-prerouting ip saddr @affinity-A goto endpoint-A
add rule ip kube-proxy nat-prerouting ip daddr 10.96.10.10 dnat to 10.20.10.128:80
";

#[test]
fn a_set_that_remembers_clients_is_told_with_who_made_its_rule() {
    let nft = command("n2", 500_000, "kube-proxy", &["nft", "-f", "-"], SETS);
    let said = answered_by_one(nft);
    let told = "; kube-proxy's rules on n2 keep a client with the endpoint that it met first: ip kube-proxy nat-prerouting \
                ip saddr @affinity-A";
    assert!(said.contains(told), "{said}");
}

#[test]
fn where_every_way_leads_to_one_endpoint_it_is_not_the_memory_that_does() {
    let said = said(&remembers().replace("10.127", "10.128"), 500_000);
    assert!(!said.contains("met first"), "{said}");
}

#[test]
fn rules_without_one_or_that_got_it_later_keep_nobody() {
    for said in [said("", 500_000), said(&remembers(), 1_200_000)] {
        assert!(said.starts_with("spreads broken: 20 answers"), "{said}");
        assert!(!said.contains("met first"), "{said}");
    }
}
