//! Felix and kube-proxy on one node, both models, on the real kernel: the incident, and its controls
//! with one knob turned. Nothing here deletes a chain or writes an error but the two of them.

use std::{rc::Rc, time::Duration};

use chainbreak_agents::{
    kube_proxy::{self, Event as Told},
    step::Stepper,
};
use serde_json::{Value, json};

use crate::{
    netns::{
        Backend::{self, Legacy, Nft},
        Netns,
    },
    node::Node,
};

const SECOND: Duration = Duration::from_secs(1);

/// A node with both agents, kube-proxy first, and one service that nobody changes.
struct Fight {
    netns: Rc<Netns>,
    backend: Backend,
    felix: Node,
    proxy: Node<Told>,
    /// At each change of the rules' state: is there a jump to the services?
    jump: Vec<bool>,
}

pub(crate) fn service(name: &str, ip: &str) -> Told {
    let spec = json!({"clusterIP": ip, "ports": [{"name": "http", "port": 80}]});
    let service = json!({"metadata": {"namespace": "test", "name": name}, "spec": spec});
    Told::Service(Box::new(serde_json::from_value(service).unwrap()))
}

pub(crate) fn endpoints(name: &str, ip: &str) -> Told {
    let slice = json!({
        "metadata": {
            "namespace": "test",
            "name": format!("{name}-1"),
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip]}],
        "ports": [{"name": "http", "port": 80}],
    });
    Told::Slice(Box::new(serde_json::from_value(slice).unwrap()))
}

impl Fight {
    fn new(backend: Backend, services: &[(&str, &str)], felix: &Value) -> Self {
        let netns = Netns::new();
        let config = kube_proxy::Config {
            cluster_cidr: Some("10.20.0.0/16".parse().unwrap()),
            node_ip: Some("172.18.0.2".parse().unwrap()),
            sync_period: SECOND * 5,
            ..kube_proxy::Config::new("1.32".parse().unwrap(), "n1")
        };
        let stepper = Stepper::new(move |io| kube_proxy::run(io, config, |_| ()));
        let mut proxy = Node::of(stepper, netns.exec_on(backend));
        for (name, ip) in services {
            proxy.tell(service(name, ip));
            proxy.tell(endpoints(name, "10.20.1.1"));
        }
        proxy.tell(Told::ServicesSynced);
        proxy.tell(Told::SlicesSynced);
        let mut spec = felix.clone();
        spec["iptablesBackend"] = json!(backend.word());
        spec["iptablesRefreshInterval"] = json!("2s");
        spec["iptablesPostWriteCheckInterval"] = json!("1s");
        Self {
            felix: Node::started(spec, netns.exec()),
            netns,
            backend,
            proxy,
            jump: Vec::new(),
        }
    }

    /// Lets time pass for both, from one deadline to the next.
    fn pass(&mut self, time: Duration) {
        let mut left = time;
        loop {
            let wakes = [self.felix.wakes_in(), self.proxy.wakes_in()];
            let step = wakes.into_iter().flatten().min().unwrap_or(left).min(left);
            self.felix.pass(step);
            self.proxy.pass(step);
            let rules = self.netns.save(self.backend, "nat");
            let jump = rules.iter().any(|rule| {
                rule.starts_with("-A PREROUTING") && rule.ends_with("-j KUBE-SERVICES")
            });
            if self.jump.last() != Some(&jump) {
                self.jump.push(jump);
            }
            left -= step;
            if left.is_zero() {
                return;
            }
        }
    }

    /// Replaces a service's endpoint every two seconds.
    fn churn(&mut self, name: &str, rounds: u8) {
        for round in 1..=rounds {
            self.proxy
                .tell(endpoints(name, &format!("10.20.2.{round}")));
            self.pass(SECOND * 2);
        }
    }
}

const TWO: [(&str, &str); 2] = [("nginx", "10.96.10.10"), ("busy", "10.96.10.11")];

fn in_bpf_mode_with_the_default_cleanup_the_two_fight(backend: Backend, error: &str) {
    let mut fight = Fight::new(backend, &TWO, &json!({"bpfEnabled": true}));
    fight.churn("busy", 12);
    let failed = fight.proxy.logged("Failed to execute iptables-restore");
    assert!(failed.len() >= 2, "{failed:#?}");
    assert!(
        failed.iter().all(|line| line.contains(error)),
        "{failed:#?}"
    );
    // Gone, healed by a full sync, gone again.
    assert!(
        fight
            .jump
            .windows(3)
            .any(|seen| seen == [false, true, false]),
        "{:?}",
        fight.jump
    );
    let rounds = fight
        .felix
        .logged("Found unexpected chain, marking for cleanup chainName=\"KUBE-SERVICES\"");
    assert!(rounds.len() >= 4, "{rounds:#?}");
    assert_eq!(fight.felix.exited, None);
}

#[test]
fn in_bpf_mode_with_the_default_cleanup_the_two_fight_on_legacy() {
    let error = "Couldn't load target `KUBE-SVC-";
    in_bpf_mode_with_the_default_cleanup_the_two_fight(Legacy, error);
}

#[test]
fn in_bpf_mode_with_the_default_cleanup_the_two_fight_on_nft() {
    let error = "Chain 'KUBE-SVC-";
    in_bpf_mode_with_the_default_cleanup_the_two_fight(Nft, error);
}

/// Every service is in the changed set: kube-proxy's partial sync succeeds and leaves the jump out.
fn the_outage_is_silent_when_every_service_changes(backend: Backend) {
    let mut fight = Fight::new(backend, &TWO[1..], &json!({"bpfEnabled": true}));
    fight.churn("busy", 8);
    assert!(fight.proxy.logged("Failed to execute").is_empty());
    assert_eq!(
        fight.jump,
        [false],
        "from Felix's first reading on, for good"
    );
}

#[test]
fn the_outage_is_silent_when_every_service_changes_on_legacy() {
    the_outage_is_silent_when_every_service_changes(Legacy);
}

#[test]
fn the_outage_is_silent_when_every_service_changes_on_nft() {
    the_outage_is_silent_when_every_service_changes(Nft);
}

#[test]
fn one_knob_turned_the_two_live_in_peace() {
    let cleanup_off = json!({"bpfEnabled": true, "bpfKubeProxyIptablesCleanupEnabled": false});
    for backend in [Legacy, Nft] {
        for spec in [cleanup_off.clone(), json!({"bpfEnabled": false})] {
            let mut fight = Fight::new(backend, &TWO, &spec);
            fight.churn("busy", 8);
            assert!(
                fight.proxy.logged("Failed to execute").is_empty(),
                "{backend:?} {spec}"
            );
            assert_eq!(fight.jump, [true], "{backend:?} {spec}");
        }
    }
}
