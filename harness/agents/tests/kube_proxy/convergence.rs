//! Whatever happened before, a kube-proxy leaves what one would write that knows only the end.
//!
//! Partial syncs are where this can break (issue 121362 lost updates in them): every run mixes
//! changes of services and endpoints, time, and restores that fail.

use std::collections::BTreeMap;

use chainbreak_agents::kube_proxy::Event;
use chainbreak_netfilter::{Family, Order, diff};
use proptest::{collection::vec, prelude::*};
use serde_json::json;

use crate::{
    desk::{Desk, HOUR, Invented, Kernel, SECOND, failed},
    objects::{config, service_gone, service_with, slice_of},
};

/// One thing that happens.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Service {
        name: usize,
        kind: usize,
    },
    ServiceGone {
        name: usize,
    },
    /// Endpoints by bits: there, and of those, ready.
    Slice {
        name: usize,
        there: u8,
        ready: u8,
    },
    SliceGone {
        name: usize,
    },
    /// Time passes, in tenths of a second.
    Pass {
        tenths: u32,
    },
    /// Restores fail from now on, or no more.
    Restores {
        fail: bool,
    },
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let name = || 0..4_usize;
    prop_oneof![
        4 => (name(), 0..5_usize).prop_map(|(name, kind)| Step::Service { name, kind }),
        1 => name().prop_map(|name| Step::ServiceGone { name }),
        6 => (name(), any::<u8>(), any::<u8>())
            .prop_map(|(name, there, ready)| Step::Slice { name, there, ready }),
        1 => name().prop_map(|name| Step::SliceGone { name }),
        4 => (0..50_u32).prop_map(|tenths| Step::Pass { tenths }),
        1 => any::<bool>().prop_map(|fail| Step::Restores { fail }),
    ]
}

fn service(name: usize, kind: usize) -> Event {
    let ports = json!([{"name": "http", "port": 80, "nodePort": 30_000 + name}]);
    let policy = ["Cluster", "Local"][kind % 2];
    let (type_, ports) = match kind {
        0 => ("ClusterIP", json!([{"name": "http", "port": 80}])),
        1 | 2 => ("NodePort", ports),
        _ => ("LoadBalancer", ports),
    };
    let spec = json!({
        "type": type_,
        "clusterIP": format!("10.96.0.{name}"),
        "externalTrafficPolicy": policy,
        "loadBalancerSourceRanges": if kind == 4 { vec!["203.0.113.0/24"] } else { vec![] },
        "ports": ports,
    });
    let ingress = json!([{"ip": format!("192.0.2.{name}")}]);
    let status = if kind > 2 {
        json!({"loadBalancer": {"ingress": ingress}})
    } else {
        json!({})
    };
    service_with(&format!("s{name}"), json!({}), spec, status)
}

fn slice(name: usize, there: u8, ready: u8) -> Event {
    let bits = (0..8).filter(|bit| there & (1 << bit) != 0);
    let endpoints = bits.map(|bit| {
        let node = if bit % 2 == 0 { "n1" } else { "n2" };
        let conditions = json!({"ready": ready & (1 << bit) != 0});
        json!({"addresses": [format!("10.20.{name}.{bit}")], "nodeName": node, "conditions": conditions})
    });
    let port = json!({"name": "http", "port": 80});
    slice_of(&format!("s{name}"), port, endpoints.collect())
}

/// What the API holds, by kind and name.
pub(crate) type Api = BTreeMap<(bool, usize), Event>;

fn take(step: Step, desk: &mut Desk<Invented>, api: &mut Api) {
    match step {
        Step::Restores { fail: true } => {
            let output = failed(4, "Another app is currently holding the xtables lock.\n");
            desk.kernel.outputs.insert("iptables-restore", output);
        }
        Step::Restores { fail: false } => desk.kernel.outputs.clear(),
        step => happen(step, desk, api),
    }
}

/// Everything but what becomes of restores.
pub(crate) fn happen<K: Kernel>(step: Step, desk: &mut Desk<K>, api: &mut Api) {
    match step {
        Step::Service { name, kind } => {
            api.insert((true, name), service(name, kind));
            desk.tell(service(name, kind));
        }
        Step::ServiceGone { name } => {
            api.remove(&(true, name));
            desk.tell(service_gone(&format!("s{name}")));
        }
        Step::Slice { name, there, ready } => {
            api.insert((false, name), slice(name, there, ready));
            desk.tell(slice(name, there, ready));
        }
        Step::SliceGone { name } => {
            api.remove(&(false, name));
            desk.tell(Event::SliceGone {
                namespace: "test".to_owned(),
                name: format!("s{name}-1"),
            });
        }
        Step::Pass { tenths } => desk.pass(SECOND * tenths / 10),
        Step::Restores { .. } => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_history_ends_in_the_rules_of_its_end(
        version in prop::sample::select(vec!["1.20", "1.26", "1.32", "1.34"]),
        steps in vec(step(), 0..40),
    ) {
        let mut desk = Desk::synced(config(version), Invented::default(), []);
        let mut api = Api::new();
        for step in steps {
            take(step, &mut desk, &mut api);
        }
        desk.kernel.outputs.clear();
        // The longest wait is that of a failed sync whose error was lost: the hourly run.
        desk.pass(HOUR + SECOND);
        let fresh = Desk::synced(config(version), Invented::default(), api.into_values());
        let between = diff(Family::V4, &desk.kernel.rules, &fresh.kernel.rules, Order::Any);
        prop_assert!(between.is_empty(), "{version}: {between:#?}");
    }
}
