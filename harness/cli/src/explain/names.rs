//! Whose an end is that is given by name, in a case that the lab ran: only its commands are recorded. What the lab gives to nodes
//! and hosts is a rule of its own; a pod's address is in what was measured of its requests.

use std::net::IpAddr;

use anyhow::Result;
use chainbreak_lab::{
    addresses::{Plan, tunnel},
    families::Families,
    pools::Pools,
    wiring::pod_interface,
};
use chainbreak_model::{
    case::{Case, Destination, IpFamily, Origin, PodOwner, Vxlan},
    event::{Event, EventKind},
    names::{NodeName, TrafficName},
};
use chainbreak_netfilter::walk::Protocol;
use chainbreak_probe::wire::Outcome;
use chainbreak_report::{attribution, walked};

use super::{
    asked::{End, Ends, Input, address},
    service::Asked,
};
use crate::cases::{invalid, unknown};

/// By which interface a node of the lab has all that is not its own pods'.
const UPLINK: &str = "eth0";

/// A case and what its history says of names.
pub(super) struct Names<'a> {
    pub(super) case: &'a Case,
    pub(super) events: &'a [Event],
    /// The moment that is asked about.
    pub(super) at_us: u64,
    pub(super) protocol: Protocol,
}

impl Names<'_> {
    /// The node that is walked through unless another is named: the sender's, or the only one.
    pub(super) fn node(&self, from: &str, to: &str) -> Option<NodeName> {
        let on = |origin: Origin| match origin {
            Origin::Node(node) => Some(node),
            origin => self
                .addresses(&origin)
                .into_iter()
                .find_map(|it| self.node_of_pod(it)),
        };
        let of_address = |end: End| self.node_with(end.0).or_else(|| self.node_of_pod(end.0));
        let sender = match self.origin(from) {
            Some(origin) => on(origin),
            None => address(from).and_then(of_address),
        };
        let asked = || match self.destination(to) {
            Some((Destination::NodePort { node, .. }, _)) => Some(node),
            _ => self.end_to(to).ok().and_then(|end| self.node_with(end.0)),
        };
        let only = || attribution::only_node(self.case);
        sender.or_else(asked).or_else(only)
    }

    /// The addresses that a node has in the lab.
    pub(super) fn own(&self, node: &NodeName) -> Vec<IpAddr> {
        let Some(number) = self.number(node) else {
            return Vec::new();
        };
        let pools = self.pools();
        let tunneled = pools.iter().find(|pool| pool.vxlan != Vxlan::Never);
        let tunnel = tunneled.map(|it| tunnel(chainbreak_lab::addresses::block(it.cidr, number)));
        let all = [Plan::ipv4().node(number)].into_iter().chain(tunnel);
        let families = self.families();
        // A world has IPv4 also where its Kubernetes does not know it.
        all.flat_map(|it| families.wired().map(move |family| family.address(it)))
            .collect()
    }

    /// Both ends, and by which interface of the node the packet comes.
    pub(super) fn ends(&self, node: &NodeName, from: &str, to: &str) -> Result<Ends> {
        let dst = self.end_to(to)?;
        let is_v4 = dst.0.is_ipv4();
        let (src, origin) = match self.origin(from) {
            Some(origin) => {
                let all = self.addresses(&origin);
                let Some(of_family) = all.iter().find(|it| it.is_ipv4() == is_v4) else {
                    return Err(self.untold(&origin, "FROM"));
                };
                ((*of_family, None), Some(origin))
            }
            None => match address(from) {
                Some(end) => (end, self.pod_with(end.0)),
                None => return Err(self.no_name(from, "FROM")),
            },
        };
        Ok(Ends {
            src,
            dst,
            input: self.input(node, src.0, origin.as_ref()),
        })
    }

    fn input(&self, node: &NodeName, src: IpAddr, origin: Option<&Origin>) -> Input {
        if self.own(node).contains(&src) {
            return Input::Here;
        }
        let owner = self.case.cluster.calico.as_ref();
        let interface = pod_interface(owner.map_or(PodOwner::ThirdParty, |it| it.pods));
        match (self.node_of_pod(src), origin) {
            (Some(of), Some(Origin::Pod { namespace, name })) if of == *node => {
                Input::By(interface(namespace, name))
            }
            // Which of the node's pods it is, or by which tunnel it comes, is not known.
            (Some(of), _) if of == *node => Input::AsRoutesLead,
            (Some(_), _) if self.pools().iter().any(|it| it.vxlan != Vxlan::Never) => {
                Input::AsRoutesLead
            }
            _ => Input::By(UPLINK.to_owned()),
        }
    }

    fn end_to(&self, to: &str) -> Result<End> {
        if let Some(end) = address(to).or_else(|| self.aimed(to)) {
            return Ok(end);
        }
        let of_node = to.rsplit_once(':').and_then(|(node, port)| {
            let addresses =
                self.addresses(&self.origin(node).filter(|_| node.starts_with("node/"))?);
            Some((*addresses.first()?, Some(port.parse().ok()?)))
        });
        if let Some(end) = of_node {
            return Ok(end);
        }
        let Some((destination, port)) = self.destination(to) else {
            return Err(self.no_name(to, "TO:PORT"));
        };
        let of = |origin: Origin| {
            let found = self.addresses(&origin).into_iter().next();
            let found = found.ok_or_else(|| self.untold(&origin, "TO:PORT"))?;
            Ok((found, port))
        };
        match destination {
            Destination::Service { namespace, name } => self.service(&namespace, &name, port),
            Destination::Pod { namespace, name } => of(Origin::Pod { namespace, name }),
            Destination::Host(name) => of(Origin::Host(name)),
            Destination::NodePort { node, .. } => Err(invalid(format!(
                "TO:PORT: {to}: which port of the node it is no name tells; as node/{node}:30080"
            ))),
        }
    }

    /// Where the requests of a traffic of that name go, as the history says.
    fn aimed(&self, name: &str) -> Option<End> {
        let at = walked::aim(self.events, &TrafficName::from(name))?;
        Some((at.ip(), Some(at.port())))
    }

    fn service(&self, namespace: &str, name: &str, port: Option<u16>) -> Result<End> {
        let Some(port) = port else {
            return Err(invalid(format!(
                "TO:PORT: a service is asked by its port: {namespace}/{name}:80"
            )));
        };
        let asked = Asked {
            namespace,
            name,
            port,
            protocol: self.protocol,
        };
        let (mut before, mut after) = (None, None);
        for event in self.events {
            let EventKind::Command(command) = &event.what else {
                continue;
            };
            let words = command.argv.join(" ");
            let mut lines = command.input.lines().chain([words.as_str()]);
            let Some(found) = lines.find_map(|line| asked.cluster_ip(line)) else {
                continue;
            };
            if event.at_us <= self.at_us {
                before = Some(found);
            } else {
                after = after.or(Some(found));
            }
        }
        let found = before.or(after);
        let found = found.ok_or_else(|| asked.unnamed("that was written"))?;
        Ok((found, Some(port)))
    }

    /// Everything that is known to be somebody's address, by family.
    fn addresses(&self, of: &Origin) -> Vec<IpAddr> {
        let families = self.families();
        match of {
            Origin::Node(node) => {
                let number = self.number(node);
                number.map_or_else(Vec::new, |it| families.addresses(Plan::ipv4().node(it)))
            }
            Origin::Host(name) => {
                let hosts = &self.case.cluster.hosts;
                let index = hosts.get_index_of(name);
                index.map_or_else(Vec::new, |it| families.addresses(Plan::ipv4().host(it)))
            }
            Origin::Pod { .. } => self.seen(|origin| origin == of, |_| true),
        }
    }

    /// The pod that had this address.
    fn pod_with(&self, address: IpAddr) -> Option<Origin> {
        let origins = self.case.traffic.values().map(|it| &it.from);
        let mut pods = origins.filter(|it| matches!(it, Origin::Pod { .. }));
        pods.find(|pod| !self.seen(|it| it == *pod, |it| it == address).is_empty())
            .cloned()
    }

    /// Addresses of pods as they saw them themselves, at the moment or the last before it first.
    fn seen(&self, whose: impl Fn(&Origin) -> bool, is: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
        let mut seen: Vec<(bool, u64, IpAddr)> = Vec::new();
        let mut add = |at_us: u64, address: IpAddr| {
            if is(address) && !seen.iter().any(|it| it.2 == address) {
                let later = at_us > self.at_us;
                seen.push((later, self.at_us.abs_diff(at_us), address));
            }
        };
        for event in self.events {
            match &event.what {
                EventKind::Addresses { at, addresses } if whose(at) => {
                    for address in addresses {
                        add(event.at_us, *address);
                    }
                }
                EventKind::Sample { traffic, sample } => {
                    let from = self.case.traffic.get(traffic).map(|it| &it.from);
                    if let Outcome::Answered { local, .. } = &sample.outcome
                        && from.is_some_and(&whose)
                    {
                        add(event.at_us, local.ip());
                    }
                }
                _ => {}
            }
        }
        seen.sort_unstable();
        seen.into_iter().map(|it| it.2).collect()
    }

    /// `pod/client`, `pod/test/client`, `node/n1`, `host/outside`, or where traffic of that name starts.
    fn origin(&self, text: &str) -> Option<Origin> {
        if let Some(traffic) = self.case.traffic.get(&TrafficName::from(text)) {
            return Some(traffic.from.clone());
        }
        match text.split('/').collect::<Vec<_>>()[..] {
            ["pod", name] => Some(pod("default", name)),
            ["pod", namespace, name] => Some(pod(namespace, name)),
            ["node", name] => Some(Origin::Node(name.into())),
            ["host", name] => Some(Origin::Host(name.to_owned())),
            _ => None,
        }
    }

    /// `service/test/web:80`, `test/web:80`, an origin with a port, or where traffic of that name goes.
    fn destination(&self, text: &str) -> Option<(Destination, Option<u16>)> {
        if let Some(traffic) = self.case.traffic.get(&TrafficName::from(text)) {
            return Some((traffic.to.clone(), Some(traffic.port)));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.parse().ok()?)),
            None => (text, None),
        };
        let service = |namespace: &str, name: &str| Destination::Service {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let pod = |namespace: &str, name: &str| Destination::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let destination = match name.split('/').collect::<Vec<_>>()[..] {
            ["service", namespace, name] => service(namespace, name),
            ["service", name] => service("default", name),
            ["host", name] => Destination::Host(name.to_owned()),
            ["pod", name] => pod("default", name),
            ["pod", namespace, name] => pod(namespace, name),
            [namespace, name] if namespace != "node" => service(namespace, name),
            _ => return None,
        };
        Some((destination, port))
    }

    fn families(&self) -> Families {
        let families = &self.case.cluster.ip_families;
        Families::new(match families.as_slice() {
            [] => vec![IpFamily::V4],
            all => all.to_vec(),
        })
    }

    fn pools(&self) -> Pools {
        Pools::of(&self.case.cluster, Plan::ipv4())
    }

    fn number(&self, node: &NodeName) -> Option<u16> {
        let mut names = (1..).zip(self.case.cluster.node_names());
        names.find(|(_, name)| name == node).map(|it| it.0)
    }

    /// The node that has this address.
    fn node_with(&self, address: IpAddr) -> Option<NodeName> {
        let mut nodes = self.case.cluster.node_names();
        nodes.find(|node| self.own(node).contains(&address))
    }

    /// The node in whose block of a pool this address is.
    fn node_of_pod(&self, address: IpAddr) -> Option<NodeName> {
        let (families, pools) = (self.families(), self.pools());
        let mut nodes = (1..).zip(self.case.cluster.node_names());
        let found = nodes.find(|(number, _)| {
            let mut nets = pools.blocks(*number).flat_map(|it| families.nets(it));
            nets.any(|net| net.contains(&address))
        });
        found.map(|it| it.1)
    }

    fn untold(&self, origin: &Origin, what: &str) -> anyhow::Error {
        let is_there = match origin {
            Origin::Node(node) => self.number(node).is_some(),
            Origin::Host(name) => self.case.cluster.hosts.contains_key(name),
            Origin::Pod { .. } => true,
        };
        invalid(if matches!(origin, Origin::Pod { .. }) {
            format!(
                "{what}: the history does not say an address of {origin}, as no request from there was answered in that family; give it, \
                 and by which interface it comes with --in"
            )
        } else if is_there {
            format!(
                "{what}: the history does not say an address of {origin} in that family; give it"
            )
        } else {
            format!("{what}: the case has no {origin}")
        })
    }

    fn no_name(&self, text: &str, what: &str) -> anyhow::Error {
        let known = self.case.traffic.keys().map(TrafficName::as_str);
        invalid(unknown(
            &format!(
                "{what}: {text:?} is no address and no name in the case; as 10.20.1.2, pod/test/client, node/n1, host/outside, or \
                 traffic by its name, and where it goes as 10.96.0.10:80, test/web:80 or node/n1:30080"
            ),
            text,
            known,
        ))
    }
}

fn pod(namespace: &str, name: &str) -> Origin {
    Origin::Pod {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}
