//! Felix's eBPF programs on a packet's way (Calico v3.28 to v3.32, `felix/bpf-gpl/tc.c` and `connect_balancer.c`): at the interfaces of pods and of the
//! node, and where the node's own programs connect. They come before every rule, lead requests by their NAT map, and apply policies. What only
//! their maps tell that are not read here leaves several ways open.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use super::{
    packet::{Packet, Protocol, TcpFlags},
    path::{End, Step},
    walker::{Ends, Walker},
};
use crate::{
    dumps::{At, Backends, FelixMaps, Known},
    names,
};

/// What they mark that they have seen (felix/bpf/tc/defs/defs.go).
const SEEN: u32 = 0x0100_0000;
/// What they leave to the rules, as it is of no connection that they know.
const FALL_THROUGH: u32 = 0x0500_0000;
/// What is to be masqueraded, as its sender is its receiver.
pub(super) const MASQUERADE: u32 = 0x0360_0000;
/// At which address every node's ports of Services are, to a client in the cluster.
const EVERY_NODE: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

/// Felix's programs.
#[derive(Debug, Clone, Default)]
pub(super) struct Programs {
    /// Where they lead requests; nothing of it is known where there is no entry.
    pub(super) map: BTreeMap<At, Backends>,
    /// The flows and addresses that they know.
    pub(super) maps: Arc<FelixMaps>,
    /// The mark, and its mask, by which Felix's rules masquerade what leaves a pool's pods, where there are such pools.
    pub(super) outgoing: Option<(u32, u32)>,
    /// Whether a rule of Felix's lets pods reach their own node.
    pub(super) accepts_to_node: bool,
}

impl Programs {
    /// What they make of it, by the flow that it is of.
    fn flow(&self, packet: &Packet) -> Known {
        let ends = [(packet.src, packet.sport), (packet.dst, packet.dport)];
        let [src, dst] = ends.map(|(ip, port)| SocketAddr::new(ip, port));
        self.maps.flow((packet.protocol, src, dst))
    }

    /// Whether it asks a Service that their NAT map has.
    fn leads(&self, packet: &Packet) -> bool {
        protocol(packet.protocol)
            .is_some_and(|it| self.map.contains_key(&(packet.dst, it, packet.dport)))
    }

    /// Whether an address is a pod's of this node.
    pub(super) fn is_own_pod(&self, address: IpAddr) -> Option<bool> {
        let is = |flag| self.maps.has_flag(address, flag);
        Some(is("local")? && is("workload")?)
    }

    /// Whether they have it masqueraded: it comes from a pod of a pool with `natOutgoing` and goes to no pool, nor to this node. Where it goes to another node,
    /// a setting decides (`natOutgoingExclusions`; v3.28 has none), which is in no map.
    fn leaves_pools(&self, packet: &Packet) -> Option<bool> {
        let is = |address, flag| self.maps.has_flag(address, flag);
        if !self.is_own_pod(packet.src)?
            || !is(packet.src, "nat-out")?
            || is(packet.dst, "in-pool")?
        {
            return Some(false);
        }
        match (is(packet.dst, "host")?, is(packet.dst, "local")?) {
            (true, true) => Some(false),
            (true, false) => None,
            (false, _) => Some(true),
        }
    }
}

impl Walker<'_> {
    /// What they do with what comes in by an interface.
    pub(super) fn programs_receive(&mut self) -> Ends<()> {
        let state = self.state;
        let Some(programs) = &state.felix else {
            return Ok(());
        };
        if self.flight.packet.input.as_deref() == Some("lo") {
            return Ok(());
        }
        let of_flow = programs.flow(&self.flight.packet);
        if goes_on(&self.flight.packet) {
            return self.known(programs, of_flow);
        }
        if self.flight.packet.protocol != Protocol::TCP {
            match of_flow {
                Known::Nothing => {}
                Known::NotDumped => {
                    let question =
                        "whether it is of a flow that Felix's programs know: no dump tells";
                    if self.assume(question.to_owned(), &["it is of none", "it is of one"]) == 1 {
                        return lost(
                            "where Felix's programs lead a flow that they know is not known",
                        );
                    }
                }
                known => return self.goes_on_as(programs, known),
            }
        }
        self.led(programs)?;
        self.blackholed(programs)?;
        self.policies_in()?;
        self.marked(programs);
        Ok(())
    }

    /// What of a Service's addresses is no Service's has a route that leads nowhere (`serviceLoopPrevention`).
    fn blackholed(&mut self, programs: &Programs) -> Ends<()> {
        let dst = self.flight.packet.dst;
        let is = |flag| programs.maps.has_flag(dst, flag) == Some(true);
        if is("blackhole-drop") {
            let why = format!("by a route of Felix's programs to {dst} (serviceLoopPrevention)");
            return Err(End::Refused { why });
        }
        if is("blackhole-reject") {
            let with = rejected_with(dst);
            return Err(End::Rejected { with });
        }
        Ok(())
    }

    /// Marks what they let pass.
    fn marked(&mut self, programs: &Programs) {
        self.flight.packet.mark |= SEEN;
        if self.flight.packet.src == self.flight.packet.dst {
            self.flight.packet.mark |= MASQUERADE;
        } else if let Some((mark, mask)) = programs.outgoing {
            let leaves = programs.leaves_pools(&self.flight.packet).unwrap_or_else(|| {
                let question = "whether it goes from a pool's pod to outside of the pools, and Felix's programs mark it to be masqueraded: no dump tells";
                self.assume(question.to_owned(), &["it does not", "it does"]) == 1
            });
            if leaves {
                self.flight.packet.mark = self.flight.packet.mark & !mask | mark;
            }
        }
    }

    /// Of a flow that they know. Where a policy has not let it pass at both ends yet, as of UDP nobody can tell, it is asked. An answer gets the
    /// Service's address behind all rules (felix/bpf-gpl/conntrack.h).
    fn goes_on_as(&mut self, programs: &Programs, known: Known) -> Ends<()> {
        let what = match known {
            Known::To { dst, is_approved } => {
                let packet = &mut self.flight.packet;
                let is_led = (packet.dst, packet.dport) != (dst.ip(), dst.port());
                (packet.dst, packet.dport) = (dst.ip(), dst.port());
                let what = if is_led {
                    format!("now {packet}, as of a flow that Felix's programs know")
                } else {
                    "it is of a flow that Felix's programs know".to_owned()
                };
                if !is_approved {
                    let question = "whether the policies in Felix's programs let its flow pass: they may have done so before";
                    self.policies_unknown(question)?;
                }
                what
            }
            Known::From(from) => {
                let packet = &self.flight.packet;
                let is_led = (packet.src, packet.sport) != (from.ip(), from.port());
                self.flight.leaves_as = is_led.then_some(from);
                "it answers a flow that Felix's programs know".to_owned()
            }
            Known::Elsewhere | Known::Nothing | Known::NotDumped => {
                return lost(
                    "it is of a flow that Felix's programs lead by a tunnel, or from another port",
                );
            }
        };
        self.steps.push(Step::Programs { what });
        self.marked(programs);
        Ok(())
    }

    /// As what an answer leaves the node.
    pub(super) fn programs_answer(&mut self) {
        if let Some(from) = self.flight.leaves_as.take() {
            let packet = &mut self.flight.packet;
            (packet.src, packet.sport) = (from.ip(), from.port());
            let what = format!("now {packet}, as Felix's programs answer for the Service");
            self.steps.push(Step::Programs { what });
        }
    }

    /// Of a TCP connection that has begun before.
    fn known(&mut self, programs: &Programs, of_flow: Known) -> Ends<()> {
        match of_flow {
            Known::NotDumped => {}
            Known::Nothing if programs.leads(&self.flight.packet) => {
                return lost(
                    "it asks a Service and is of no flow that Felix's programs know by that: they may have led it where it connected",
                );
            }
            Known::Nothing => {
                let what = "it is of no flow that Felix's programs know".to_owned();
                self.steps.push(Step::Programs { what });
                self.flight.packet.mark |= FALL_THROUGH;
                return Ok(());
            }
            known => return self.goes_on_as(programs, known),
        }
        let question = "what Felix's own connection tracking makes of it: no dump tells";
        let answers = [
            "it knows it, and it goes on as it is",
            "it knows it, and it is translated back",
            "it does not know it",
        ];
        match self.assume(question.to_owned(), &answers) {
            0 => self.flight.packet.mark |= SEEN,
            1 => return lost("by which addresses Felix's programs answer is not known"),
            _ => self.flight.packet.mark |= FALL_THROUGH,
        }
        Ok(())
    }

    /// Where they have what the node makes connect to. What is connected already keeps its addresses.
    pub(super) fn programs_connect(&mut self) -> Ends<()> {
        let state = self.state;
        let Some(programs) = &state.felix else {
            return Ok(());
        };
        let packet = &self.flight.packet;
        if goes_on(packet) {
            return Ok(());
        }
        if packet.protocol != Protocol::TCP && programs.leads(packet) {
            // `bpfConnectTimeLoadBalancing: TCP` is the default.
            let question = "whether Felix's programs lead it where it connects (bpfConnectTimeLoadBalancing: Enabled) or only behind the rules";
            let answers = ["where it connects", "behind the rules"];
            if self.assume(question.to_owned(), &answers) == 1 {
                return lost(
                    "what becomes of it behind the rules, where Felix's programs lead it, is not known",
                );
            }
        }
        self.led(programs)
    }

    fn led(&mut self, programs: &Programs) -> Ends<()> {
        let packet = &self.flight.packet;
        let Some(protocol) = protocol(packet.protocol) else {
            return Ok(());
        };
        let (dst, port) = (packet.dst, packet.dport);
        let at = format!("{dst} port {port}");
        if programs.map.is_empty() {
            let question = format!(
                "whether {at} is a Service's to Felix's programs: their NAT map is not among the dumps"
            );
            if self.assume(question, &["it is none", "it is one"]) == 1 {
                return lost(&format!("where Felix's programs lead {at} is not known"));
            }
            return Ok(());
        }
        let backends = match programs.map.get(&(dst, protocol, port)) {
            None if programs.map.contains_key(&(EVERY_NODE, protocol, port)) => {
                let is_node = programs.maps.has_flag(dst, "host");
                let is_node = is_node.unwrap_or_else(|| {
                    let question = format!(
                        "whether {dst} is another node, whose ports Felix's programs lead themselves"
                    );
                    self.assume(question, &["it is none", "it is one"]) == 1
                });
                if is_node {
                    return lost(&format!("where Felix's programs lead {at} is not known"));
                }
                return Ok(());
            }
            None => return Ok(()),
            Some(Backends::To(backends)) => backends,
            Some(Backends::Local(_)) => {
                return lost(&format!(
                    "{at} has a local policy: whether Felix's programs take it for a client to which that applies is not known"
                ));
            }
            Some(Backends::Unknown) => {
                return lost(&format!("Felix's NAT map does not tell the whole of {at}"));
            }
        };
        let taken = match backends.len() {
            0 | 1 => 0,
            ways => self.chance(ways, &format!("Felix's NAT map at {at}")),
        };
        let Some(to) = backends.iter().nth(taken) else {
            let what = format!("Felix's NAT map leads {at} to nobody");
            self.steps.push(Step::Programs { what });
            // A connect fails; of what is received the sender is told.
            let with = rejected_with(dst);
            return Err(End::Rejected { with });
        };
        let packet = &mut self.flight.packet;
        (packet.dst, packet.dport) = (to.ip(), to.port());
        let what = format!("now {packet}, as Felix's NAT map says");
        self.steps.push(Step::Programs { what });
        Ok(())
    }
}

fn rejected_with(dst: IpAddr) -> String {
    let with = if dst.is_ipv4() {
        "icmp-port-unreachable"
    } else {
        "icmp6-port-unreachable"
    };
    with.to_owned()
}

/// Whether it belongs to what has begun before; of others than TCP that is not seen.
pub(super) fn goes_on(packet: &Packet) -> bool {
    let begins = packet.flags.has(TcpFlags::SYN) && !packet.flags.has(TcpFlags::ACK);
    packet.protocol == Protocol::TCP && !begins
}

fn protocol(of: Protocol) -> Option<names::Protocol> {
    match of {
        Protocol::TCP => Some(names::Protocol::Tcp),
        Protocol::UDP => Some(names::Protocol::Udp),
        Protocol::SCTP => Some(names::Protocol::Sctp),
        _ => None,
    }
}

fn lost(why: &str) -> Ends<()> {
    Err(End::Undecided {
        why: why.to_owned(),
    })
}
