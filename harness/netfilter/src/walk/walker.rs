//! One way of a packet through the hooks. Where chance or what is not known decides, [`Script`] says which way is
//! taken; all ways are taken by walking again and again.

use super::{
    Order,
    conntrack::{self, Verdict},
    flight::{Flight, Output},
    packet::{Packet, Tracking},
    path::{End, Hook, Path, Step},
    program::{Base, Kind as BaseKind, Program},
    rules::Port,
    state::State,
    ways::Way,
};
use crate::conntrack::Flow;

/// Which way to take where there are several.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// What was taken, and of how many.
    taken: Vec<(usize, usize)>,
    at: usize,
}

impl Script {
    /// Which of `ways` to take here.
    pub(super) fn choose(&mut self, ways: usize) -> usize {
        if self.at == self.taken.len() {
            self.taken.push((0, ways));
        }
        let (taken, _) = self.taken.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        taken
    }

    /// Goes on to the next way; false when there is none.
    pub(super) fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((taken, ways)) = self.taken.pop() {
            if taken + 1 < ways {
                self.taken.push((taken + 1, ways));
                return true;
            }
        }
        false
    }
}

/// A packet on one of its ways.
#[derive(Debug)]
pub(super) struct Walker<'a> {
    pub(super) state: &'a State,
    pub(super) script: &'a mut Script,
    pub(super) flight: Flight,
    pub(super) steps: Vec<Step>,
    pub(super) share: f64,
    /// How many chains were entered: rules of a broken dump may go in circles.
    pub(super) entered: usize,
    /// Where it goes.
    pub(super) way: Way,
    order: Order,
}

/// The packet's way ends here.
pub(super) type Ends<T> = Result<T, End>;

impl<'a> Walker<'a> {
    pub(super) fn new(
        state: &'a State,
        script: &'a mut Script,
        packet: Packet,
        order: Order,
    ) -> Self {
        Self {
            state,
            script,
            flight: Flight::new(packet),
            steps: Vec::new(),
            share: 1.0,
            entered: 0,
            way: Way::Unknown,
            order,
        }
    }

    /// Walks to the end.
    pub(super) fn walk(mut self) -> Path {
        let end = match self.flight.packet.input {
            Some(_) => self.received(),
            None => self.made_here(),
        };
        let end = end.unwrap_or_else(|end| end);
        let flow = if end.arrives() { self.flow() } else { None };
        Path {
            share: self.share,
            steps: self.steps,
            packet: self.flight.packet,
            flow,
            end,
        }
    }

    /// What conntrack keeps of it.
    fn flow(&self) -> Option<Flow> {
        let conn = self.flight.conn.as_ref()?;
        Some(Flow {
            protocol: self.flight.packet.protocol.to_string(),
            timeout: None,
            state: None,
            original: conn.original,
            reply: conn.reply,
            unreplied: !conn.answered,
            assured: false,
            mark: conn.mark,
        })
    }

    fn received(&mut self) -> Ends<End> {
        self.programs_receive()?;
        self.hook(Hook::Prerouting)?;
        self.way = self.route_received()?;
        if matches!(self.way, Way::Here) {
            return self.delivered();
        }
        self.flight.output = self.output();
        self.hook(Hook::Forward)?;
        self.leaves()
    }

    fn delivered(&mut self) -> Ends<End> {
        self.policies_to_node()?;
        self.flight.output = Output::None;
        self.hook(Hook::Input)?;
        Ok(End::Delivered)
    }

    fn leaves(&mut self) -> Ends<End> {
        self.hook(Hook::Postrouting)?;
        let (interface, via) = match &self.way {
            Way::On(hop) => (Some(hop.interface.clone()), hop.via),
            Way::Here | Way::Unknown => (None, None),
        };
        self.policies_out(interface.as_deref())?;
        self.programs_answer();
        Ok(End::Sent { interface, via })
    }

    fn made_here(&mut self) -> Ends<End> {
        self.programs_connect()?;
        self.route_made()?;
        // What is routed again by a rule of this hook has the same output interface up to the end of the hook.
        self.flight.output = self.output();
        self.hook(Hook::Output)?;
        self.flight.output = self.output();
        if !matches!(self.way, Way::Here) {
            return self.leaves();
        }
        self.hook(Hook::Postrouting)?;
        // Over `lo` it keeps connection, mark and route.
        self.flight.packet.input = Some("lo".to_owned());
        self.flight.output = Output::None;
        self.hook(Hook::Prerouting)?;
        self.delivered()
    }

    /// Calls the base chains of a hook, and what else the kernel does there, by priority.
    fn hook(&mut self, hook: Hook) -> Ends<()> {
        self.steps.push(Step::Hook {
            hook,
            packet: self.flight.packet.clone(),
        });
        let bases = self.state.bases(hook, self.order);
        let first = matches!(hook, Hook::Prerouting | Hook::Output);
        let nat = match hook {
            Hook::Forward => None,
            Hook::Prerouting | Hook::Output => Some(-100),
            Hook::Input | Hook::Postrouting => Some(100),
        };
        let (mut track, mut translate) = (first.then_some(-200), nat);
        for (program, base) in bases.iter().filter(|(_, base)| base.kind != BaseKind::Nat) {
            if track.take_if(|at| *at <= base.priority).is_some() {
                self.track();
            }
            if translate.take_if(|at| *at <= base.priority).is_some() {
                self.translate(hook, &bases)?;
            }
            self.base(hook, program, base)?;
        }
        if track.is_some() {
            self.track();
        }
        if translate.is_some() {
            self.translate(hook, &bases)?;
        }
        Ok(())
    }

    fn base(&mut self, hook: Hook, program: &Program, base: &Base) -> Ends<()> {
        let mark = self.flight.packet.mark;
        self.chain(program, base.chain)?;
        let routes = hook == Hook::Output && base.kind == BaseKind::Route;
        if routes && mark != self.flight.packet.mark {
            self.route_made()?;
        }
        Ok(())
    }

    fn track(&mut self) {
        // Not again over `lo`.
        if self.flight.conn.is_some() || self.flight.tracking == Tracking::Untracked {
            return;
        }
        let packet = &self.flight.packet;
        let verdict = self.state.connections.look(packet, self.state.settings());
        let verdict = match verdict.reopens {
            Some(other) => {
                let question = "which end reset the connection that is closed".to_owned();
                let answers = ["the other one: its entry stays", "the one that begins anew"];
                match self.assume(question, &answers) {
                    0 => Verdict {
                        reopens: None,
                        ..verdict
                    },
                    _ => *other,
                }
            }
            None => verdict,
        };
        let Verdict {
            tracking,
            conn,
            why,
            ..
        } = verdict;
        self.flight.tracking = tracking;
        self.flight.conn = conn;
        self.steps.push(Step::Tracked { tracking, why });
    }

    /// Asks the nat chains about a connection that begins, and changes the addresses of one that is known.
    fn translate(&mut self, hook: Hook, bases: &[(&Program, &Base)]) -> Ends<()> {
        let source = matches!(hook, Hook::Input | Hook::Postrouting);
        let begins = matches!(self.flight.tracking, Tracking::New | Tracking::Related);
        let settled = |walker: &Self| {
            let conn = walker.flight.conn.as_ref();
            conn.is_none_or(|it| {
                if source {
                    it.src_settled
                } else {
                    it.dst_settled
                }
            })
        };
        let before = self.flight.packet.dst;
        if settled(self) || !begins {
            self.translate_known(source);
        } else {
            self.translate_new(source, bases, settled)?;
        }
        if hook == Hook::Output && before != self.flight.packet.dst {
            self.route_made()?;
        }
        Ok(())
    }

    fn translate_new(
        &mut self,
        source: bool,
        bases: &[(&Program, &Base)],
        settled: impl Fn(&Self) -> bool,
    ) -> Ends<()> {
        for (program, base) in bases.iter().filter(|(_, base)| base.kind == BaseKind::Nat) {
            self.chain(program, base.chain)?;
            if settled(self) {
                return Ok(());
            }
        }
        self.keep(source);
        Ok(())
    }

    /// Without a rule a connection keeps its source and its destination, but not a port or an identifier with which
    /// another one's answers would be taken for its own (`nf_nat_alloc_null_binding`).
    fn keep(&mut self, source: bool) {
        let from = self.flight.packet.clone();
        if source {
            self.snat(Some(from.src), Port::Kept);
        } else {
            self.dnat(None, None);
        }
        let to = self.flight.packet.clone();
        if from != to {
            self.steps.push(Step::Translated { from, to });
        }
    }

    /// Of a connection that is known: as its entry says (`nf_nat_packet`).
    fn translate_known(&mut self, source: bool) {
        let Some(conn) = &self.flight.conn else {
            return;
        };
        let changes = if source == conn.is_reply {
            conn.dnat
        } else {
            conn.snat
        };
        if !changes {
            return;
        }
        let to = conntrack::inverse(if conn.is_reply {
            conn.original
        } else {
            conn.reply
        });
        let from = self.flight.packet.clone();
        let packet = &mut self.flight.packet;
        let id = to.echo.map(|it| it.id);
        let (address, port, to_address, to_port) = match (source, id) {
            (true, _) => (&mut packet.src, &mut packet.sport, to.src, to.sport.or(id)),
            // An echo's identifier is the same for both ends, and changes with either.
            (false, Some(_)) => (&mut packet.dst, &mut packet.sport, to.dst, id),
            (false, None) => (&mut packet.dst, &mut packet.dport, to.dst, to.dport),
        };
        if *address == to_address && to_port.is_none_or(|it| it == *port) {
            return;
        }
        *address = to_address;
        *port = to_port.unwrap_or(*port);
        let to = packet.clone();
        self.steps.push(Step::Translated { from, to });
    }

    /// One of as many ways, each as probable as the others.
    pub(super) fn chance(&mut self, ways: usize, what: &str) -> usize {
        let taken = self.script.choose(ways);
        let count = u32::try_from(ways).unwrap_or(u32::MAX);
        self.happens(1.0 / f64::from(count), what);
        taken
    }

    /// Notes that something of this share happens.
    pub(super) fn happens(&mut self, share: f64, what: &str) {
        self.share *= share;
        self.steps.push(Step::Chance {
            share,
            what: what.to_owned(),
        });
    }

    /// Assumes one of the answers to a question that nothing here answers.
    pub(super) fn assume(&mut self, question: String, answers: &[&str]) -> usize {
        let taken = self.script.choose(answers.len());
        let answer = answers.get(taken).copied().unwrap_or_default().to_owned();
        self.steps.push(Step::Assumed { question, answer });
        taken
    }
}
