//! How a port's endpoints are picked.
//!
//! Until 1.35 `endpoint-` belongs to one endpoint of one port: it marks what comes from the endpoint itself, notes the client
//! where that is asked for, and does DNAT. From 1.36 on only ports that remember their clients have such chains; of all
//! others the port's own chain does DNAT to one element of a map.

use super::{
    services::{Output, Port},
    setup::MARK_MASQ,
};
use crate::kube_proxy::{
    names::{AFFINITY, PortName},
    ports::ServicePort,
    slices::Endpoint,
};

/// An endpoint with what its names end in.
pub(super) struct Named<'a> {
    endpoint: &'a Endpoint,
    base: String,
    kept: bool,
}

impl Named<'_> {
    fn chain(&self) -> String {
        format!("endpoint-{}", self.base)
    }

    fn affinity_set(&self) -> String {
        format!("{AFFINITY}{}", self.base)
    }
}

impl Port<'_> {
    fn named(&self, endpoint: &Endpoint) -> Option<&Named<'_>> {
        let mut endpoints = self.endpoints.iter();
        endpoints.find(|it| it.endpoint.text == endpoint.text)
    }

    /// Its endpoints for the cluster policy and those for the local one, with the chain of either, where there
    /// are any.
    fn policies(&self) -> Vec<(&str, Vec<&Named<'_>>)> {
        let usable = &self.routes.usable;
        let all = [
            (&self.cluster_chain, &usable.cluster),
            (&self.local_chain, &usable.local),
        ];
        let named = all.into_iter().map(|(chain, endpoints)| {
            let endpoints = endpoints.iter().filter_map(|it| self.named(it));
            (chain.as_str(), endpoints.collect::<Vec<_>>())
        });
        named
            .filter(|(_, endpoints)| !endpoints.is_empty())
            .collect()
    }
}

impl Output<'_> {
    pub(super) fn named<'e>(
        &self,
        name: &PortName,
        spec: &ServicePort,
        endpoint: &'e Endpoint,
    ) -> Named<'e> {
        let mut named = Named {
            endpoint,
            base: name.endpoint_base(endpoint.address),
            kept: false,
        };
        let remembers = self.kept.sets.contains(&named.affinity_set());
        named.kept =
            self.kept.chains.contains(&named.chain()) && remembers == spec.sticky_seconds.is_some();
        named
    }

    /// Chains that endpoints have, and what is known of those on this node.
    pub(super) fn declare_endpoints(&mut self, port: &Port<'_>, changed: bool) {
        let has_chains = self.view.config.version.has_endpoint_chains();
        for named in &port.endpoints {
            if has_chains || port.is_sticky() {
                self.chain(&named.chain(), changed && !named.kept);
            }
            if port.is_sticky() {
                self.active.affinity_sets.insert(named.affinity_set());
            }
            let hairpin = self.mirrors.hairpin.as_mut();
            if let Some(hairpin) = hairpin.filter(|_| named.endpoint.local) {
                let (ip, number) = (named.endpoint.address.ip(), named.endpoint.address.port());
                let key = format!("{ip} . {ip} . {} . {number}", port.spec.protocol);
                hairpin.ensure(self.tx, key, "", None);
            }
        }
    }

    /// What leads from the port's chains to its endpoints.
    pub(super) fn balance(&mut self, port: &Port<'_>) {
        self.remember(port);
        let by_chains = self.view.config.version.has_endpoint_chains() || port.is_sticky();
        for (chain, endpoints) in port.policies() {
            if by_chains {
                self.dice(port, chain, &endpoints);
            } else {
                self.dnat(port, chain, &endpoints);
            }
        }
        if by_chains {
            self.endpoints(port);
        }
    }

    /// The sets that remember clients.
    fn remember(&mut self, port: &Port<'_>) {
        let address = self.tx.words.address;
        if let Some(seconds) = port.spec.sticky_seconds {
            for endpoint in &port.endpoints {
                let body = format!("type {address} ; flags dynamic,timeout ; timeout {seconds}s");
                self.tx.add("set", &endpoint.affinity_set(), &body);
            }
        }
    }

    /// Sticky clients first, then a fair dice.
    fn dice(&mut self, port: &Port<'_>, chain: &str, endpoints: &[&Named<'_>]) {
        let ip = self.tx.words.ip;
        if port.is_sticky() {
            for endpoint in endpoints {
                let (set, to) = (endpoint.affinity_set(), endpoint.chain());
                self.tx
                    .rule(chain, format_args!("{ip} saddr @{set} goto {to}"));
            }
        }
        let (sides, faces) = map(endpoints, |it| format!("goto {}", it.chain()));
        self.tx.rule(
            chain,
            format_args!("numgen random mod {sides} vmap {{ {faces} }}"),
        );
    }

    /// The fair dice of 1.36: what it shows is where to.
    fn dnat(&mut self, port: &Port<'_>, chain: &str, endpoints: &[&Named<'_>]) {
        let (ip, protocol) = (self.tx.words.ip, port.spec.protocol);
        let (sides, faces) = map(endpoints, |it| {
            let address = it.endpoint.address;
            format!("{} . {}", address.ip(), address.port())
        });
        self.tx.rule(
            chain,
            format_args!(
                "meta l4proto {protocol} dnat {ip} addr . port to numgen random mod {sides} \
                 map {{ {faces} }}"
            ),
        );
    }

    /// Each masquerades what comes back to itself, until 1.35; then it DNATs.
    fn endpoints(&mut self, port: &Port<'_>) {
        let ip = self.tx.words.ip;
        let marks = self.view.config.version.has_endpoint_chains();
        for endpoint in port.endpoints.iter().filter(|it| !it.kept) {
            let (chain, address) = (endpoint.chain(), endpoint.endpoint.address);
            let source = address.ip();
            if marks {
                self.tx
                    .rule(&chain, format_args!("{ip} saddr {source} jump {MARK_MASQ}"));
            }
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

/// How many sides a dice has, and what each shows.
fn map(endpoints: &[&Named<'_>], shown: impl Fn(&Named<'_>) -> String) -> (usize, String) {
    let faces = endpoints.iter().enumerate();
    let faces: Vec<String> = faces
        .map(|(number, it)| format!("{number} : {}", shown(it)))
        .collect();
    (faces.len(), faces.join(" , "))
}
