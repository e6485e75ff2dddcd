//! kube-proxy's rules held against what the API holds.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::case::Symptom;

use super::{Context, first_of};
use crate::Finding;

const SYNC: &str =
    "kube-proxy's log says whether its syncs fail; a restart writes everything again";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    if context.led.is_empty() {
        return Vec::new();
    }
    let missing = without_rules(context);
    missing
        .into_iter()
        .chain(other_endpoints(context))
        .collect()
}

/// Services with ready endpoints that no rule leads. Which families' rules were listed, their own addresses say.
fn without_rules(context: &Context<'_>) -> Option<Finding> {
    let (objects, led) = (&context.evidence.objects, &context.led);
    let endpoints = objects.endpoints()?;
    let known: BTreeSet<_> = led.iter().map(|it| (it.address, it.port)).collect();
    let listed = |is_v6: bool| led.iter().any(|it| it.address.is_ipv6() == is_v6);
    let mut missing = Vec::new();
    for port in objects.services().into_iter().filter(|it| it.is_plain) {
        let Some(ready) = endpoints.get(&port.name).map(|it| &it.ready) else {
            continue;
        };
        let addresses = port.addresses.iter().filter(|it| listed(it.is_ipv6()));
        let unknown = addresses.filter(|address| {
            let has_some = ready.iter().any(|at| at.is_ipv6() == address.is_ipv6());
            has_some && !known.contains(&(**address, port.port))
        });
        missing.extend(
            unknown.map(|address| format!("{} at {address}, port {}", port.name, port.port)),
        );
    }
    let what = "services that have ready endpoints are led by no rule: kube-proxy has not written what the API holds";
    (!missing.is_empty()).then(|| {
        Finding::breaks(Symptom::ServiceWithoutRules, what)
            .on(first_of(missing))
            .mended_by(SYNC)
    })
}

/// Endpoints in rules that no slice names, and those that are missing there. What a policy, a hint or a label leaves out is not missing.
fn other_endpoints(context: &Context<'_>) -> Option<Finding> {
    let objects = &context.evidence.objects;
    let endpoints = objects.endpoints()?;
    let plain = objects.plain();
    let by_name: BTreeMap<String, _> = endpoints
        .iter()
        .map(|(name, all)| (name.to_string(), all))
        .collect();
    let mut lines = Vec::new();
    for it in &context.led {
        let Some(known) = by_name.get(&it.name) else {
            continue;
        };
        let gone = it.endpoints.iter().filter(|at| !known.all.contains(at));
        lines.extend(
            gone.map(|at| format!("{} is led to {at}, which no EndpointSlice names", it.name)),
        );
        if known.are_hinted || !plain.contains(&it.name) {
            continue;
        }
        let ready = known.ready.iter();
        let ready = ready.filter(|at| at.is_ipv6() == it.address.is_ipv6());
        let missing = ready.filter(|at| !it.endpoints.contains(at));
        lines.extend(missing.map(|at| format!("{} is not led to {at}, which is ready", it.name)));
    }
    let what = "rules lead to other endpoints than the API holds: kube-proxy is behind, or one was listed long before the other";
    (!lines.is_empty()).then(|| {
        Finding::breaks(Symptom::EndpointsDiffer, what)
            .on(first_of(lines))
            .mended_by(SYNC)
    })
}

#[cfg(test)]
mod tests {
    use crate::checks::tests::{HEALTHY, found, kinds, service};

    fn objects(endpoints: &[&str], address: &str) -> String {
        let items = service(("test", "nginx"), address, ("http", 80, 80), endpoints);
        serde_json::json!({ "kind": "List", "items": items }).to_string()
    }

    #[test]
    fn endpoints_that_differ_from_the_apis_are_found_either_way() {
        let (listing, address) = (HEALTHY[3], "10.96.1.0");
        let in_rules = ["10.20.1.2", "10.20.1.3"];
        let agrees = [listing, &objects(&in_rules, address)];
        assert!(found(&agrees).is_empty(), "{:?}", found(&agrees));
        let [(kind, text)] = found(&[listing, &objects(&["10.20.1.99", in_rules[0]], address)])
            .try_into()
            .unwrap();
        assert_eq!(kind, "endpoints-differ");
        assert!(
            text.contains("is not led to 10.20.1.99:80, which is ready"),
            "{text}"
        );
        assert!(
            text.contains(&format!(
                "is led to {}:80, which no EndpointSlice names",
                in_rules[1]
            )),
            "{text}"
        );
    }

    #[test]
    fn an_endpoint_is_missed_also_where_nobody_says_the_services_address() {
        let [mut service, slice] = service(
            ("test", "nginx"),
            "10.96.1.0",
            ("http", 80, 80),
            &["10.20.1.2", "10.20.1.3", "10.20.1.99"],
        );
        service["spec"].as_object_mut().unwrap().remove("clusterIP");
        let objects = serde_json::json!({ "kind": "List", "items": [service, slice] }).to_string();
        let [(_, text)] = found(&[HEALTHY[3], &objects]).try_into().unwrap();
        assert!(
            text.contains("is not led to 10.20.1.99:80, which is ready"),
            "{text}"
        );
    }

    #[test]
    fn a_service_that_no_rule_knows_is_found() {
        let other = objects(&["10.20.1.2"], "10.96.77.77");
        assert!(
            kinds(&[HEALTHY[3], &other])
                .iter()
                .any(|it| it == "service-without-rules")
        );
    }

    #[test]
    fn what_a_policy_or_a_hint_leaves_out_is_not_missed() {
        let elsewhere = objects(&["10.20.1.2", "10.20.1.3", "10.20.9.9"], "10.96.1.0");
        assert_eq!(kinds(&[HEALTHY[3], &elsewhere]), ["endpoints-differ"]);
        for (from, to) in [
            (
                "\"clusterIP\"",
                "\"internalTrafficPolicy\":\"Local\",\"clusterIP\"",
            ),
            (
                "\"clusterIP\"",
                "\"trafficDistribution\":\"PreferClose\",\"clusterIP\"",
            ),
            (
                "\"addresses\":[\"10.20.1.2\"]",
                "\"hints\":{\"forZones\":[]},\"addresses\":[\"10.20.1.2\"]",
            ),
        ] {
            let other = elsewhere.replacen(from, to, 1);
            assert_ne!(other, elsewhere, "{from}");
            assert!(
                found(&[HEALTHY[3], &other]).is_empty(),
                "{:?}",
                found(&[HEALTHY[3], &other])
            );
        }
    }
}
