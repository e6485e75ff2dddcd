//! Connections that conntrack leads to endpoints that services no longer have, or to nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use chainbreak_model::case::Symptom;
use chainbreak_netfilter::{conntrack::Flow, names::PortName};

use super::{Context, first_of};
use crate::{Finding, Weight, objects::Endpoints};

/// A port of a Service: at which address, over what, which.
type At = (IpAddr, String, u16);

/// By port, its name and the endpoints to which connections are led now.
type Now = BTreeMap<At, (String, BTreeSet<SocketAddr>)>;

/// What ends such connections.
const MENDS: &str = "`conntrack -D -p udp --orig-dst ADDRESS --orig-port-dst PORT` ends them; the next packet is led by the rules";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let slices = context.evidence.objects.slices();
    let now = now(context, slices.as_ref());
    let flows = context.evidence.dumps.flows();
    let of_services = flows
        .iter()
        .filter_map(|flow| Some((flow, at(flow, &now)?)));
    let of_services: Vec<_> = of_services.collect();
    let named = slices.map(|slices| {
        let all = slices.into_values().flat_map(|it| it.all);
        all.collect()
    });
    let found = [
        stale(&of_services, named.as_ref()),
        untranslated(&of_services),
    ];
    found.into_iter().flatten().collect()
}

/// By the rules, and of what they do not lead by the API.
fn now(context: &Context<'_>, slices: Option<&BTreeMap<PortName, Endpoints>>) -> Now {
    let mut now = Now::new();
    for it in &context.led {
        let at = (it.address, it.protocol.clone(), it.port);
        let known = now.entry(at);
        let known = known.or_insert_with(|| (it.name.clone(), BTreeSet::new()));
        known.1.extend(&it.endpoints);
    }
    let Some(slices) = slices else {
        return now;
    };
    for service in context.evidence.objects.services() {
        let Some(endpoints) = slices.get(&service.name) else {
            continue;
        };
        for address in &service.addresses {
            let at = (*address, service.name.protocol.to_string(), service.port);
            now.entry(at)
                .or_insert_with(|| (service.name.to_string(), endpoints.all.clone()));
        }
    }
    now
}

/// The port of a Service that a UDP client asks: what goes on over TCP ends with its pod, while a UDP client that keeps its port is led
/// where its entry says as long as it sends.
fn at<'a>(flow: &Flow, now: &'a Now) -> Option<(&'a str, &'a BTreeSet<SocketAddr>)> {
    if flow.protocol != "udp" {
        return None;
    }
    let key = (
        flow.original.dst,
        flow.protocol.clone(),
        flow.original.dport?,
    );
    let (name, endpoints) = now.get(&key)?;
    Some((name.as_str(), endpoints))
}

/// Connections of Services, each with its name and endpoints.
type OfServices<'a> = [(&'a Flow, (&'a str, &'a BTreeSet<SocketAddr>))];

/// Those that are led to endpoints which nobody knows any more. Whose endpoints are named, those that end are no mistake: they serve
/// what they have.
fn stale(flows: &OfServices<'_>, named: Option<&BTreeSet<SocketAddr>>) -> Option<Finding> {
    let mut stale: BTreeMap<(&str, SocketAddr), usize> = BTreeMap::new();
    for (flow, (name, endpoints)) in flows {
        let Some(from) = flow.reply.sport else {
            continue;
        };
        let at = SocketAddr::new(flow.reply.src, from);
        let is_known = endpoints.contains(&at) || named.is_some_and(|named| named.contains(&at));
        if flow.reply.src != flow.original.dst && !is_known {
            *stale.entry((*name, at)).or_default() += 1;
        }
    }
    if stale.is_empty() {
        return None;
    }
    let lines = stale.iter().map(|((name, at), flows)| {
        format!("{name}: {flows} of UDP are led to {at}, which is none of its endpoints")
    });
    let rest = "a client that goes on sending from its port is led there, whatever the rules say";
    let what = if named.is_some() {
        format!("conntrack leads connections to endpoints that no EndpointSlice names: {rest}")
    } else {
        format!(
            "conntrack leads connections to endpoints that rules do not know; where these are gone, and not only about to end, {rest}"
        )
    };
    let weight = Weight::where_so(named.is_some());
    let finding = Finding::new(Symptom::StaleConnections, weight, what);
    Some(finding.on(first_of(lines)).mended_by(MENDS))
}

/// Those that nobody answers and no rule has translated, of Services that have endpoints: they began when there was no rule, or none that
/// led (kubernetes#48370).
fn untranslated(flows: &OfServices<'_>) -> Option<Finding> {
    let mut lost: BTreeMap<&str, usize> = BTreeMap::new();
    for (flow, (name, endpoints)) in flows {
        let is_led = flow.reply.src != flow.original.dst;
        if flow.unreplied && !is_led && !endpoints.is_empty() {
            *lost.entry(name).or_default() += 1;
        }
    }
    let lines = lost
        .iter()
        .map(|(name, flows)| format!("{name}: {flows} of UDP go to its own address, unanswered"));
    let what = "conntrack knows connections to Services' own addresses that no rule translated, though there are endpoints: a client that goes on sending from its port is answered by nobody";
    (!lost.is_empty()).then(|| {
        Finding::odd(Symptom::ConnectionsUntranslated, what)
            .on(first_of(lines))
            .mended_by(MENDS)
    })
}

#[cfg(test)]
mod tests {
    use crate::checks::tests::{found, kinds};

    const RULES: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-POSTROUTING - [0:0]\n\
        :KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n\
        -A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment \"kube-system/dns:dns cluster IP\" -m udp --dport 53 -j KUBE-SVC-A\n\
        -A KUBE-SVC-A -j KUBE-SEP-A\n-A KUBE-SEP-A -p udp -m udp -j DNAT --to-destination 10.20.1.2:53\nCOMMIT\n";

    fn flow(backend: &str) -> String {
        format!(
            "udp      17 25 src=10.20.1.9 dst=10.96.0.10 sport=40000 dport=53 src={backend} dst=10.20.1.9 sport=53 dport=40000 mark=0 use=1\n"
        )
    }

    #[test]
    fn a_connection_to_an_endpoint_that_is_gone_is_found_and_one_to_another_is_not() {
        assert_eq!(kinds(&[RULES, &flow("10.20.1.2")]), [""; 0]);
        let [(kind, text)] = found(&[RULES, &flow("10.20.1.7")]).try_into().unwrap();
        assert_eq!(kind, "stale-connections");
        assert!(
            text.contains("kube-system/dns:dns: 1 of UDP are led to 10.20.1.7:53"),
            "{text}"
        );
    }

    #[test]
    fn an_endpoint_that_a_slice_names_is_not_gone() {
        let slice = |ip: &str| {
            format!(
                "{{\"kind\": \"EndpointSlice\", \"metadata\": {{\"namespace\": \"kube-system\", \"labels\": {{\"kubernetes.io/service-name\": \"dns\"}}}}, \"ports\": [{{\"name\": \"dns\", \"port\": 53, \"protocol\": \"UDP\"}}], \"endpoints\": [{{\"addresses\": [\"10.20.1.2\"]}}, {{\"addresses\": [\"{ip}\"], \"conditions\": {{\"ready\": false, \"serving\": true, \"terminating\": true}}}}]}}"
            )
        };
        assert!(found(&[RULES, &flow("10.20.1.7"), &slice("10.20.1.7")]).is_empty());
        let [(kind, text)] = found(&[RULES, &flow("10.20.1.7"), &slice("10.20.1.8")])
            .try_into()
            .unwrap();
        assert_eq!(kind, "stale-connections");
        assert!(text.contains("no EndpointSlice names"), "{text}");
    }

    /// kubernetes#126130 and #48370, in the addresses of these tests.
    #[test]
    fn without_rules_services_and_slices_say_where_connections_are_to_be_led() {
        let objects = "{\"kind\": \"List\", \"items\": [{\"kind\": \"Service\", \"metadata\": {\"namespace\": \"kube-system\", \"name\": \"dns\"}, \
            \"spec\": {\"clusterIP\": \"10.96.0.10\", \"ports\": [{\"name\": \"dns\", \"port\": 53, \"protocol\": \"UDP\"}]}}, \
            {\"kind\": \"EndpointSlice\", \"metadata\": {\"namespace\": \"kube-system\", \"labels\": {\"kubernetes.io/service-name\": \"dns\"}}, \
            \"ports\": [{\"name\": \"dns\", \"port\": 53, \"protocol\": \"UDP\"}], \"endpoints\": [{\"addresses\": [\"10.20.1.2\"]}]}]}";
        assert_eq!(kinds(&[objects, &flow("10.20.1.2")]), [""; 0]);
        assert_eq!(kinds(&[objects, &flow("10.20.1.7")]), ["stale-connections"]);
    }

    #[test]
    fn a_connection_that_no_rule_translated_is_found_where_there_are_endpoints() {
        let nobody = "udp      17 29 src=10.20.1.9 dst=10.96.0.10 sport=43145 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.20.1.9 sport=53 dport=43145 mark=0 use=1\n";
        let [(kind, text)] = found(&[RULES, nobody]).try_into().unwrap();
        assert_eq!(kind, "connections-untranslated");
        assert!(text.contains("kube-system/dns:dns: 1 of UDP"), "{text}");
        let answered = nobody.replace("[UNREPLIED] ", "");
        assert_eq!(kinds(&[RULES, &answered]), [""; 0]);
        let empty = RULES.replace("-A KUBE-SVC-A -j KUBE-SEP-A\n", "");
        assert!(!kinds(&[&empty, nobody]).contains(&"connections-untranslated".to_owned()));
    }
}
