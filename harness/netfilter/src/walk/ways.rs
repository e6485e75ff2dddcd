//! Where a packet goes next: what a look-up of its route comes to.

use std::net::IpAddr;

use super::{
    flight::Output,
    matches::Kind,
    path::{End, Step},
    route::{Found, Hop, Query},
    walker::{Ends, Walker},
};

/// Where a packet goes after a look-up.
#[derive(Debug, Clone)]
pub(super) enum Way {
    Here,
    On(Hop),
    Unknown,
}

impl Walker<'_> {
    pub(super) fn route_received(&mut self) -> Ends<Way> {
        let packet = self.flight.packet.clone();
        let input = packet.input.as_deref();
        let Some(routing) = &self.state.routing else {
            return Ok(self.whose(packet.dst));
        };
        if let Some(why) = self.state.martian(&packet) {
            return refused(why);
        }
        let found = routing.look(Query::of(&packet));
        let way = self.way(packet.dst, found)?;
        if let Some(why) = self.state.wrong_source(&packet) {
            return refused(why);
        }
        if matches!(way, Way::On(_)) && !self.state.forwards(input.unwrap_or("all")) {
            return refused("this node does not forward: its sysctl says so".to_owned());
        }
        Ok(way)
    }

    /// Routes what is made here, also again after it was changed.
    pub(super) fn route_made(&mut self) -> Ends<()> {
        let packet = &self.flight.packet;
        let dst = packet.dst;
        let Some(routing) = &self.state.routing else {
            self.way = self.whose(dst);
            return Ok(());
        };
        let found = routing.look(Query {
            input: None,
            ..Query::of(packet)
        });
        self.way = self.way(dst, found)?;
        Ok(())
    }

    /// Where it goes as far as that is known without routes. What was assumed of an address holds to the end.
    fn whose(&mut self, dst: IpAddr) -> Way {
        const ANSWERS: [&str; 2] = ["it is the node's", "it is another's"];
        let question = format!("whether {dst} is the node's own: no routes are known");
        let said = self.steps.iter().find_map(|step| match step {
            Step::Assumed {
                question: it,
                answer,
            } if *it == question => Some(answer == ANSWERS[0]),
            _ => None,
        });
        let known = self.state.owns(dst);
        if let Some(own) = known {
            let whose = if own { "the node's own" } else { "another's" };
            self.routed(format!("{dst} is {whose}"));
        }
        let here = known.or(said);
        if here.unwrap_or_else(|| self.assume(question, &ANSWERS) == 0) {
            Way::Here
        } else {
            Way::Unknown
        }
    }

    /// By which interface its way leads out.
    pub(super) fn output(&self) -> Output {
        match &self.way {
            Way::Here => Output::By("lo".to_owned()),
            Way::On(hop) => Output::By(hop.interface.clone()),
            Way::Unknown => Output::Unknown,
        }
    }

    /// What a look-up comes to.
    fn way(&mut self, dst: IpAddr, found: Found) -> Ends<Way> {
        let (kind, hops, net) = match found {
            Found::Route(kind, hops, net) => (kind, hops, net),
            Found::Nothing => return refused(format!("no route to {dst}")),
            Found::Open(why) => {
                return Err(End::Undecided {
                    why: format!("the route to {dst} depends on {why}"),
                });
            }
        };
        match kind {
            Kind::Local | Kind::Broadcast => {
                self.routed(format!("{dst} is the node's own"));
                Ok(Way::Here)
            }
            Kind::Unicast => {
                let ways = hops.len().max(1);
                let taken = if ways == 1 {
                    0
                } else {
                    self.chance(ways, &format!("the route to {net}"))
                };
                let Some(hop) = hops.into_iter().nth(taken) else {
                    return refused(format!("the route to {net} leads nowhere"));
                };
                let via = hop.via.map(|via| format!(" via {via}")).unwrap_or_default();
                self.routed(format!("{dst} goes{via} by {} ({net})", hop.interface));
                Ok(Way::On(hop))
            }
            Kind::Multicast => Err(End::Undecided {
                why: "multicast is not followed".to_owned(),
            }),
            Kind::Blackhole | Kind::Unreachable | Kind::Prohibit => {
                refused(format!("a route to {net} says {kind:?}").to_lowercase())
            }
        }
    }

    fn routed(&mut self, what: String) {
        // Routed again, with the same result.
        let known = self.steps.iter().rev().find_map(|step| match step {
            Step::Routed { what } => Some(what.as_str()),
            _ => None,
        });
        if known != Some(what.as_str()) {
            self.steps.push(Step::Routed { what });
        }
    }

    /// The gateway that it goes to; none where the destination itself is next.
    pub(super) fn next_hop(&self) -> Option<IpAddr> {
        match &self.way {
            Way::On(hop) => hop.via,
            Way::Here | Way::Unknown => None,
        }
    }
}

fn refused<T>(why: String) -> Ends<T> {
    Err(End::Refused { why })
}
