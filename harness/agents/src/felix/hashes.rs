//! Felix's names: the `cali:` id of a rule and the shortening of chain names. Both are bit-exact
//! (`felix/iptables/rules.go` and `felix/hashutils/id.go`, v3.28.1).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha224, Sha256};

use super::rule::Rule;

/// 16 characters of base64: 96 bits.
const ID_LENGTH: usize = 16;
/// The longest chain name that iptables takes.
const CHAIN_NAME_LENGTH: usize = 28;

/// The ids of a chain's rules. Each hash covers the one before it, so an id depends on the chain's
/// name, the rule's text and every rule above it.
pub(super) fn rule_ids(chain: &str, rules: &[Rule]) -> Vec<String> {
    let mut hash = Sha224::digest(chain.as_bytes());
    let verb = format!("-A {chain}");
    let id_of = |rule: &Rule| {
        hash = Sha224::new()
            .chain_update(hash)
            .chain_update(rule.render(&verb, "HASH"))
            .finalize();
        let mut id = URL_SAFE_NO_PAD.encode(hash);
        id.truncate(ID_LENGTH);
        id
    };
    rules.iter().map(id_of).collect()
}

/// Prefix and name, or, where that is too long for a chain, prefix, `_` and the start of the name's
/// hash. A name that just fits and begins with `_` is hashed too, so that it cannot be mistaken for one.
pub(super) fn chain_name(prefix: &str, name: &str) -> String {
    let length = prefix.len() + name.len();
    if length < CHAIN_NAME_LENGTH || (length == CHAIN_NAME_LENGTH && !name.starts_with('_')) {
        return format!("{prefix}{name}");
    }
    let mut hash = URL_SAFE_NO_PAD.encode(Sha256::digest(name.as_bytes()));
    hash.truncate(CHAIN_NAME_LENGTH - 1 - prefix.len());
    format!("{prefix}_{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_name_is_shortened_only_when_it_does_not_fit() {
        assert_eq!(
            chain_name("cali-tw-", "cali1234567890a"),
            "cali-tw-cali1234567890a"
        );
        let twenty = "abcdefghijklmnopqrst";
        assert_eq!(chain_name("cali-tw-", twenty), format!("cali-tw-{twenty}"));
        // The hash comes from `openssl dgst -sha256 -binary | base64 | tr '+/' '-_'`.
        assert_eq!(
            chain_name("cali-tw-", "abcdefghijklmnopqrstu"),
            "cali-tw-_JfYqWj1BTsbiCQfffzZ"
        );
        assert!(chain_name("cali-tw-", "_bcdefghijklmnopqrs").ends_with("-_bcdefghijklmnopqrs"));
        let could_be_a_hash = chain_name("cali-tw-", "_bcdefghijklmnopqrst");
        assert_ne!(could_be_a_hash, "cali-tw-_bcdefghijklmnopqrst");
        assert_eq!(could_be_a_hash.len(), 28);
    }

    #[test]
    fn the_kernel_chains_get_the_ids_that_public_dumps_show() {
        let jump = |to: &str| vec![Rule::jump(to)];
        let first = |chain: &str, rules: Vec<Rule>| rule_ids(chain, &rules)[0].clone();
        assert_eq!(first("FORWARD", jump("cali-FORWARD")), "wUHhoiAYhphO9Mso");
        assert_eq!(first("INPUT", jump("cali-INPUT")), "Cz_u1IQiXIMmKD4c");
        assert_eq!(first("OUTPUT", jump("cali-OUTPUT")), "tVnHkvAo15HuiPy0");
        assert_eq!(
            first("PREROUTING", jump("cali-PREROUTING")),
            "6gwbT8clXdHdC1b1"
        );
        assert_eq!(
            first("POSTROUTING", jump("cali-POSTROUTING")),
            "O3lYWMrLQYEMJtB5"
        );
        let appended = first("POSTROUTING*appends*", jump("cali-POSTROUTING"));
        assert_eq!(appended, "0i8pjzKKPyA34aQD");
    }

    #[test]
    fn the_failsafe_chain_has_the_ids_that_public_dumps_show() {
        let port = |proto: &str, port: u16| {
            Rule::then("ACCEPT")
                .when(format!("-p {proto}"))
                .when(format!("-m multiport --destination-ports {port}"))
        };
        let ports = [
            ("tcp", 22),
            ("udp", 68),
            ("tcp", 179),
            ("tcp", 2379),
            ("tcp", 2380),
        ];
        let rules: Vec<Rule> = ports
            .iter()
            .map(|&(proto, number)| port(proto, number))
            .collect();
        let ids = rule_ids("cali-failsafe-in", &rules);
        let public = [
            "LwNV--R8MjeUYacw",
            "QOO5NUOqOSS1_Iw0",
            "cwZWoBSwVeIAZmVN",
            "7FbNXT91kugE_upR",
        ];
        assert_eq!(ids[1..], public);
    }
}
