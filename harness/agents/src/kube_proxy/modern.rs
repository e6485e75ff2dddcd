//! The rule set of 1.24 and later (proxier.go, `syncProxyRules`).
//!
//! `KUBE-SVC-` holds a port's endpoints for the cluster policy, `KUBE-SVL-` those for the local one,
//! `KUBE-EXT-` is where all traffic from outside comes in, `KUBE-FW-` stands before it when source
//! ranges are given. What is never accepted is dropped in the filter table; 1.24 marks it in nat, for kubelet's
//! rule to drop it there.

mod own;

use std::{collections::BTreeSet, fmt::Display};

use super::{
    dataplane::counters::LOCALHOST,
    input::{Input, Lines},
    names::{PortName, ServiceChain},
    ports::ServicePort,
    rules::{self, Scene},
    topology::Routes,
};

const SERVICE_CHAINS: [&str; 5] = [
    ServiceChain::Service.iptables_prefix(),
    ServiceChain::Local.iptables_prefix(),
    "KUBE-SEP-",
    ServiceChain::Firewall.iptables_prefix(),
    ServiceChain::External.iptables_prefix(),
];

/// What `KUBE-EXT-` and `KUBE-SVL-` took the place of.
const XLB: &str = "KUBE-XLB-";

/// Renders the restore input.
pub(crate) fn render(scene: &Scene<'_>) -> Input {
    let mut input = Input::default();
    declare(scene, &mut input);
    rules::masquerade(scene, &mut input.nat_rules);
    firewall(scene, &mut input);
    let mut active = BTreeSet::new();
    for &(name, port) in scene.ports {
        let port = Port::new(scene, name, port);
        port.dispatch(&mut input);
        port.active(&mut active);
        if scene.writes(&name.service) {
            port.own_chains(&mut input);
        }
    }
    let mut prefixes = SERVICE_CHAINS.to_vec();
    if scene.config.version.removes_xlb_chains() {
        prefixes.push(XLB);
    }
    scene.remove_stale(&prefixes, &active, &mut input);
    rules::tail(scene, &mut input.nat_rules);
    rules::forward(scene, &mut input.filter_rules);
    rules::forward_answers(&mut input.filter_rules);
    input
}

fn declare(scene: &Scene<'_>, input: &mut Input) {
    for chain in [
        "KUBE-SERVICES",
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-FORWARD",
        "KUBE-NODEPORTS",
    ] {
        input.filter_chains.chain(chain);
    }
    if !scene.config.version.drops_by_mark() {
        input.filter_chains.chain("KUBE-PROXY-FIREWALL");
    }
    for chain in [
        "KUBE-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-POSTROUTING",
        "KUBE-MARK-MASQ",
    ] {
        input.nat_chains.chain(chain);
    }
}

/// The copy of kubelet's rule that closes what `route_localnet` opens.
fn firewall(scene: &Scene<'_>, input: &mut Input) {
    if !scene.config.version.writes_kubelets_firewall() {
        return;
    }
    if !scene.config.takes_localhost() {
        return;
    }
    input.filter_chains.chain("KUBE-FIREWALL");
    input.filter_rules.add(format_args!(
        "-A KUBE-FIREWALL -m comment --comment \"block incoming localnet connections\" \
         -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
    ));
}

/// One port of a service and where its traffic goes.
struct Port<'a> {
    scene: &'a Scene<'a>,
    spec: &'a ServicePort,
    name: String,
    routes: Routes<'a>,
    cluster_chain: String,
    local_chain: String,
    external_chain: String,
    firewall_chain: String,
}

impl<'a> Port<'a> {
    fn new(scene: &'a Scene<'a>, name: &PortName, spec: &'a ServicePort) -> Self {
        let endpoints = scene.tracker.endpoints(name);
        let mut routes = Routes::of(endpoints, spec, scene.node_labels, scene.config);
        if scene.config.version.drops_by_mark() {
            // The local policy's chain is there without endpoints, too, and marks.
            routes.has_internal = routes.usable.anywhere;
            routes.has_external = routes.usable.anywhere;
        }
        let chain = |kind: ServiceChain| format!("{}{}", kind.iptables_prefix(), spec.hash);
        Self {
            scene,
            spec,
            name: name.to_string(),
            routes,
            cluster_chain: chain(ServiceChain::Service),
            local_chain: chain(ServiceChain::Local),
            external_chain: chain(ServiceChain::External),
            firewall_chain: chain(ServiceChain::Firewall),
        }
    }

    fn internal_chain(&self) -> &str {
        if self.spec.internal_local {
            &self.local_chain
        } else {
            &self.cluster_chain
        }
    }

    fn uses_external_chain(&self) -> bool {
        self.routes.uses_external(self.spec)
    }

    fn uses_firewall_chain(&self) -> bool {
        self.routes.usable.anywhere
            && !self.spec.load_balancer_ips.is_empty()
            && !self.spec.source_ranges.is_empty()
    }

    fn uses_local_chain(&self) -> bool {
        !self.routes.usable.local.is_empty() || self.marks_what_is_not_local()
    }

    /// The local policy applies, and nobody is here.
    fn marks_what_is_not_local(&self) -> bool {
        self.scene.config.version.drops_by_mark()
            && self.spec.uses_local_endpoints()
            && self.routes.usable.anywhere
            && self.routes.usable.local.is_empty()
    }

    /// The chains that this port needs in nat, written now or earlier.
    fn active(&self, active: &mut BTreeSet<String>) {
        let chains = [
            (self.uses_external_chain(), &self.external_chain),
            (self.uses_firewall_chain(), &self.firewall_chain),
            (!self.routes.usable.cluster.is_empty(), &self.cluster_chain),
            (self.uses_local_chain(), &self.local_chain),
        ];
        let used = chains.into_iter().filter(|(used, _)| *used);
        active.extend(used.map(|(_, chain)| chain.clone()));
        active.extend(
            self.routes
                .usable
                .reachable
                .iter()
                .map(|it| it.chain.clone()),
        );
    }

    /// The rules that lead here from the chains that every sync rewrites.
    fn dispatch(&self, input: &mut Input) {
        self.cluster_ip(input);
        self.external_ips(input);
        self.load_balancer(input);
        self.node_port(input);
        let health_check = self.spec.health_check_node_port;
        if health_check != 0 {
            rules::admit_health_check(&self.name, health_check, &mut input.filter_rules);
        }
    }

    fn cluster_ip(&self, input: &mut Input) {
        let to = self.destination(self.spec.cluster_ip);
        if self.routes.has_internal {
            let (name, chain) = (&self.name, self.internal_chain());
            input.nat_rules.add(format_args!(
                "-A KUBE-SERVICES -m comment --comment \"{name} cluster IP\"{to} -j {chain}"
            ));
        } else {
            self.refuse("KUBE-SERVICES", &to, &mut input.filter_rules);
        }
    }

    fn external_ips(&self, input: &mut Input) {
        for ip in &self.spec.external_ips {
            let to = self.destination(ip);
            if self.routes.usable.anywhere {
                let (name, chain) = (&self.name, &self.external_chain);
                input.nat_rules.add(format_args!(
                    "-A KUBE-SERVICES -m comment --comment \"{name} external IP\"{to} -j {chain}"
                ));
            }
            if !self.routes.has_external {
                self.refuse("KUBE-EXTERNAL-SERVICES", &to, &mut input.filter_rules);
            }
        }
    }

    fn load_balancer(&self, input: &mut Input) {
        let name = &self.name;
        let firewalled = self.uses_firewall_chain();
        let chain = if firewalled {
            &self.firewall_chain
        } else {
            &self.external_chain
        };
        for ip in &self.spec.load_balancer_ips {
            let to = self.destination(ip);
            if self.routes.usable.anywhere {
                input.nat_rules.add(format_args!(
                    "-A KUBE-SERVICES -m comment --comment \"{name} loadbalancer IP\"{to} -j {chain}"
                ));
            }
            if firewalled && !self.scene.config.version.drops_by_mark() {
                input.filter_rules.add(format_args!(
                    "-A KUBE-PROXY-FIREWALL -m comment --comment \"{name} traffic not accepted by \
                     {chain}\"{to} -j DROP"
                ));
            }
        }
        if !self.routes.has_external {
            for ip in &self.spec.load_balancer_ips {
                let to = self.destination(ip);
                self.refuse("KUBE-EXTERNAL-SERVICES", &to, &mut input.filter_rules);
            }
        }
    }

    fn node_port(&self, input: &mut Input) {
        if self.spec.node_port == 0 {
            return;
        }
        let (proto, number) = (self.spec.protocol, self.spec.node_port);
        if self.routes.usable.anywhere {
            let (name, chain) = (&self.name, &self.external_chain);
            let rule =
                format!("-A KUBE-NODEPORTS -m comment --comment {name} -m {proto} -p {proto}");
            if self.counts_localhost() {
                let count = self.scene.counters.counting(LOCALHOST);
                input.nat_rules.add(format_args!(
                    "{rule} -d 127.0.0.0/8 --dport {number}{count} -j {chain}"
                ));
            }
            input
                .nat_rules
                .add(format_args!("{rule} --dport {number} -j {chain}"));
        }
        if !self.routes.has_external {
            let to =
                format!(" -m addrtype --dst-type LOCAL -m {proto} -p {proto} --dport {number}");
            self.refuse("KUBE-EXTERNAL-SERVICES", &to, &mut input.filter_rules);
        }
    }

    /// Requests to a node port over the loopback have a rule that counts them.
    fn counts_localhost(&self) -> bool {
        let config = self.scene.config;
        config.takes_localhost() && self.scene.counters.has(LOCALHOST)
    }

    /// No endpoint anywhere: reject. Some, but none that the policy allows: drop.
    fn refuse(&self, chain: &str, to: &str, filter: &mut Lines) {
        let (why, target) = if self.routes.usable.anywhere {
            ("has no local endpoints", "DROP")
        } else {
            ("has no endpoints", "REJECT")
        };
        filter.add(format_args!(
            "-A {chain} -m comment --comment \"{} {why}\"{to} -j {target}",
            self.name
        ));
    }

    fn destination(&self, ip: impl Display) -> String {
        let (proto, port) = (self.spec.protocol, self.spec.port);
        format!(" -m {proto} -p {proto} -d {ip} --dport {port}")
    }
}
