//! What `calico-node -bpf nat dump` would have printed at a moment of a recorded run, of the Services that traffic goes to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
};

use chainbreak_model::{
    case::Case,
    event::{Event, EventKind},
    names::NodeName,
};

use super::{
    asked::{At, TCP, UDP, addresses, asked},
    objects::ports,
};

/// What a look at a node's map showed of a Service, and when.
type Look<'a> = (u64, Option<&'a BTreeSet<String>>);

/// The node's map as it was last seen of each Service, if that was after its endpoints last changed. Of what is not known beside it the map
/// lacks the backends, as one that is being written.
pub(super) fn nat_map(case: &Case, events: &[Event], node: &NodeName, at_us: u64) -> String {
    let looks = looks(events, node, at_us);
    let mut led = Vec::new();
    for (service, asked) in asked(case, events) {
        let looked = looks.get(service.as_str()).copied();
        let fresh = looked.filter(|(looked_us, _)| !changed(events, &service, *looked_us..=at_us));
        let backends = fresh.and_then(|(_, backends)| backends);
        let frontends = frontends(case, &service, &asked).into_iter();
        led.extend(frontends.map(|(at, target)| {
            let known = backends.filter(|_| asked.contains(&at)).zip(target);
            (at, known)
        }));
    }
    let mut text = String::new();
    if led.iter().any(|(_, known)| known.is_some()) {
        for ((at, known), id) in led.into_iter().zip(1..) {
            print(&mut text, id, at, known);
        }
    }
    text
}

/// Whether it was told meanwhile that a Service has other endpoints.
fn changed(events: &[Event], service: &str, meanwhile: RangeInclusive<u64>) -> bool {
    let mut events = events.iter().filter(|it| meanwhile.contains(&it.at_us));
    events.any(
        |event| matches!(&event.what, EventKind::Endpoints { service: of, .. } if *of == service),
    )
}

/// The last look at the node's map by then, by Service.
fn looks<'a>(events: &'a [Event], on: &NodeName, at_us: u64) -> BTreeMap<&'a str, Look<'a>> {
    let before = events.iter().filter(|event| event.at_us <= at_us);
    let looks = before.filter_map(|event| match &event.what {
        EventKind::NatMap {
            node,
            service,
            backends,
        } if node == on => Some((service.as_str(), (event.at_us, backends.as_ref()))),
        _ => None,
    });
    looks.collect()
}

/// All ports of a Service at the addresses at which it is asked, with the numbers behind them.
fn frontends(case: &Case, service: &str, asked: &BTreeSet<At>) -> BTreeMap<At, Option<u16>> {
    let addresses = addresses(asked);
    let mut frontends = BTreeMap::new();
    for (is_udp, port, target) in ports(case, service) {
        let number = if is_udp { UDP } else { TCP };
        let at = addresses
            .iter()
            .map(|ip| (number, SocketAddr::new(*ip, port)));
        frontends.extend(at.map(|at| (at, target)));
    }
    frontends
}

/// A frontend and its backends, as Calico's program prints them.
fn print(text: &mut String, id: u32, (number, at): At, known: Option<(&BTreeSet<String>, u16)>) {
    let backends = known.map(|(backends, port)| {
        let all = backends.iter().filter_map(|it| it.parse::<IpAddr>().ok());
        let of_family = all.filter(|it| it.is_ipv4() == at.is_ipv4());
        of_family
            .map(|ip| SocketAddr::new(ip, port))
            .collect::<Vec<_>>()
    });
    let count = backends.as_ref().map_or(1, Vec::len);
    let (ip, port) = (at.ip(), at.port());
    // Writing into a string does not fail.
    let _written = writeln!(
        text,
        "{ip} port {port} proto {number} id {id} count {count} local 0"
    );
    for (backend, ordinal) in backends.into_iter().flatten().zip(0..) {
        let _written = writeln!(text, "\t{id}:{ordinal}\t {backend}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use chainbreak_diagnose::Evidence;
    use chainbreak_model::{
        case::Capabilities,
        load, plan,
        plan::{Choice, Planned},
    };
    use chainbreak_netfilter::dumps::Backends;
    use serde_json::{Value, json};

    use super::*;

    const SERVICE: &str = "10.96.1.1:80";

    /// A case with traffic `shop` to test/nginx.
    fn case() -> Box<Case> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/felix");
        let scenario = load(&folder.join("services-die-after-the-apis-endpoint-moved.yaml"));
        let scenario = scenario.unwrap();
        let plan = |able: &Capabilities| plan(&scenario, &Choice::default(), able);
        let missing = plan(&Capabilities::default())
            .into_iter()
            .flat_map(|it| match it {
                Planned::Skip(skipped) => skipped.missing,
                Planned::Run(_) => Vec::new(),
            });
        let able = Capabilities(missing.map(|it| (it.capability, Ok(()))).collect());
        let run = plan(&able).into_iter().find_map(|it| match it {
            Planned::Run(case) => Some(case),
            Planned::Skip(_) => None,
        });
        run.unwrap()
    }

    fn set(addresses: &[&str]) -> BTreeSet<String> {
        addresses.iter().map(|&it| it.to_owned()).collect()
    }

    /// What a look at n1's map showed.
    fn look(at_us: u64, backends: Option<&[&str]>) -> Event {
        let service = "test/nginx".to_owned();
        let what = EventKind::NatMap {
            node: "n1".into(),
            service,
            backends: backends.map(set),
        };
        Event { at_us, what }
    }

    fn endpoints(at_us: u64, ready: &[&str]) -> Event {
        let what = EventKind::Endpoints {
            service: "test/nginx".to_owned(),
            ready: Some(set(ready)),
            draining: BTreeSet::new(),
        };
        Event { at_us, what }
    }

    /// Else it would be said that the map lacks them.
    #[test]
    fn of_what_nobody_looked_at_beside_what_is_known_the_map_does_not_say_all() {
        let mut case = case();
        let mut manifests = case.manifests.to_vec();
        let is_asked =
            |it: &&mut Value| it["kind"] == "Service" && it["metadata"]["name"] == "nginx";
        let service = manifests.iter_mut().find(is_asked).unwrap();
        let ports = service["spec"]["ports"].as_array_mut().unwrap();
        ports.push(json!({ "name": "more", "port": 9090, "protocol": "UDP" }));
        case.manifests = manifests.into();
        let aimed = EventKind::Aimed {
            traffic: "shop".into(),
            at: SERVICE.parse().unwrap(),
            from: None,
        };
        let events = [
            Event {
                at_us: 0,
                what: aimed,
            },
            look(20, Some(&["10.20.1.2"])),
        ];
        let text = nat_map(&case, &events, &"n1".into(), 30);
        let mut evidence = Evidence::default();
        evidence.add(&text).unwrap();
        let led: Vec<_> = evidence.dumps.nat_map().values().collect();
        let to = Backends::To(["10.20.1.2:80".parse().unwrap()].into());
        assert_eq!(led, [&to, &Backends::Unknown], "{text}");
        assert_eq!(nat_map(&case, &events, &"n1".into(), 10), "");
    }

    #[test]
    fn a_service_has_the_addresses_at_which_it_was_asked() {
        let case = case();
        let aimed = |at: &str| Event {
            at_us: 0,
            what: EventKind::Aimed {
                traffic: "shop".into(),
                at: at.parse().unwrap(),
                from: None,
            },
        };
        let events = [aimed("[fd00::1]:80"), aimed(SERVICE), aimed(SERVICE)];
        let objects = super::super::objects::objects(&case, &events, 10);
        let services = objects.iter().filter(|it| it["kind"] == "Service");
        let addresses = services.map(|it| {
            let name = it["metadata"]["name"].as_str();
            (name, it["spec"]["clusterIPs"].to_string())
        });
        let asked = (Some("nginx"), r#"["10.96.1.1","fd00::1"]"#.to_owned());
        assert_eq!(
            addresses.collect::<Vec<_>>(),
            [asked, (Some("web"), "null".to_owned())]
        );
    }

    #[test]
    fn a_map_is_as_it_was_last_seen_since_endpoints_changed_and_not_known_before() {
        let case = case();
        let at: SocketAddr = SERVICE.parse().unwrap();
        let aimed = EventKind::Aimed {
            traffic: "shop".into(),
            at,
            from: None,
        };
        let events = [
            Event {
                at_us: 0,
                what: aimed,
            },
            endpoints(10, &["10.20.1.2"]),
            look(20, Some(&["10.20.1.2", "10.20.2.2"])),
            endpoints(30, &["10.20.1.9"]),
            look(40, Some(&["10.20.1.2"])),
            look(50, None),
        ];
        let at = |at_us| nat_map(&case, &events, &"n1".into(), at_us);
        assert_eq!(
            at(29),
            "10.96.1.1 port 80 proto 6 id 1 count 2 local 0\n\t1:0\t 10.20.1.2:80\n\t1:1\t 10.20.2.2:80\n"
        );
        assert_eq!(at(35), "");
        assert!(at(45).ends_with("count 1 local 0\n\t1:0\t 10.20.1.2:80\n"));
        assert_eq!(at(55), "");
        assert_eq!(nat_map(&case, &events, &"n2".into(), 45), "");
    }
}
