//! Felix's NAT map held against what the API holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use chainbreak_model::case::Symptom;
use chainbreak_netfilter::{dumps::Backends, names::PortName};

use super::{Context, first_of};
use crate::{
    Finding, Weight, nat_map,
    objects::{Endpoints, ServicePort},
    reproduction::{Made, Mends},
};

/// The API's own Service, by which Felix may ask it.
const API: (&str, &str) = ("default", "kubernetes");
/// Of the settings by which Felix asks it directly, in whichever namespace it runs.
const DIRECT: &str = "kubernetes-services-endpoint";
const CUT_OFF: &str = "Felix's NAT map leads to other endpoints than the API holds, that of the API itself to none of its own: a Felix that asks by the Service reaches it no more, and hears of no change. Its programs come before kube-proxy's rules, which need not be wrong";
const BEHIND: &str = "Felix's NAT map leads to other endpoints than the API holds: Felix does not hear of what changes, or one was listed long before the other. Its programs come before kube-proxy's rules, which need not be wrong";
const DIRECTLY: &str = "give Felix the API's own address (ConfigMap kubernetes-services-endpoint) and make its pod anew";
const RESTART: &str = "Felix's log says why it does not hear of changes; a new pod of it writes the map again, where it reaches the API";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let evidence = context.evidence;
    let map = &context.nat_map;
    let Some(endpoints) = evidence.objects.endpoints().filter(|_| !map.is_empty()) else {
        return Vec::new();
    };
    // Of a family of which nothing was dumped nothing is known.
    let dumped: BTreeSet<bool> = map.keys().map(|(ip, ..)| ip.is_ipv6()).collect();
    let is_dumped = |address: &&IpAddr| dumped.contains(&address.is_ipv6());
    let mut differs = BTreeSet::new();
    let mut is_cut_off = false;
    for port in ports(context, &endpoints) {
        let Some(known) = endpoints.get(&port.name) else {
            continue;
        };
        for address in port.addresses.iter().filter(is_dumped) {
            let known = known.of_family(address.is_ipv6());
            let entry = map.get(&(*address, port.name.protocol, port.port));
            is_cut_off |= is_api(&port.name) && is_elsewhere(entry, &known);
            let line = difference(&port, entry, &known);
            let line =
                line.map(|line| format!("{} at {address}, port {}: {line}", port.name, port.port));
            // First the API's own.
            differs.extend(line.map(|line| (!is_api(&port.name), port.name.clone(), line)));
        }
    }
    if differs.is_empty() {
        return Vec::new();
    }
    let mut maps = evidence.objects.of("ConfigMap");
    let asks_directly = maps.any(|it| it["metadata"]["name"] == DIRECT);
    vec![found(
        &differs,
        is_cut_off && !asks_directly,
        evidence.is_of_one_moment,
    )]
}

/// What follows of these differences.
fn found(
    differs: &BTreeSet<(bool, PortName, String)>,
    is_cut_off: bool,
    is_of_one_moment: bool,
) -> Finding {
    let names = differs.iter().filter(|it| it.0).map(|it| it.1.to_string());
    let made = Made {
        pods: true,
        node: true,
        mends: Some(Mends::Directly),
        only: names.collect(),
        ..Made::default()
    };
    let (what, mends) = if is_cut_off {
        (CUT_OFF, DIRECTLY)
    } else {
        (BEHIND, RESTART)
    };
    // Bundles list the one minutes before the other, and a rollout between is no fault.
    let weight = Weight::where_so(is_cut_off || is_of_one_moment);
    Finding::new(Symptom::NatMapDiffers, weight, what)
        .on(first_of(differs.iter().map(|it| it.2.clone())))
        .mended_by(mends)
        .made_by(is_cut_off.then_some(made))
}

fn is_api(name: &PortName) -> bool {
    (name.service.namespace.as_str(), name.service.name.as_str()) == API
}

/// Whether it leads to nobody who is an endpoint, though there are some.
fn is_elsewhere(entry: Option<&Backends>, known: &Endpoints) -> bool {
    let Some(Backends::To(backends) | Backends::Local(backends)) = entry else {
        return false;
    };
    !backends.is_empty() && !known.ready.is_empty() && backends.is_disjoint(&known.all)
}

/// The ports of Services that have slices, and their addresses: as the API says, else as rules do.
fn ports(context: &Context<'_>, endpoints: &BTreeMap<PortName, Endpoints>) -> Vec<ServicePort> {
    let mut ports = context.evidence.objects.services();
    // Listed twice they are the same.
    ports.sort();
    ports.dedup();
    let known: BTreeSet<PortName> = ports.iter().map(|it| it.name.clone()).collect();
    let led = context
        .led
        .iter()
        .map(|it| (it.name.clone(), it.address, it.port));
    let written = nat_map::names(context.evidence.dumps.nft_tables()).into_iter();
    let mut addresses: BTreeMap<String, BTreeSet<(IpAddr, u16)>> = BTreeMap::new();
    for (name, address, port) in written.chain(led) {
        addresses.entry(name).or_default().insert((address, port));
    }
    for name in endpoints.keys().filter(|name| !known.contains(*name)) {
        let at = addresses.get(&name.to_string());
        ports.extend(at.into_iter().flatten().map(|(address, port)| ServicePort {
            name: name.clone(),
            addresses: [*address].into(),
            port: *port,
            is_plain: false,
        }));
    }
    ports
}

/// What lies between a port's entry and its endpoints; nothing where the one is of the other.
fn difference(port: &ServicePort, entry: Option<&Backends>, known: &Endpoints) -> Option<String> {
    let has = || format!("its EndpointSlices have {}", listed(&known.ready));
    let Some(entry) = entry else {
        let is_missed = port.is_plain && !known.ready.is_empty();
        return is_missed.then(|| format!("not in the map, {}", has()));
    };
    let (Backends::To(backends) | Backends::Local(backends)) = entry else {
        return None;
    };
    if backends.is_empty() {
        let is_missed = port.is_plain && !known.are_hinted && !known.ready.is_empty();
        return is_missed.then(|| format!("led to nobody, {}", has()));
    }
    if !backends.is_subset(&known.all) {
        return Some(format!("led to {}, {}", listed(backends), has()));
    }
    let missing: BTreeSet<_> = known.ready.difference(backends).copied().collect();
    let is_missed = port.is_plain && !known.are_hinted && !missing.is_empty();
    is_missed.then(|| {
        format!(
            "not led to {}, ready in its EndpointSlices",
            listed(&missing)
        )
    })
}

/// Addresses, in words.
fn listed(all: &BTreeSet<SocketAddr>) -> String {
    if all.is_empty() {
        return "none that is ready".to_owned();
    }
    let all = first_of(all.iter().map(ToString::to_string));
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Evidence,
        checks::tests::{evidence, found, kinds, service},
        examine,
    };

    const DUMP: &str = include_str!("../../../netfilter/tests/data/felix.nat");

    fn objects(api: &str, web: &[&str]) -> String {
        let kubernetes = ("https", 443, 6443);
        let items = [
            service(API, "10.96.0.1", kubernetes, &[api]),
            service(("test", "web"), "10.96.1.0", ("http", 80, 80), web),
        ];
        serde_json::json!({ "kind": "List", "items": items.concat() }).to_string()
    }

    /// What is found of these, with its weight.
    fn weighed(texts: &[&str], is_of_one_moment: bool) -> Vec<Finding> {
        let evidence = Evidence {
            is_of_one_moment,
            ..evidence(texts)
        };
        examine(&evidence).findings
    }

    #[test]
    fn a_map_that_agrees_with_the_api_is_nothing_to_tell() {
        let objects = objects("10.0.0.1", &["10.20.1.2", "10.20.1.3"]);
        assert_eq!(kinds(&[DUMP, &objects]), [""; 0]);
        assert_eq!(kinds(&[DUMP]), [""; 0]);
    }

    #[test]
    fn a_blind_map_is_told_with_what_it_has_and_what_the_api_has() {
        let [(kind, text)] = found(&[DUMP, &objects("10.0.0.2", &["10.20.1.7"])])
            .try_into()
            .unwrap();
        assert_eq!(kind, "nat-map-differs");
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "default/kubernetes:https at 10.96.0.1, port 443: led to 10.0.0.1:6443, its EndpointSlices have 10.0.0.2:6443",
                "test/web:http at 10.96.1.0, port 80: led to 10.20.1.2:80, 10.20.1.3:80, its EndpointSlices have 10.20.1.7:80"
            ]
        );
    }

    #[test]
    fn one_that_is_led_nowhere_lacks_a_service_or_an_endpoint_is_told() {
        for (from, to, told) in [
            ("count 2 local 1\n", "count 0 local 1\n", "led to nobody"),
            ("10.96.1.0", "10.96.1.7", "not in the map"),
            (
                "\t4:1\t 10.20.1.3:80",
                "\t4:1\t 10.20.1.2:80",
                "not led to 10.20.1.3:80",
            ),
        ] {
            let dump = DUMP.replace(from, to);
            assert_ne!(dump, DUMP);
            let found = found(&[&dump, &objects("10.0.0.1", &["10.20.1.2", "10.20.1.3"])]);
            let [(kind, text)] = found.as_slice() else {
                panic!("{told}: {found:?}")
            };
            assert!(kind == "nat-map-differs" && text.contains(told), "{text}");
        }
    }

    #[test]
    fn only_of_an_api_that_is_nowhere_in_the_map_it_is_said_that_felix_is_cut_off() {
        let replaced = objects("10.0.0.1", &["10.20.1.7"]);
        let [finding] = weighed(&[DUMP, &replaced], false).try_into().unwrap();
        assert_eq!(
            (finding.weight, finding.mends.as_deref()),
            (Weight::Odd, Some(RESTART))
        );
        let [finding] = weighed(&[DUMP, &replaced], true).try_into().unwrap();
        assert_eq!(
            (finding.weight, finding.mends.as_deref()),
            (Weight::Breaks, Some(RESTART))
        );
        let moved = objects("10.0.0.2", &["10.20.1.2", "10.20.1.3"]);
        let [finding] = weighed(&[DUMP, &moved], false).try_into().unwrap();
        assert_eq!(
            (finding.weight, finding.mends.as_deref()),
            (Weight::Breaks, Some(DIRECTLY))
        );
        assert_eq!(finding.made.unwrap().only, BTreeSet::new());
        // One of several is another, or Felix asks it by its own address.
        let several = moved.replace("[\"10.0.0.2\"]", "[\"10.0.0.1\", \"10.0.0.2\"]");
        assert_ne!(several, moved);
        let map = r#"{"kind": "ConfigMap", "metadata": {"namespace": "tigera-operator", "name": "kubernetes-services-endpoint"}}"#;
        for texts in [vec![DUMP, &several], vec![DUMP, &moved, map]] {
            let [finding] = weighed(&texts, false).try_into().unwrap();
            assert_eq!(
                (finding.weight, finding.mends.as_deref()),
                (Weight::Odd, Some(RESTART))
            );
        }
    }

    #[test]
    fn what_a_policy_a_hint_or_a_condition_leaves_out_is_not_missed() {
        let all = objects("10.0.0.1", &["10.20.1.2", "10.20.1.3", "10.20.9.9"]);
        assert_eq!(kinds(&[DUMP, &all]), ["nat-map-differs"]);
        for (from, to) in [
            (
                "\"clusterIP\":\"10.96.1.0\"",
                "\"internalTrafficPolicy\":\"Local\",\"clusterIP\":\"10.96.1.0\"",
            ),
            (
                "\"addresses\":[\"10.20.9.9\"]",
                "\"hints\":{},\"addresses\":[\"10.20.9.9\"]",
            ),
            (
                "\"addresses\":[\"10.20.9.9\"]",
                "\"conditions\":{\"ready\":false},\"addresses\":[\"10.20.9.9\"]",
            ),
        ] {
            let other = all.replacen(from, to, 1);
            assert_ne!(other, all, "{from}");
            assert_eq!(kinds(&[DUMP, &other]), [""; 0], "{from}");
        }
        // One that is ending still serves.
        let ending = objects("10.0.0.1", &["10.20.1.2", "10.20.1.3"]);
        let ending = ending.replacen(
            "\"addresses\":[\"10.20.1.3\"]",
            "\"conditions\":{\"ready\":false,\"terminating\":true},\"addresses\":[\"10.20.1.3\"]",
            1,
        );
        assert_eq!(kinds(&[DUMP, &ending]), [""; 0]);
    }

    #[test]
    fn a_service_that_is_listed_twice_is_told_of_once_and_a_strangers_name_makes_no_line() {
        let objects = objects("10.0.0.1", &["10.20.1.7"]);
        let [(_, text)] = found(&[DUMP, &objects, &objects]).try_into().unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        let forged = objects
            .replace("\"name\":\"web\"", "\"name\":\"w\\n✗ eb\"")
            .replace(":\"web\"", ":\"w\\n✗ eb\"");
        assert_ne!(forged, objects);
        let [(_, text)] = found(&[DUMP, &forged]).try_into().unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
