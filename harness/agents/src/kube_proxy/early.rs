//! The rule set of 1.20 to 1.23 (proxier.go, `syncProxyRules`).
//!
//! `KUBE-XLB-` stands for the local policy, `KUBE-FW-` before every load balancer's address, and
//! what is not accepted is marked in nat (`KUBE-MARK-DROP`) for kubelet's filter rule to drop.
//! Masquerading of what comes in stands in the common chains, next to the jumps, and from 1.22 on in the service's.

pub(crate) mod conntrack;
pub(crate) mod sockets;

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    input::{Input, Lines},
    names::{PortName, ServiceChain},
    ports::ServicePort,
    rules::{self, Scene},
    slices::Endpoint,
};

const XLB: &str = "KUBE-XLB-";
const SERVICE_CHAINS: [&str; 4] = [
    ServiceChain::Service.iptables_prefix(),
    "KUBE-SEP-",
    ServiceChain::Firewall.iptables_prefix(),
    XLB,
];

/// Renders the restore input.
pub(crate) fn render(scene: &Scene<'_>) -> Input {
    let mut input = Input::default();
    let version = &scene.config.version;
    for chain in ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD"] {
        input.filter_chains.chain(chain);
    }
    if version.admits_health_checks() {
        input.filter_chains.chain("KUBE-NODEPORTS");
    }
    for chain in [
        "KUBE-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-POSTROUTING",
        "KUBE-MARK-MASQ",
    ] {
        input.nat_chains.chain(chain);
    }
    rules::masquerade(scene, &mut input.nat_rules);
    let mut active = BTreeSet::new();
    for &(name, port) in scene.ports {
        Port::new(scene, name, port).write(&mut input, &mut active);
    }
    scene.remove_stale(&SERVICE_CHAINS, &active, &mut input);
    rules::tail(scene, &mut input.nat_rules);
    rules::forward(scene, &mut input.filter_rules);
    if version.has_one_rule_for_answers() {
        rules::forward_answers(&mut input.filter_rules);
        return input;
    }
    for side in ["source", "destination"] {
        input.filter_rules.add(format_args!(
            "-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack pod {side} rule\" \
             -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
        ));
    }
    input
}

/// One port of a service.
struct Port<'a> {
    scene: &'a Scene<'a>,
    spec: &'a ServicePort,
    name: String,
    /// Those that have a chain.
    endpoints: Vec<&'a Endpoint>,
    service_chain: String,
    local_chain: String,
    firewall_chain: String,
}

impl<'a> Port<'a> {
    fn new(scene: &'a Scene<'a>, name: &PortName, spec: &'a ServicePort) -> Self {
        let endpoints = scene.tracker.endpoints(name).iter();
        let chain = |prefix: &str| format!("{prefix}{}", spec.hash);
        let all = scene.config.version.takes_endpoints_that_are_not_ready();
        // Of everything that leads to the service: only a policy of its own about the outside comes before.
        let only_local = spec.internal_local && !spec.external_local;
        let taken = |it: &&Endpoint| (all || it.is_ready()) && (!only_local || it.local);
        Self {
            scene,
            spec,
            name: name.to_string(),
            endpoints: endpoints.filter(taken).collect(),
            service_chain: chain(ServiceChain::Service.iptables_prefix()),
            local_chain: chain(XLB),
            firewall_chain: chain(ServiceChain::Firewall.iptables_prefix()),
        }
    }

    fn write(&self, input: &mut Input, active: &mut BTreeSet<String>) {
        let mut declare = |chain: &str, chains: &mut Lines| {
            chains.chain(chain);
            active.insert(chain.to_owned());
        };
        let has_endpoints = !self.endpoints.is_empty();
        if has_endpoints {
            declare(&self.service_chain, &mut input.nat_chains);
        }
        if self.spec.external_local {
            declare(&self.local_chain, &mut input.nat_chains);
        }
        if has_endpoints {
            if !self.spec.load_balancer_ips.is_empty() {
                declare(&self.firewall_chain, &mut input.nat_chains);
            }
            for endpoint in &self.endpoints {
                declare(&endpoint.chain, &mut input.nat_chains);
            }
            self.dispatch(&mut input.nat_rules);
            self.balance(&mut input.nat_rules);
            if self.spec.external_local {
                self.local_policy(&mut input.nat_rules);
            }
        } else {
            self.reject(&mut input.filter_rules);
        }
        let health_check = self.spec.health_check_node_port;
        if health_check != 0 && self.scene.config.version.admits_health_checks() {
            rules::admit_health_check(&self.name, health_check, &mut input.filter_rules);
        }
    }

    fn reject(&self, filter: &mut Lines) {
        let port = self.spec;
        let (name, proto) = (&self.name, port.protocol);
        let mut reject = |chain, to: &str, number| {
            filter.add(format_args!(
                "-A {chain} -m comment --comment \"{name} has no endpoints\"{to} \
                 -m {proto} -p {proto}{number} -j REJECT"
            ));
        };
        let dport = |ip| format!(" -d {} --dport {}", cidr(ip), port.port);
        reject("KUBE-SERVICES", "", dport(port.cluster_ip));
        for ip in port.external_ips.iter().chain(&port.load_balancer_ips) {
            reject("KUBE-EXTERNAL-SERVICES", "", dport(*ip));
        }
        if port.node_port != 0 {
            let number = format!(" --dport {}", port.node_port);
            let local = " -m addrtype --dst-type LOCAL";
            reject("KUBE-EXTERNAL-SERVICES", local, number);
        }
    }

    fn dispatch(&self, nat: &mut Lines) {
        self.cluster_ip(nat);
        for &ip in &self.spec.external_ips {
            self.external_ip(ip, nat);
        }
        for &ip in &self.spec.load_balancer_ips {
            self.load_balancer(ip, nat);
        }
        self.node_port(nat);
    }

    fn destination(&self, what: &str, ip: IpAddr) -> String {
        let (name, proto, port) = (&self.name, self.spec.protocol, self.spec.port);
        let ip = cidr(ip);
        format!(
            "-m comment --comment \"{name} {what}\" -m {proto} -p {proto} -d {ip} --dport {port}"
        )
    }

    /// Where masquerading stands of what `common` hands to the service.
    fn marking_chain<'b>(&'b self, common: &'b str) -> &'b str {
        if self.scene.config.version.masquerades_in_service_chains() {
            &self.service_chain
        } else {
            common
        }
    }

    fn cluster_ip(&self, nat: &mut Lines) {
        let config = self.scene.config;
        let rule = self.destination("cluster IP", self.spec.cluster_ip);
        let marking = self.marking_chain("KUBE-SERVICES");
        if config.masquerade_all {
            nat.add(format_args!("-A {marking} {rule} -j KUBE-MARK-MASQ"));
        } else if let Some(local) = config.if_local() {
            nat.add(format_args!(
                "-A {marking} {rule} ! {local} -j KUBE-MARK-MASQ"
            ));
        }
        nat.add(format_args!(
            "-A KUBE-SERVICES {rule} -j {}",
            self.service_chain
        ));
    }

    /// 1.20 takes off-machine traffic only, and the node's own to an address that it has.
    fn external_ip(&self, ip: IpAddr, nat: &mut Lines) {
        let config = self.scene.config;
        let from_anywhere = config.version.takes_external_ips_from_anywhere();
        let rule = self.destination("external IP", ip);
        let to = self.policy_chain();
        if !self.spec.external_local {
            let marking = self.marking_chain("KUBE-SERVICES");
            let foreign = match config.if_local() {
                Some(local) if from_anywhere => format!(" ! {local}"),
                _ => String::new(),
            };
            nat.add(format_args!(
                "-A {marking} {rule}{foreign} -j KUBE-MARK-MASQ"
            ));
        }
        let rule = format!("-A KUBE-SERVICES {rule}");
        if from_anywhere {
            return nat.add(format_args!("{rule} -j {to}"));
        }
        nat.add(format_args!(
            "{rule} -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j {to}"
        ));
        nat.add(format_args!("{rule} -m addrtype --dst-type LOCAL -j {to}"));
    }

    fn load_balancer(&self, ip: IpAddr, nat: &mut Lines) {
        let (name, chain, to) = (&self.name, &self.firewall_chain, self.policy_chain());
        let jump = self.destination("loadbalancer IP", ip);
        nat.add(format_args!("-A KUBE-SERVICES {jump} -j {chain}"));
        let rule = format!("-A {chain} -m comment --comment \"{name} loadbalancer IP\"");
        if !self.spec.external_local {
            nat.add(format_args!("{rule} -j KUBE-MARK-MASQ"));
        }
        let ranges = &self.spec.source_ranges;
        if ranges.is_empty() {
            nat.add(format_args!("{rule} -j {to}"));
        }
        for range in ranges {
            nat.add(format_args!("{rule} -s {range} -j {to}"));
        }
        if ranges.iter().any(|it| it.contains(&self.scene.node_ip)) {
            nat.add(format_args!("{rule} -s {} -j {to}", cidr(ip)));
        }
        nat.add(format_args!("{rule} -j KUBE-MARK-DROP"));
    }

    fn node_port(&self, nat: &mut Lines) {
        if self.spec.node_port == 0 {
            return;
        }
        let (name, proto, number) = (&self.name, self.spec.protocol, self.spec.node_port);
        let rule = format!("-m comment --comment {name} -m {proto} -p {proto} --dport {number}");
        if self.spec.external_local {
            let loopback = self.scene.config.family.loopback();
            nat.add(format_args!(
                "-A KUBE-NODEPORTS {rule} -s {loopback} -j KUBE-MARK-MASQ"
            ));
        } else {
            let marking = self.marking_chain("KUBE-NODEPORTS");
            nat.add(format_args!("-A {marking} {rule} -j KUBE-MARK-MASQ"));
        }
        nat.add(format_args!(
            "-A KUBE-NODEPORTS {rule} -j {}",
            self.policy_chain()
        ));
    }

    fn policy_chain(&self) -> &str {
        if self.spec.external_local {
            &self.local_chain
        } else {
            &self.service_chain
        }
    }

    /// The balancing rules, each followed by the rules of its endpoint. One that is not ready has the latter only,
    /// where it has anything.
    fn balance(&self, nat: &mut Lines) {
        let comment = self.scene.comment(&self.name);
        let chain = &self.service_chain;
        self.sticky(chain, &self.endpoints, &comment, nat);
        let mut left = self.endpoints.iter().filter(|it| it.is_ready()).count();
        for endpoint in &self.endpoints {
            if endpoint.is_ready() {
                let (dice, to) = (rules::dice(left), &endpoint.chain);
                nat.add(format_args!("-A {chain}{comment}{dice} -j {to}"));
                left -= 1;
            }
            let source = cidr(endpoint.address.ip());
            rules::endpoint(&comment, self.spec, endpoint, &source, nat);
        }
    }

    fn sticky(&self, chain: &str, endpoints: &[&Endpoint], comment: &str, nat: &mut Lines) {
        let Some(seconds) = self.spec.sticky_seconds else {
            return;
        };
        for to in endpoints.iter().map(|it| &it.chain) {
            nat.add(format_args!(
                "-A {chain}{comment} -m recent --name {to} --rcheck --seconds {seconds} --reap -j {to}"
            ));
        }
    }

    fn local_policy(&self, nat: &mut Lines) {
        let (name, chain, service) = (&self.name, &self.local_chain, &self.service_chain);
        if let Some(local) = self.scene.config.if_local() {
            nat.add(format_args!(
                "-A {chain} -m comment --comment \"Redirect pods trying to reach external \
                 loadbalancer VIP to clusterIP\" {local} -j {service}"
            ));
        }
        nat.add(format_args!(
            "-A {chain} -m comment --comment \"masquerade LOCAL traffic for {name} LB IP\" \
             -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ"
        ));
        nat.add(format_args!(
            "-A {chain} -m comment --comment \"route LOCAL traffic for {name} LB IP to service \
             chain\" -m addrtype --src-type LOCAL -j {service}"
        ));
        let here = self.endpoints.iter().copied();
        let here = here.filter(|it| it.local && it.is_ready());
        let local: Vec<&Endpoint> = here.collect();
        if local.is_empty() {
            nat.add(format_args!(
                "-A {chain} -m comment --comment \"{name} has no local endpoints\" -j KUBE-MARK-DROP"
            ));
        }
        // From 1.23 on as in the service's own chain.
        let as_everywhere = self.scene.config.version.has_one_rule_for_answers();
        let own = format!(" -m comment --comment {name}");
        let comment = if as_everywhere {
            self.scene.comment(name)
        } else {
            own
        };
        self.sticky(chain, &local, &comment, nat);
        for (index, endpoint) in local.iter().enumerate() {
            let (dice, to) = (rules::dice(local.len() - index), &endpoint.chain);
            let own = format!(" -m comment --comment \"Balancing rule {index} for {name}\"");
            let comment = if as_everywhere { &comment } else { &own };
            nat.add(format_args!("-A {chain}{comment}{dice} -j {to}"));
        }
    }
}

/// 1.20 writes host addresses with their length; the rule is the same.
fn cidr(ip: IpAddr) -> String {
    let length = if ip.is_ipv4() { 32 } else { 128 };
    format!("{ip}/{length}")
}
