//! What both rule sets, that of 1.20 ([`super::early`]) and that of 1.24 and later
//! ([`super::modern`]), are made from, and the parts they share.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    config::Config,
    dataplane::counters::{Counters, INVALID},
    input::{Input, Lines},
    logs::Logs,
    names::{Namespaced, PortName},
    ports::ServicePort,
    profile::Profile,
    slices::Endpoint,
    tracker::Tracker,
};

/// Everything that decides the text of a restore input.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) config: &'a Config,
    pub(crate) logs: &'a Logs,
    pub(crate) tracker: &'a Tracker,
    /// All ports, in the order in which Go's map gave them this time.
    pub(crate) ports: &'a [(&'a PortName, &'a ServicePort)],
    /// The services whose own chains are written; `None` in a full sync, which writes all.
    pub(crate) changed: Option<&'a BTreeSet<Namespaced>>,
    pub(crate) node_labels: &'a BTreeMap<String, String>,
    pub(crate) node_ip: IpAddr,
    /// The chains of nat in the kernel, for the removal of stale ones; empty when not looked up.
    pub(crate) existing: &'a [String],
    /// Whether `MASQUERADE` takes `--random-fully`.
    pub(crate) random_fully: bool,
    pub(crate) counters: &'a Counters,
    /// More than a thousand endpoints: comments are left out where they are many.
    pub(crate) large: bool,
}

impl Scene<'_> {
    /// Renders the restore input.
    pub(crate) fn render(&self) -> Input {
        match self.config.version.profile() {
            Profile::V1_20 => super::early::render(self),
            _ => super::modern::render(self),
        }
    }

    /// Whether this service's own chains are written.
    pub(crate) fn writes(&self, service: &Namespaced) -> bool {
        self.changed.is_none_or(|changed| changed.contains(service))
    }

    /// `-m comment --comment …` for the rules that large clusters do without.
    pub(crate) fn comment(&self, text: &str) -> String {
        if self.large {
            return String::new();
        }
        format!(" -m comment --comment {text}")
    }

    /// Chain lines and deletions for the chains of services and endpoints that nothing uses any
    /// more. The chain line empties the chain, so that `-X` can remove it.
    pub(crate) fn remove_stale(
        &self,
        prefixes: &[&str],
        active: &BTreeSet<String>,
        input: &mut Input,
    ) {
        let ours = |chain: &str| prefixes.iter().any(|prefix| chain.starts_with(prefix));
        for chain in self.existing {
            if ours(chain) && !active.contains(chain) {
                input.nat_chains.chain(chain);
                input.nat_rules.add(format_args!("-X {chain}"));
            }
        }
    }
}

/// The rules that bring masquerading about.
pub(crate) fn masquerade(scene: &Scene<'_>, nat: &mut Lines) {
    let mark = scene.config.mark();
    nat.add(format_args!(
        "-A KUBE-POSTROUTING -m mark ! --mark {mark}/{mark} -j RETURN"
    ));
    nat.add(format_args!(
        "-A KUBE-POSTROUTING -j MARK --xor-mark {mark}"
    ));
    let random = if scene.random_fully {
        " --random-fully"
    } else {
        ""
    };
    nat.add(format_args!(
        "-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" \
         -j MASQUERADE{random}"
    ));
    nat.add(format_args!("-A KUBE-MARK-MASQ -j MARK --or-mark {mark}"));
}

/// The jumps to node ports, which must come after all services: one, or one for each address that takes them.
pub(crate) fn tail(scene: &Scene<'_>, nat: &mut Lines) {
    let config = scene.config;
    let mut jump = |to: &str| {
        nat.add(format_args!(
            "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be \
             the last rule in this chain\"{to} -j KUBE-NODEPORTS"
        ));
    };
    let heeds_loopback = config.version.leaves_out_the_loopback();
    if config.takes_all_addresses() {
        let except = if heeds_loopback && !config.takes_localhost() {
            format!(" ! -d {}", config.family.loopback())
        } else {
            String::new()
        };
        return jump(&format!(" -m addrtype --dst-type LOCAL{except}"));
    }
    for ip in config.node_port_ips() {
        if ip.is_loopback() && heeds_loopback && !config.takes_localhost() {
            scene.logs.localhost_not_supported(ip, config.family);
        } else {
            jump(&format!(" -d {ip}"));
        }
    }
}

/// The drop of INVALID packets and the acceptance of marked ones.
pub(crate) fn forward(scene: &Scene<'_>, filter: &mut Lines) {
    if !scene.config.accepts_invalid() {
        let count = scene.counters.counting(INVALID);
        filter.add(format_args!(
            "-A KUBE-FORWARD -m conntrack --ctstate INVALID{count} -j DROP"
        ));
    }
    let mark = scene.config.mark();
    filter.add(format_args!(
        "-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark \
         {mark}/{mark} -j ACCEPT"
    ));
}

/// Answers to what is forwarded, and what it sends further.
pub(crate) fn forward_answers(filter: &mut Lines) {
    filter.add(format_args!(
        "-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack \
         --ctstate RELATED,ESTABLISHED -j ACCEPT"
    ));
}

/// Health checks of balancers reach the port that they ask.
pub(crate) fn admit_health_check(name: &str, port: u16, filter: &mut Lines) {
    filter.add(format_args!(
        "-A KUBE-NODEPORTS -m comment --comment \"{name} health check node port\" -m tcp -p tcp \
         --dport {port} -j ACCEPT"
    ));
}

/// Sticky clients first, then a fair dice: rule `i` of `n` takes 1 in `n - i`, the last all.
/// `comment` gives the comment of an endpoint's rule, or nothing.
pub(crate) fn balance(
    chain: &str,
    sticky_seconds: Option<u32>,
    endpoints: &[&Endpoint],
    nat: &mut Lines,
    comment: impl Fn(&Endpoint) -> String,
) {
    if let Some(seconds) = sticky_seconds {
        for endpoint in endpoints {
            let (comment, to) = (comment(endpoint), &endpoint.chain);
            nat.add(format_args!(
                "-A {chain}{comment} -m recent --name {to} --rcheck --seconds {seconds} --reap -j {to}"
            ));
        }
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let (comment, to) = (comment(endpoint), &endpoint.chain);
        let dice = dice(endpoints.len() - index);
        nat.add(format_args!("-A {chain}{comment}{dice} -j {to}"));
    }
}

/// The match that is true once in `n` times; none when it always is.
pub(crate) fn dice(n: usize) -> String {
    match n {
        1 => String::new(),
        _ => format!(
            " -m statistic --mode random --probability {:.10}",
            1.0 / n as f64
        ),
    }
}

/// The rules of an endpoint's own chain: masquerade what comes back to itself, then DNAT. `source`
/// is its address as that release writes it.
pub(crate) fn endpoint(
    comment: &str,
    port: &ServicePort,
    endpoint: &Endpoint,
    source: &str,
    nat: &mut Lines,
) {
    let (chain, to, proto) = (&endpoint.chain, &endpoint.text, port.protocol);
    nat.add(format_args!(
        "-A {chain}{comment} -s {source} -j KUBE-MARK-MASQ"
    ));
    let remember = match port.sticky_seconds {
        Some(_) => format!(" -m recent --name {chain} --set"),
        None => String::new(),
    };
    nat.add(format_args!(
        "-A {chain}{comment}{remember} -m {proto} -p {proto} -j DNAT --to-destination {to}"
    ));
}
