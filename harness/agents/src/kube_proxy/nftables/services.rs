//! The elements that lead to a service's ports, and the chains of those that changed.
//!
//! `service-` holds a port's endpoints for the cluster policy, `local-` those for the local one; `external-`
//! is where all traffic from outside comes in, `firewall-` what drops traffic from outside the source ranges;
//! `endpoint-` belongs to one endpoint of one port.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    elements::Mirrors,
    names,
    nft::Listed,
    setup::{MARK_MASQ, REJECT},
    transaction::Transaction,
};
use crate::kube_proxy::{
    dataplane::View, names::PortName, ports::ServicePort, slices::Endpoint, topology::Routes,
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
struct Port<'a> {
    name: String,
    spec: &'a ServicePort,
    routes: Routes<'a>,
    endpoints: Vec<Named<'a>>,
    /// Whether its own chains are written.
    changed: bool,
    cluster_chain: String,
    local_chain: String,
    external_chain: String,
    firewall_chain: String,
}

/// An endpoint with what its names end in.
struct Named<'a> {
    endpoint: &'a Endpoint,
    base: String,
    kept: bool,
}

impl Named<'_> {
    fn chain(&self) -> String {
        format!("endpoint-{}", self.base)
    }

    fn affinity_set(&self) -> String {
        format!("{}{}", names::AFFINITY, self.base)
    }
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

    fn is_sticky(&self) -> bool {
        self.spec.sticky_seconds.is_some()
    }

    fn chain_of(&self, endpoint: &Endpoint) -> Option<&Named<'_>> {
        let mut endpoints = self.endpoints.iter();
        endpoints.find(|it| it.endpoint.text == endpoint.text)
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
        let base = names::of_port(name);
        let endpoints = routes.usable.reachable.iter();
        let endpoints = endpoints.map(|endpoint| self.named(name, spec, endpoint));
        let port = Port {
            name: name.to_string(),
            spec,
            endpoints: endpoints.collect(),
            routes,
            changed: changed.is_none_or(|changed| changed.contains(&name.service)),
            cluster_chain: format!("service-{base}"),
            local_chain: format!("local-{base}"),
            external_chain: format!("external-{base}"),
            firewall_chain: format!("firewall-{base}"),
        };
        self.declare(&port);
        self.dispatch(&port);
        if port.changed {
            self.policies(&port);
            self.balance(&port);
            self.endpoints(&port);
        }
    }

    fn named<'e>(&self, name: &PortName, spec: &ServicePort, endpoint: &'e Endpoint) -> Named<'e> {
        let mut named = Named {
            endpoint,
            base: names::of_endpoint(name, endpoint.address),
            kept: false,
        };
        let remembers = self.kept.sets.contains(&named.affinity_set());
        named.kept =
            self.kept.chains.contains(&named.chain()) && remembers == spec.sticky_seconds.is_some();
        named
    }

    /// Chains before everything that leads to them.
    fn declare(&mut self, port: &Port<'_>) {
        for endpoint in &port.endpoints {
            self.chain(&endpoint.chain(), port.changed && !endpoint.kept);
            if port.is_sticky() {
                self.active.affinity_sets.insert(endpoint.affinity_set());
            }
        }
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

    fn chain(&mut self, name: &str, written: bool) {
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
        if port.routes.has_internal {
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
        let foreign = match config.cluster_cidr {
            _ if config.masquerade_all => String::new(),
            Some(cidr) => format!(" {ip} saddr != {cidr}"),
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
        let (tx, chain) = (&mut *self.tx, &port.external_chain);
        let ip = tx.words.ip;
        if port.spec.external_local {
            // Pods and the node itself are not subject to a local policy.
            let cluster = &port.cluster_chain;
            if let Some(cidr) = self.view.config.cluster_cidr {
                let rule = format!("{ip} saddr {cidr} goto {cluster}");
                tx.commented_rule(chain, rule, "short-circuit pod traffic");
            }
            for (to, comment) in [
                (format!("jump {MARK_MASQ}"), "masquerade local traffic"),
                (format!("goto {cluster}"), "short-circuit local traffic"),
            ] {
                tx.commented_rule(chain, format_args!("fib saddr type local {to}"), comment);
            }
        } else {
            tx.rule(chain, format_args!("jump {MARK_MASQ}"));
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

    /// Sticky clients first, then a fair dice.
    fn balance(&mut self, port: &Port<'_>) {
        let (ip, address) = (self.tx.words.ip, self.tx.words.address);
        if let Some(seconds) = port.spec.sticky_seconds {
            for endpoint in &port.endpoints {
                let body = format!("type {address} ; flags dynamic,timeout ; timeout {seconds}s");
                self.tx.add("set", &endpoint.affinity_set(), &body);
            }
        }
        let usable = &port.routes.usable;
        for (chain, endpoints) in [
            (&port.cluster_chain, &usable.cluster),
            (&port.local_chain, &usable.local),
        ] {
            let endpoints = endpoints.iter().filter_map(|it| port.chain_of(it));
            let endpoints: Vec<&Named<'_>> = endpoints.collect();
            if endpoints.is_empty() {
                continue;
            }
            if port.is_sticky() {
                for endpoint in &endpoints {
                    let (set, to) = (endpoint.affinity_set(), endpoint.chain());
                    self.tx
                        .rule(chain, format_args!("{ip} saddr @{set} goto {to}"));
                }
            }
            let faces = endpoints.iter().enumerate();
            let faces: Vec<String> = faces
                .map(|(number, it)| format!("{number} : goto {}", it.chain()))
                .collect();
            let (sides, faces) = (faces.len(), faces.join(" , "));
            self.tx.rule(
                chain,
                format_args!("numgen random mod {sides} vmap {{ {faces} }}"),
            );
        }
    }

    /// Each masquerades what comes back to itself, then DNATs.
    fn endpoints(&mut self, port: &Port<'_>) {
        let ip = self.tx.words.ip;
        for endpoint in port.endpoints.iter().filter(|it| !it.kept) {
            let (chain, address) = (endpoint.chain(), endpoint.endpoint.address);
            let source = address.ip();
            self.tx
                .rule(&chain, format_args!("{ip} saddr {source} jump {MARK_MASQ}"));
            if port.is_sticky() {
                let set = endpoint.affinity_set();
                self.tx
                    .rule(&chain, format_args!("update @{set} {{ {ip} saddr }}"));
            }
            let protocol = port.spec.protocol;
            self.tx.rule(
                &chain,
                format_args!("meta l4proto {protocol} dnat to {address}"),
            );
        }
    }
}
