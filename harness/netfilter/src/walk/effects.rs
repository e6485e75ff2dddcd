//! What rules change: marks, conntrack's interest, addresses.

use std::net::IpAddr;

use super::{
    chain::At,
    flight::Output,
    packet::Tracking,
    path::{Effect, End, Hook, Step},
    rules::{Action, Port},
    walker::{Ends, Walker},
};

impl Walker<'_> {
    /// Marks, and NOTRACK.
    pub(super) fn marks(&mut self, action: &Action) -> Effect {
        let packet = &mut self.flight.packet;
        let conn = self.flight.conn.as_mut();
        let of_connection = match action {
            Action::Mark { clear, flip } => {
                packet.mark = (packet.mark & !clear) ^ flip;
                false
            }
            Action::RestoreMark {
                packet: of_packet,
                connection,
            } => {
                // Without a connection nothing happens (Linux 6.18, `xt_connmark.c`).
                if let Some(conn) = conn {
                    packet.mark = (packet.mark & !of_packet) ^ (conn.mark & connection);
                }
                false
            }
            Action::ConnectionMark { clear, flip } => {
                if let Some(conn) = conn {
                    conn.mark = (conn.mark & !clear) ^ flip;
                }
                true
            }
            Action::SaveMark {
                packet: of_packet,
                connection,
            } => {
                if let Some(conn) = conn {
                    conn.mark = (conn.mark & !connection) ^ (packet.mark & of_packet);
                }
                true
            }
            _ => {
                // A packet that has a connection already keeps it (`xt_CT.c`).
                if self.flight.conn.is_none() {
                    self.flight.tracking = Tracking::Untracked;
                }
                return Effect::Untrack;
            }
        };
        let of_conn = self.flight.conn.as_ref().map(|it| it.mark);
        Effect::Mark {
            of_connection,
            mark: if of_connection {
                of_conn.unwrap_or_default()
            } else {
                self.flight.packet.mark
            },
        }
    }

    /// Translation of a connection that begins.
    pub(super) fn nat(&mut self, at: At<'_>, action: &Action) -> Ends<Effect> {
        match action {
            Action::Dnat(address, port) => Ok(self.dnat(*address, *port)),
            Action::DnatToOneOf(ends) => {
                let taken = self.chance(ends.len().max(1), &at.rule.text);
                let (address, port) = ends.get(taken).copied().unzip();
                Ok(self.dnat(address, port.flatten()))
            }
            Action::Redirect(port) => {
                let here = self.own_address()?;
                Ok(self.dnat(Some(here), *port))
            }
            Action::Snat(address, port) => Ok(self.snat(*address, *port)),
            Action::Masquerade(port) => self.masquerade(*port),
            _ => Ok(Effect::Unchanged),
        }
    }

    fn masquerade(&mut self, port: Port) -> Ends<Effect> {
        let Output::By(interface) = &self.flight.output else {
            return Ok(self.snat(None, port));
        };
        let Some(routing) = &self.state.routing else {
            return Ok(self.snat(None, port));
        };
        let dst = self.flight.packet.dst;
        let next = self.next_hop().unwrap_or(dst);
        match routing.address_of(interface, next, dst) {
            Some(address) => Ok(self.snat(Some(address), port)),
            // Linux 6.18, `nf_nat_masquerade.c`: "… ate my IP address".
            None => Err(End::Refused {
                why: format!("{interface} has no address to masquerade with"),
            }),
        }
    }

    /// What REDIRECT sends to: an address of the interface that the packet came by; of what is made here, `127.0.0.1` or
    /// `::1`.
    fn own_address(&mut self) -> Ends<IpAddr> {
        let made_here = self.steps.iter().rev().find_map(|step| match step {
            Step::Hook { hook, .. } => Some(*hook == Hook::Output),
            _ => None,
        });
        let packet = &self.flight.packet;
        if made_here == Some(true) {
            return Ok(match packet.dst {
                IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let input = packet.input.as_deref().unwrap_or_default();
        let routing = self.state.routing.as_ref();
        let own = routing.and_then(|it| it.address_on(input));
        own.ok_or_else(|| End::Undecided {
            why: format!("the address of {input}, to which REDIRECT sends, is not known"),
        })
    }
}
