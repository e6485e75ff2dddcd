//! The elements that lead to a service's ports, and the chains of those that changed.
//!
//! `service-` holds a port's endpoints for the cluster policy, `local-` those for the local one; `external-`
//! is where all traffic from outside comes in, `firewall-` what drops traffic from outside the source ranges.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    elements::Mirrors,
    endpoints::Named,
    nft::Listed,
    setup::{MARK_MASQ, REJECT, mark},
    transaction::Transaction,
};
use crate::kube_proxy::{
    dataplane::View,
    names::{PortName, ServiceChain},
    ports::ServicePort,
    topology::Routes,
};

/// The chains and sets that something uses, written now or earlier.
#[derive(Debug, Default)]
pub(super) struct Active {
    pub(super) chains: BTreeSet<String>,
    pub(super) affinity_sets: BTreeSet<String>,
}

/// Where a sync writes services.
#[derive(Debug)]
pub(super) struct Output<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) tx: &'a mut Transaction,
    pub(super) mirrors: &'a mut Mirrors,
    /// What an earlier process left and is taken as it is: an endpoint's chain has its rules.
    pub(super) kept: &'a Listed,
    pub(super) active: Active,
}

/// One port of a service.
pub(super) struct Port<'a> {
    name: String,
    pub(super) spec: &'a ServicePort,
    pub(super) routes: Routes<'a>,
    pub(super) endpoints: Vec<Named<'a>>,
    /// Whether its own chains are written.
    changed: bool,
    pub(super) cluster_chain: String,
    pub(super) local_chain: String,
    external_chain: String,
    firewall_chain: String,
}

impl Port<'_> {
    fn uses_firewall(&self) -> bool {
        !self.spec.load_balancer_ips.is_empty() && !self.spec.source_ranges.is_empty()
    }

    fn uses_external(&self) -> bool {
        self.routes.uses_external(self.spec)
    }

    fn internal_chain(&self) -> &str {
        if self.spec.internal_local {
            &self.local_chain
        } else {
            &self.cluster_chain
        }
    }

    /// No endpoint anywhere: reject. Some, but none that the policy allows: drop.
    fn refusal(&self) -> String {
        if self.routes.usable.anywhere {
            "drop".to_owned()
        } else {
            format!("goto {REJECT}")
        }
    }

    fn key(&self, ip: IpAddr) -> String {
        let (protocol, port) = (self.spec.protocol, self.spec.port);
        format!("{ip} . {protocol} . {port}")
    }

    pub(super) fn is_sticky(&self) -> bool {
        self.spec.sticky_seconds.is_some()
    }
}

impl Output<'_> {
    pub(super) fn port(&mut self, name: &PortName, spec: &ServicePort) {
        let View {
            config,
            tracker,
            changed,
            node_labels,
            ..
        } = *self.view;
        let routes = Routes::of(tracker.endpoints(name), spec, node_labels, config);
        let base = name.base();
        let chain = |kind: ServiceChain| format!("{}{base}", kind.nftables_prefix());
        let endpoints = routes.usable.reachable.iter();
        let endpoints = endpoints.map(|endpoint| self.named(name, spec, endpoint));
        let port = Port {
            name: name.to_string(),
            spec,
            endpoints: endpoints.collect(),
            routes,
            changed: changed.is_none_or(|changed| changed.contains(&name.service)),
            cluster_chain: chain(ServiceChain::Service),
            local_chain: chain(ServiceChain::Local),
            external_chain: chain(ServiceChain::External),
            firewall_chain: chain(ServiceChain::Firewall),
        };
        self.declare(&port);
        self.dispatch(&port);
        if port.changed {
            self.policies(&port);
            self.balance(&port);
        }
    }

    /// Chains before everything that leads to them.
    fn declare(&mut self, port: &Port<'_>) {
        self.declare_endpoints(port, port.changed);
        let usable = &port.routes.usable;
        for (used, chain) in [
            (!usable.cluster.is_empty(), &port.cluster_chain),
            (!usable.local.is_empty(), &port.local_chain),
            (port.uses_external(), &port.external_chain),
            (port.uses_firewall(), &port.firewall_chain),
        ] {
            if used {
                self.chain(chain, port.changed);
            }
        }
    }

    pub(super) fn chain(&mut self, name: &str, written: bool) {
        if self.active.chains.insert(name.to_owned()) && written {
            self.tx.empty_chain(name, "");
        }
    }

    /// The elements that lead to the port, or refuse it.
    fn dispatch(&mut self, port: &Port<'_>) {
        let (tx, spec, mirrors) = (&mut *self.tx, port.spec, &mut *self.mirrors);
        let Routes {
            usable,
            has_internal,
            has_external,
        } = &port.routes;
        let comment = Some(port.name.as_str());
        let ip = spec.cluster_ip.to_string();
        mirrors.cluster_ips.ensure(tx, ip, "", None);
        let key = port.key(spec.cluster_ip);
        if *has_internal {
            let to = format!("goto {}", port.internal_chain());
            mirrors.service_ips.ensure(tx, key, &to, None);
        } else {
            let refusal = port.refusal();
            mirrors
                .no_endpoint_services
                .ensure(tx, key, &refusal, comment);
        }
        let external = format!("goto {}", port.external_chain);
        for ip in spec.external_ips.iter().chain(&spec.load_balancer_ips) {
            let key = port.key(*ip);
            if usable.anywhere {
                mirrors.service_ips.ensure(tx, key.clone(), &external, None);
            }
            if !has_external {
                let refusal = port.refusal();
                mirrors
                    .no_endpoint_services
                    .ensure(tx, key, &refusal, comment);
            }
        }
        if port.uses_firewall() {
            let to = format!("goto {}", port.firewall_chain);
            for ip in &spec.load_balancer_ips {
                mirrors.firewall_ips.ensure(tx, port.key(*ip), &to, None);
            }
        }
        if spec.node_port != 0 {
            let key = format!("{} . {}", spec.protocol, spec.node_port);
            if usable.anywhere {
                mirrors
                    .service_node_ports
                    .ensure(tx, key.clone(), &external, None);
            }
            if !has_external {
                let refusal = port.refusal();
                mirrors
                    .no_endpoint_node_ports
                    .ensure(tx, key, &refusal, comment);
            }
        }
    }

    /// Rules for traffic from outside the cluster, and for what comes from outside to the cluster IP.
    fn policies(&mut self, port: &Port<'_>) {
        if port.routes.has_internal && self.view.config.version.has_endpoint_chains() {
            self.masquerade_foreign(port);
        }
        if port.uses_external() {
            self.external(port);
        }
        if port.uses_firewall() {
            self.source_ranges(port);
        }
    }

    fn masquerade_foreign(&mut self, port: &Port<'_>) {
        let config = self.view.config;
        let ip = self.tx.words.ip;
        let foreign = match config.nft_from_pods(ip, false) {
            _ if config.masquerade_all => String::new(),
            Some(foreign) => format!(" {foreign}"),
            None => return,
        };
        let ServicePort {
            protocol,
            port: number,
            cluster_ip,
            ..
        } = port.spec;
        let dport = if config.version.matches_port_again() {
            format!(" {protocol} dport {number}")
        } else {
            String::new()
        };
        self.tx.rule(
            port.internal_chain(),
            format_args!("{ip} daddr {cluster_ip}{dport}{foreign} jump {MARK_MASQ}"),
        );
    }

    fn external(&mut self, port: &Port<'_>) {
        let has_chains = self.view.config.version.has_endpoint_chains();
        let (tx, chain) = (&mut *self.tx, &port.external_chain);
        let mark = if has_chains {
            format!("jump {MARK_MASQ}")
        } else {
            mark(self.view.config)
        };
        if port.spec.external_local {
            // Pods and the node itself are not subject to a local policy.
            let cluster = &port.cluster_chain;
            if let Some(pods) = self.view.config.nft_from_pods(tx.words.ip, true) {
                let rule = format!("{pods} goto {cluster}");
                tx.commented_rule(chain, rule, "short-circuit pod traffic");
            }
            for (to, comment) in [
                (mark, "masquerade local traffic"),
                (format!("goto {cluster}"), "short-circuit local traffic"),
            ] {
                tx.commented_rule(chain, format_args!("fib saddr type local {to}"), comment);
            }
        } else if has_chains {
            tx.rule(chain, mark);
        } else {
            tx.commented_rule(chain, mark, "masquerade");
        }
        if port.routes.has_external {
            let policy = if port.spec.external_local {
                &port.local_chain
            } else {
                &port.cluster_chain
            };
            tx.rule(chain, format_args!("goto {policy}"));
        }
    }

    /// A load balancer's address is often one of the node's own: a request from the node then comes back
    /// with it as its source.
    fn source_ranges(&mut self, port: &Port<'_>) {
        let ranges = &port.spec.source_ranges;
        let mut sources: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        if ranges.iter().any(|it| it.contains(&self.view.node_ip)) {
            let ips = port.spec.load_balancer_ips.iter();
            sources.extend(ips.map(ToString::to_string));
        }
        let (ip, sources) = (self.tx.words.ip, sources.join(" , "));
        self.tx.rule(
            &port.firewall_chain,
            format_args!("{ip} saddr != {{ {sources} }} drop"),
        );
    }
}
