//! What stands in the kernel after a sync, as `iptables-save` prints it, on both backends.

use std::collections::BTreeMap;

use chainbreak_agents::kube_proxy::{Config, Event, Family};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use serde_json::json;

use crate::{
    desk::Desk,
    netns::{BACKENDS, Netns},
    objects::{config, nginx, plain, service, service_with, slice, slice_of},
};

/// The rules of a table, chain by chain.
fn by_chain(saved: &str) -> BTreeMap<String, Vec<String>> {
    let mut chains: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in saved.lines() {
        if let Some(chain) = line.strip_prefix(':') {
            let name = chain.split(' ').next().unwrap();
            chains.entry(name.to_owned()).or_default();
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let (chain, rule) = rule.split_once(' ').unwrap();
            chains.get_mut(chain).unwrap().push(rule.to_owned());
        }
    }
    chains
}

#[test]
fn one_service_gives_the_recorded_rules() {
    for backend in BACKENDS {
        let mut desk = Desk::synced(config("1.32"), Netns::new(backend), nginx());
        let saved = ["mangle", "filter", "nat"].map(|table| desk.kernel.save(table));
        let golden = include_str!("golden/save-1.32.txt");
        assert_eq!(saved.concat(), golden, "{backend:?}: {}", desk.said());
    }
}

#[test]
fn every_release_from_1_27_gives_the_same_rules() {
    for version in ["1.27", "1.33", "1.34"] {
        let mut desk = Desk::synced(config(version), Netns::new(BACKENDS[0]), nginx());
        let saved = ["mangle", "filter", "nat"].map(|table| desk.kernel.save(table));
        assert_eq!(
            saved.concat(),
            include_str!("golden/save-1.32.txt"),
            "{version}"
        );
    }
}

#[test]
fn a_load_balancer_with_all_its_options_gives_the_recorded_rules() {
    let balancer = || {
        let spec = json!({
            "type": "LoadBalancer",
            "clusterIP": "10.96.10.20",
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 32100,
            "loadBalancerSourceRanges": ["203.0.113.0/24"],
            "sessionAffinity": "ClientIP",
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
        });
        let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}});
        service_with("lb", json!({}), spec, status)
    };
    let empty = || {
        let port = json!({"port": 80, "nodePort": 30099});
        let spec = json!({"type": "NodePort", "clusterIP": "10.96.10.99", "ports": [port]});
        service("empty", spec)
    };
    for backend in BACKENDS {
        let endpoints = slice("lb", &[("10.20.10.127", "n1"), ("10.20.11.179", "n2")]);
        let events = [balancer(), empty(), endpoints];
        let mut desk = Desk::synced(config("1.32"), Netns::new(backend), events);
        let saved = desk.kernel.save("filter") + &desk.kernel.save("nat");
        let mut golden = by_golden_chain(include_str!("golden/load-balancer-1.32.txt"));
        // The fragments leave out the rules that every cluster has.
        let tail = "-m comment --comment \"kubernetes service nodeports; NOTE: this must be the last \
                    rule in this chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS";
        golden
            .get_mut("KUBE-SERVICES")
            .unwrap()
            .push(tail.to_owned());
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for table in [desk.kernel.save("filter"), desk.kernel.save("nat")] {
            for (chain, rules) in by_chain(&table) {
                found.entry(chain).or_default().extend(rules);
            }
        }
        for (chain, mut rules) in golden {
            let mut found = found.remove(&chain).unwrap_or_default();
            // Services come in the order of chance; chains of one's own do not.
            if !chain.starts_with("KUBE-S") || chain == "KUBE-SERVICES" {
                rules.sort();
                found.sort();
            }
            assert_eq!(found, rules, "{backend:?} {chain}\n{saved}");
        }
        let own = found
            .keys()
            .filter(|chain| chain.contains("VGUOL4GRNAEO3TE3"));
        assert_eq!(
            own.count(),
            0,
            "no chain besides the recorded ones: {saved}"
        );
    }
}

fn by_golden_chain(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut chains: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let (chain, rule) = line.strip_prefix("-A ").unwrap().split_once(' ').unwrap();
        chains
            .entry(chain.to_owned())
            .or_default()
            .push(rule.to_owned());
    }
    chains
}

/// Recorded from a real kube-proxy v1.20.2 (the source package of Debian bookworm, built with Go 1.15)
/// that was run in a network namespace with `--hostname-override=n1 --cluster-cidr=10.20.0.0/16`
/// against these objects: every command but conntrack's, and the rules, which were the same on both
/// backends.
#[test]
fn kube_proxy_1_20_does_what_the_real_one_was_seen_to_do() {
    let objects = include_str!("golden/real-1.20.2/objects.json");
    let objects: Objects = serde_json::from_str(objects).unwrap();
    let events = || {
        let services = objects
            .services
            .iter()
            .cloned()
            .map(|it| Event::Service(Box::new(it)));
        services.chain(
            objects
                .slices
                .iter()
                .cloned()
                .map(|it| Event::Slice(Box::new(it))),
        )
    };
    for backend in BACKENDS {
        let config = Config {
            node_ip: Some("127.0.0.1".parse().unwrap()),
            ..config("1.20.2")
        };
        let mut desk = Desk::synced(config, Netns::new(backend), events());
        let commands = desk.ran.iter().map(|(_, it)| it.argv.join(" "));
        let commands: Vec<String> = commands
            .filter(|it| !it.ends_with("--version") && !it.starts_with("conntrack"))
            .collect();
        let recorded = include_str!("golden/real-1.20.2/commands.txt");
        assert_eq!(commands, recorded.lines().collect::<Vec<_>>());
        let recorded = include_str!("golden/real-1.20.2/save.txt");
        let mut recorded = recorded.split_inclusive("COMMIT\n");
        for table in ["mangle", "filter", "nat"] {
            let [real, model] = [recorded.next().unwrap(), &desk.kernel.save(table)]
                .map(|saved| in_any_order_of_services(by_chain(saved)));
            assert_eq!(model, real, "{backend:?} {table}");
        }
    }
}

#[derive(serde::Deserialize)]
struct Objects {
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
}

/// Go's map order decides the order of services in the chains that all of them share.
fn in_any_order_of_services(
    mut chains: BTreeMap<String, Vec<String>>,
) -> BTreeMap<String, Vec<String>> {
    for chain in ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES"] {
        if let Some(rules) = chains.get_mut(chain) {
            rules.sort();
        }
    }
    chains
}

/// The differences to the modern rules that were seen with a real kube-proxy 1.20.2's input.
#[test]
fn kube_proxy_1_20_gives_its_own_rules() {
    for backend in BACKENDS {
        let mut desk = Desk::synced(config("1.20.2"), Netns::new(backend), nginx());
        let filter = by_chain(&desk.kernel.save("filter"));
        for chain in ["KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL", "KUBE-FIREWALL"] {
            assert!(!filter.contains_key(chain), "{chain}");
        }
        let targets: Vec<&str> = filter["FORWARD"]
            .iter()
            .map(|rule| rule.rsplit(' ').next().unwrap())
            .collect();
        assert_eq!(
            targets,
            ["KUBE-FORWARD", "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"]
        );
        assert_eq!(
            filter["KUBE-FORWARD"][2..],
            ["source", "destination"].map(|side| format!(
                "-m comment --comment \"kubernetes forwarding conntrack pod {side} rule\" \
                 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
            ))
        );
        let nat = by_chain(&desk.kernel.save("nat"));
        assert!(nat["KUBE-MARK-DROP"].is_empty());
        let to = "-d 10.96.10.10/32 -p tcp -m comment --comment \"test/nginx:http cluster IP\" \
                  -m tcp --dport 80";
        assert_eq!(
            nat["KUBE-SERVICES"][..2],
            [
                format!("! -s 10.20.0.0/16 {to} -j KUBE-MARK-MASQ"),
                format!("{to} -j KUBE-SVC-IU46S4VZFN77LK6S"),
            ]
        );
        assert_eq!(
            nat["KUBE-SVC-IU46S4VZFN77LK6S"],
            [
                "-m comment --comment \"test/nginx:http\" -m statistic --mode random --probability \
                 0.50000000000 -j KUBE-SEP-XAAQ4E3V5J6GEKUJ",
                "-m comment --comment \"test/nginx:http\" -j KUBE-SEP-S7XCV467AW272WRX",
            ]
        );
    }
}

/// Every kind of rule that 1.20 has, in one input that the kernel takes.
#[test]
fn kube_proxy_1_20_sends_local_policy_through_xlb_and_drops_by_mark() {
    let spec = json!({
        "type": "LoadBalancer",
        "clusterIP": "10.96.10.20",
        "externalTrafficPolicy": "Local",
        "externalIPs": ["192.0.2.30"],
        "loadBalancerSourceRanges": ["203.0.113.0/24"],
        "sessionAffinity": "ClientIP",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
    });
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}});
    for backend in BACKENDS {
        let balancer = service_with("lb", json!({}), spec.clone(), status.clone());
        let endpoints = slice("lb", &[("10.20.10.127", "n1"), ("10.20.11.179", "n2")]);
        let mut desk = Desk::synced(config("1.20"), Netns::new(backend), [balancer, endpoints]);
        let nat = by_chain(&desk.kernel.save("nat"));
        let firewall = &nat["KUBE-FW-VGUOL4GRNAEO3TE3"];
        let comment = "-m comment --comment \"test/lb:http loadbalancer IP\"";
        assert_eq!(
            *firewall,
            [
                format!("-s 203.0.113.0/24 {comment} -j KUBE-XLB-VGUOL4GRNAEO3TE3"),
                format!("{comment} -j KUBE-MARK-DROP"),
            ]
        );
        let local = &nat["KUBE-XLB-VGUOL4GRNAEO3TE3"];
        assert_eq!(local.len(), 5, "{local:#?}");
        assert!(local[0].contains("Redirect pods trying to reach external loadbalancer VIP"));
        assert!(
            local[3].contains("--rcheck --seconds 10800 --reap"),
            "{local:#?}"
        );
        assert_eq!(
            local[4],
            "-m comment --comment \"Balancing rule 0 for test/lb:http\" -j KUBE-SEP-T274TAJ36YSJDWTK"
        );
        let port = &nat["KUBE-NODEPORTS"];
        assert!(port[0].starts_with("-s 127.0.0.0/8 ") && port[0].ends_with("-j KUBE-MARK-MASQ"));
        assert!(
            port[1].ends_with("-j KUBE-XLB-VGUOL4GRNAEO3TE3"),
            "{port:#?}"
        );
        // Nobody here any more: the local policy drops.
        desk.tell_later(slice("lb", &[("10.20.11.179", "n2")]));
        let local = desk
            .kernel
            .chain("nat", "KUBE-XLB-VGUOL4GRNAEO3TE3")
            .pop()
            .unwrap();
        assert!(
            local.ends_with("\"test/lb:http has no local endpoints\" -j KUBE-MARK-DROP"),
            "{local}"
        );
    }
}

#[test]
fn n_endpoints_share_the_traffic_evenly() {
    let ips: Vec<String> = (1..=7).map(|i| format!("10.20.1.{i}")).collect();
    let endpoints: Vec<(&str, &str)> = ips.iter().map(|ip| (ip.as_str(), "n1")).collect();
    let events = [plain("nginx", "10.96.10.10"), slice("nginx", &endpoints)];
    let mut desk = Desk::synced(config("1.32"), Netns::new(BACKENDS[0]), events);
    let rules = desk.kernel.chain("nat", "KUBE-SVC-IU46S4VZFN77LK6S");
    let dice = rules
        .iter()
        .filter_map(|it| it.split_once("--probability "));
    let dice: Vec<&str> = dice.filter_map(|it| it.1.split(' ').next()).collect();
    // What the kernel makes of 1/7 … 1/2: multiples of 1/2^31.
    assert_eq!(
        dice,
        [
            "0.14285714272",
            "0.16666666651",
            "0.20000000019",
            "0.25000000000",
            "0.33333333349",
            "0.50000000000",
        ]
    );
}

/// The family is a parameter: its programs, loopback, lengths and brackets.
#[test]
fn an_ipv6_service_is_taken_by_ip6tables() {
    for (version, backend) in [
        ("1.20", BACKENDS[0]),
        ("1.32", BACKENDS[0]),
        ("1.32", BACKENDS[1]),
    ] {
        let config = Config {
            family: Family::Ipv6,
            cluster_cidr: Some("fd00:20::/32".parse().unwrap()),
            ..config(version)
        };
        let port = json!({"name": "http", "port": 80});
        let Event::Slice(mut endpoints) = slice_of(
            "six",
            port.clone(),
            vec![json!({"addresses": ["fd00:20::1"]})],
        ) else {
            unreachable!()
        };
        endpoints.address_type = "IPv6".to_owned();
        let spec = json!({"clusterIP": "fd00:96::10", "ports": [port]});
        let events = [
            service("six", spec),
            Event::Slice(endpoints),
            plain("four", "10.96.0.1"),
        ];
        let mut desk = Desk::synced(config, Netns::new(backend), events);
        let nat = desk.kernel.sh("ip6tables-save -t nat");
        assert!(
            nat.contains("-j DNAT --to-destination [fd00:20::1]:80\n"),
            "{version}: {nat}"
        );
        assert!(
            nat.contains("-A KUBE-SERVICES -d fd00:96::10/128 -p tcp"),
            "{nat}"
        );
        assert!(!nat.contains("test/four"), "{nat}");
        let closed = nat.contains("KUBE-SERVICES ! -d ::1/128 ");
        assert_eq!(
            closed,
            version == "1.32",
            "node ports on ::1 never work: {nat}"
        );
    }
}
