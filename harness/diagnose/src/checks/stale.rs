//! Connections that conntrack leads to endpoints that services no longer have.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use chainbreak_model::case::Symptom;

use super::{Context, first_of};
use crate::{Finding, Weight};

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let mut now: BTreeMap<(IpAddr, &str, u16), (&str, BTreeSet<SocketAddr>)> = BTreeMap::new();
    for it in &context.led {
        let known = now
            .entry((it.address, &it.protocol, it.port))
            .or_insert_with(|| (&it.name, BTreeSet::new()));
        known.1.extend(&it.endpoints);
    }
    let mut stale: BTreeMap<(&str, SocketAddr), usize> = BTreeMap::new();
    for flow in context.evidence.dumps.flows() {
        // What goes on over TCP ends with its pod; a UDP client that keeps its port is led there as long as it sends.
        let (Some(port), Some(from)) = (flow.original.dport, flow.reply.sport) else {
            continue;
        };
        let key = (flow.original.dst, flow.protocol.as_str(), port);
        let Some((name, endpoints)) = now.get(&key).filter(|_| flow.protocol == "udp") else {
            continue;
        };
        let at = SocketAddr::new(flow.reply.src, from);
        if flow.reply.src != flow.original.dst && !endpoints.contains(&at) {
            *stale.entry((*name, at)).or_default() += 1;
        }
    }
    // Whose endpoints are told, those that end are no mistake: they serve what they have.
    let slices = context.evidence.objects.endpoints();
    let named: Option<BTreeSet<SocketAddr>> = slices.as_ref().map(|slices| {
        slices
            .values()
            .flat_map(|it| it.all.iter().copied())
            .collect()
    });
    stale.retain(|(_, at), _| named.as_ref().is_none_or(|named| !named.contains(at)));
    if stale.is_empty() {
        return Vec::new();
    }
    let lines = stale.iter().map(|((name, at), flows)| {
        format!("{name}: {flows} of UDP are led to {at}, to which no rule leads any more")
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
    let mends = "`conntrack -D -p udp --orig-dst ADDRESS --orig-port-dst PORT` ends them; the next packet is led by the rules";
    vec![finding.on(first_of(lines)).mended_by(mends)]
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
}
