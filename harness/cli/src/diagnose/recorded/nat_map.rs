//! What `calico-node -bpf nat dump` would have printed at a moment of a recorded run, of the Services that traffic goes to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    net::{IpAddr, SocketAddr},
};

use chainbreak_model::{
    case::Case,
    event::{Event, EventKind},
    names::NodeName,
};
use chainbreak_probe::wire::Protocol;

use super::objects::target_port;

/// What a look at a node's map showed of a Service, and when.
type Look<'a> = (u64, Option<&'a BTreeSet<String>>);

/// The node's map as it was last seen of each Service, if that was after its endpoints last changed: before, nobody knows.
pub(super) fn nat_map(case: &Case, events: &[Event], node: &NodeName, at_us: u64) -> String {
    let looks = looks(events, node, at_us);
    let mut text = String::new();
    for ((service, number, at), id) in frontends(case, events).into_iter().zip(1..) {
        let Some((looked_us, Some(backends))) = looks.get(service.as_str()) else {
            continue;
        };
        let is_stale = events.iter().any(|event| {
            let changed =
                matches!(&event.what, EventKind::Endpoints { service: of, .. } if *of == service);
            changed && (*looked_us..=at_us).contains(&event.at_us)
        });
        let port = target_port(case, &service, at.port());
        if let (false, Some(port)) = (is_stale, port) {
            print(&mut text, id, (number, at), backends, port);
        }
    }
    text
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

/// The addresses at which traffic asks each Service, and by which protocol's number.
fn frontends(case: &Case, events: &[Event]) -> BTreeSet<(String, u8, SocketAddr)> {
    let aimed = events.iter().filter_map(|event| {
        let EventKind::Aimed { traffic, at } = &event.what else {
            return None;
        };
        let traffic = case.traffic.get(traffic)?;
        let (namespace, name) = traffic.to.service()?;
        let number = match traffic.protocol {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        };
        Some((format!("{namespace}/{name}"), number, *at))
    });
    aimed.collect()
}

/// A frontend and its backends, as Calico's program prints them.
fn print(
    text: &mut String,
    id: u32,
    (number, at): (u8, SocketAddr),
    backends: &BTreeSet<String>,
    port: u16,
) {
    let of_family = backends.iter().filter_map(|it| it.parse::<IpAddr>().ok());
    let of_family: Vec<IpAddr> = of_family
        .filter(|it| it.is_ipv4() == at.is_ipv4())
        .collect();
    let count = of_family.len();
    // Writing into a string does not fail.
    let _written = writeln!(
        text,
        "{} port {} proto {number} id {id} count {count} local 0",
        at.ip(),
        at.port()
    );
    for (ip, ordinal) in of_family.into_iter().zip(0..) {
        let _written = writeln!(text, "\t{id}:{ordinal}\t {}", SocketAddr::new(ip, port));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use chainbreak_model::{
        case::Capabilities,
        load, plan,
        plan::{Choice, Planned},
    };

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

    #[test]
    fn a_service_has_the_addresses_at_which_it_was_asked() {
        let case = case();
        let aimed = |at: &str| Event {
            at_us: 0,
            what: EventKind::Aimed {
                traffic: "shop".into(),
                at: at.parse().unwrap(),
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
