//! Rules of iptables' nft front end as nft prints them: kube-proxy's comments, which nft leaves out, are said anew where the rules and the API's
//! objects tell what they were.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use chainbreak_netfilter::{Rule, Ruleset, names::PortName};

use crate::{Evidence, objects::ServicePort, services, tables::Tables};

/// Those that no save has.
pub(crate) fn tables(evidence: &Evidence) -> impl Iterator<Item = Tables> {
    let ports = Ports::of(evidence);
    evidence.dumps.printed().iter().map(move |save| {
        let mut ruleset = save.ruleset.clone();
        say(&mut ruleset, "nat", |rule| ports.led(rule));
        say(&mut ruleset, "filter", |rule| ports.refused(rule));
        Tables {
            family: save.family,
            backend: save.backend,
            ruleset,
            is_printed: true,
        }
    })
}

/// Has the rules of a table's KUBE-SERVICES say what they are about.
fn say(ruleset: &mut Ruleset, table: &str, about: impl Fn(&Rule) -> Option<String>) {
    let table = ruleset.tables.get_mut(table);
    let chain = table.and_then(|table| table.chains.get_mut("KUBE-SERVICES"));
    for rule in chain.into_iter().flat_map(|chain| &mut chain.rules) {
        if let Some(comment) = about(rule) {
            rule.text = format!("-m comment --comment \"{comment}\" {}", rule.text);
        }
    }
}

/// What the API's objects call the ports of services.
struct Ports {
    /// By what the names of its chains end with.
    by_chain: BTreeMap<String, ServicePort>,
    /// By address, protocol and port.
    by_address: BTreeMap<(IpAddr, String, u16), PortName>,
}

impl Ports {
    fn of(evidence: &Evidence) -> Self {
        let (mut by_chain, mut by_address) = (BTreeMap::new(), BTreeMap::new());
        for port in evidence.objects.services() {
            for address in &port.addresses {
                let protocol = port.name.protocol.to_string();
                by_address.insert((*address, protocol, port.port), port.name.clone());
            }
            by_chain.insert(port.name.hash(), port);
        }
        Self {
            by_chain,
            by_address,
        }
    }

    /// Of the rule that leads a port's cluster IP. By its chain's name is told which port it is; else it has that name.
    fn led(&self, rule: &Rule) -> Option<String> {
        let chain = rule.target()?;
        let hash = services::hash(&chain)?;
        let (address, ..) = services::endpoint(rule)?;
        let name = match self.by_chain.get(hash) {
            // At another address that it has, the comment is another one.
            Some(port) if !port.addresses.contains(&address) => return None,
            Some(port) => port.name.to_string(),
            None => chain.to_string(),
        };
        Some(format!("{name}{}", services::CLUSTER_IP))
    }

    /// Of the rule that refuses what is asked of a port without endpoints.
    fn refused(&self, rule: &Rule) -> Option<String> {
        let why = match &*rule.target()? {
            "REJECT" => services::NO_ENDPOINTS[0],
            "DROP" => services::NO_ENDPOINTS[1],
            _ => return None,
        };
        let at = services::endpoint(rule)?;
        let name = self.by_address.get(&at).map(ToString::to_string);
        let name = name.unwrap_or_else(|| {
            let (address, protocol, port) = at;
            format!("{}/{protocol}", SocketAddr::new(address, port))
        });
        Some(format!("{name}{why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::tests::{found, kinds, service, without},
        writers,
    };

    /// Real rules of kube-proxy and Felix, as nft 1.0.6 printed them.
    const PRINTED: &str =
        include_str!("../../netfilter/tests/data/printed/felix-3.28.1-with-kube-proxy-1.32.3.nft");
    /// The same, saved by iptables.
    const SAVED: &str =
        include_str!("../../netfilter/tests/data/listed/felix-3.28.1-with-kube-proxy-1.32.3.save");

    fn objects(endpoints: &[&str]) -> String {
        let items = service(("test", "web"), "10.96.1.0", ("http", 80, 80), endpoints);
        serde_json::json!({ "kind": "List", "items": items }).to_string()
    }

    fn who(texts: &[&str]) -> Vec<String> {
        let mut evidence = Evidence::default();
        for text in texts {
            evidence.add(text).unwrap();
        }
        let all = writers(&evidence).into_iter();
        all.map(|it| format!("{} {}", it.who, it.what)).collect()
    }

    #[test]
    fn rules_that_nft_alone_has_printed_are_judged() {
        assert_eq!(kinds(&[PRINTED]), [""; 0]);
        let jumps = without(PRINTED, &["jump KUBE-SERVICES"]);
        assert_ne!(jumps, PRINTED);
        let [(kind, text)] = found(&[&jumps]).try_into().unwrap();
        assert_eq!(kind, "jump-missing");
        assert!(
            text.contains("neither PREROUTING nor OUTPUT jumps"),
            "{text}"
        );
        // Where iptables saved them, too, nothing is judged twice.
        assert_eq!(kinds(&[SAVED, PRINTED]), [""; 0]);
        let who = who(&[SAVED, PRINTED]);
        assert!(
            !who.iter().any(|it| it.contains("as nft prints it")),
            "{who:?}"
        );
    }

    #[test]
    fn services_are_named_by_their_chains_and_the_apis_objects() {
        let agrees = objects(&["10.20.1.3", "10.20.1.5"]);
        assert_eq!(kinds(&[PRINTED, &agrees]), [""; 0]);
        let [(kind, text)] = found(&[PRINTED, &objects(&["10.20.1.3", "10.20.1.99"])])
            .try_into()
            .unwrap();
        assert_eq!(kind, "endpoints-differ");
        assert!(
            text.contains("test/web:http is not led to 10.20.1.99:80"),
            "{text}"
        );
        let empty = without(PRINTED, &["jump KUBE-SEP-"]);
        let dead = |texts: &[&str]| found(texts).remove(0).1;
        let text = dead(&[&empty]);
        assert!(text.contains("KUBE-SVC-5JBHKBGPD2A2QXBH: chain"), "{text}");
        let text = dead(&[&empty, &agrees]);
        assert!(text.contains("test/web:http: chain KUBE-SVC-"), "{text}");
    }

    #[test]
    fn tables_of_one_front_end_are_told_together() {
        let filter = SAVED.split("*filter").nth(1).unwrap();
        let filter = filter.split_once("COMMIT").unwrap().0;
        let filter = format!("*filter{filter}COMMIT\n");
        let who = who(&[&filter, PRINTED]);
        let of: Vec<_> = who
            .iter()
            .filter(|it| it.starts_with("kube-proxy "))
            .collect();
        let [only] = of.as_slice() else {
            panic!("{who:?}");
        };
        assert!(
            only.contains("IPv4, at least in part as nft prints it"),
            "{only}"
        );
        assert!(only.contains("1 port of services led"), "{only}");
    }

    #[test]
    fn both_front_ends_that_lead_alike_are_told_to_lead_alike() {
        let legacy =
            format!("# Generated by iptables-save v1.8.9 on Fri Nov 27 07:20:26 2026\n{SAVED}");
        let [(kind, text)] = found(&[&legacy, PRINTED]).try_into().unwrap();
        assert_eq!(kind, "both-backends");
        assert!(!text.contains("led otherwise"), "{text}");
        let moved = PRINTED.replace("dnat to 10.20.1.5:80", "dnat to 10.20.1.6:80");
        assert_ne!(moved, PRINTED);
        let [(_, text)] = found(&[&legacy, &moved]).try_into().unwrap();
        assert!(text.contains(" at 10.96.1.0 is led otherwise"), "{text}");
    }

    #[test]
    fn what_is_refused_is_told_by_its_protocol() {
        let refuses = "table ip filter {\n\tchain KUBE-SERVICES {\n\
            meta l4proto udp ip daddr 10.96.0.10  udp dport 53 counter packets 0 bytes 0 reject\n\
            ip daddr 10.96.0.10 ip protocol tcp  tcp dport 53 counter packets 0 bytes 0 reject\n\
            ip daddr 10.96.0.10 ip protocol tcp  tcp dport 80 counter packets 0 bytes 0 drop\n\t}\n}\n\
            table ip nat {\n\tchain KUBE-SERVICES {\n\t}\n}\n";
        let who = who(&[refuses]);
        assert!(who[0].contains("3 rejected"), "{who:?}");
    }

    #[test]
    fn of_nat_of_ipv6_it_is_said_that_it_is_not_judged() {
        let six = "table ip6 nat {\n\tchain KUBE-SERVICES {\n\t}\n}\n";
        let who = who(&[SAVED, six]);
        assert!(
            who.iter()
                .any(|it| it.contains("table ip6 nat, which are not judged")),
            "{who:?}"
        );
    }
}
