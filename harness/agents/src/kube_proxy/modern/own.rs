//! The chains that belong to one port alone: what a partial sync leaves out unless its service changed.

use std::fmt::Display;

use super::{Lines, Port};
use crate::kube_proxy::{input::Input, rules};

impl Port<'_> {
    /// The chains that belong to this port alone.
    pub(super) fn own_chains(&self, input: &mut Input) {
        let Input {
            nat_chains,
            nat_rules,
            ..
        } = input;
        self.masquerade_foreign(nat_rules);
        if self.uses_external_chain() {
            nat_chains.chain(&self.external_chain);
            self.external(nat_rules);
        }
        if self.uses_firewall_chain() {
            nat_chains.chain(&self.firewall_chain);
            self.source_ranges(nat_rules);
        }
        for (chain, endpoints) in [
            (&self.cluster_chain, &self.routes.usable.cluster),
            (&self.local_chain, &self.routes.usable.local),
        ] {
            if !endpoints.is_empty() {
                nat_chains.chain(chain);
                rules::balance(
                    chain,
                    self.spec.sticky_seconds,
                    endpoints,
                    nat_rules,
                    |it| {
                        self.scene
                            .comment(&format!("\"{} -> {}\"", self.name, it.text))
                    },
                );
            }
        }
        if self.marks_what_is_not_local() {
            let (name, chain) = (&self.name, &self.local_chain);
            nat_chains.chain(chain);
            nat_rules.add(format_args!(
                "-A {chain} -m comment --comment \"{name} has no local endpoints\" -j KUBE-MARK-DROP"
            ));
        }
        let comment = self.scene.comment(&self.name);
        for endpoint in &self.routes.usable.reachable {
            nat_chains.chain(&endpoint.chain);
            let source = endpoint.address.ip().to_string();
            rules::endpoint(&comment, self.spec, endpoint, &source, nat_rules);
        }
    }

    /// What comes to the cluster IP from outside the cluster must come back through this node.
    fn masquerade_foreign(&self, nat: &mut Lines) {
        let config = self.scene.config;
        let not_local = match config.if_local() {
            _ if config.masquerade_all => String::new(),
            Some(local) => format!(" ! {local}"),
            None => return,
        };
        if !self.routes.has_internal {
            return;
        }
        let (chain, to) = (
            self.internal_chain(),
            self.destination(self.spec.cluster_ip),
        );
        nat.add(format_args!(
            "-A {chain} -m comment --comment \"{} cluster IP\"{to}{not_local} -j KUBE-MARK-MASQ",
            self.name
        ));
    }

    fn external(&self, nat: &mut Lines) {
        let (name, chain) = (&self.name, &self.external_chain);
        if self.spec.external_local {
            self.short_circuits(nat);
        } else {
            nat.add(format_args!(
                "-A {chain} -m comment --comment \"masquerade traffic for {name} external \
                 destinations\" -j KUBE-MARK-MASQ"
            ));
        }
        if self.routes.has_external {
            let policy = if self.spec.external_local {
                &self.local_chain
            } else {
                &self.cluster_chain
            };
            nat.add(format_args!("-A {chain} -j {policy}"));
        }
    }

    /// Pods and the node itself are not subject to a local policy.
    fn short_circuits(&self, nat: &mut Lines) {
        let (name, chain, to) = (&self.name, &self.external_chain, &self.cluster_chain);
        if let Some(local) = self.scene.config.if_local() {
            nat.add(format_args!(
                "-A {chain} -m comment --comment \"pod traffic for {name} external destinations\" \
                 {local} -j {to}"
            ));
        }
        for (what, to) in [("masquerade", "KUBE-MARK-MASQ"), ("route", to)] {
            nat.add(format_args!(
                "-A {chain} -m comment --comment \"{what} LOCAL traffic for {name} external \
                 destinations\" -m addrtype --src-type LOCAL -j {to}"
            ));
        }
    }

    fn source_ranges(&self, nat: &mut Lines) {
        let (name, chain, to) = (&self.name, &self.firewall_chain, &self.external_chain);
        let mut accept = |source: &dyn Display| {
            nat.add(format_args!(
                "-A {chain} -m comment --comment \"{name} loadbalancer IP\" -s {source} -j {to}"
            ));
        };
        let ranges = &self.spec.source_ranges;
        for range in ranges {
            accept(range);
        }
        // A load balancer's address is often one of the node's own: a request from the node then
        // comes back with it as its source.
        if ranges.iter().any(|it| it.contains(&self.scene.node_ip)) {
            for ip in &self.spec.load_balancer_ips {
                accept(ip);
            }
        }
        let version = &self.scene.config.version;
        if version.drops_by_mark() {
            nat.add(format_args!(
                "-A {chain} -m comment --comment \"{name} loadbalancer IP\" -j KUBE-MARK-DROP"
            ));
        }
        if !version.says_what_becomes_of_the_rest() {
            return;
        }
        nat.add(format_args!(
            "-A {chain} -m comment --comment \"other traffic to {name} will be dropped by \
             KUBE-PROXY-FIREWALL\""
        ));
    }
}
