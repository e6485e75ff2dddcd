//! The policies in Felix's eBPF programs, by what it notes of each program where that runs: `/var/run/calico/bpf/policy/IFACE_HOOK_vN.json`
//! (`bpfPolicyDebugEnabled`, the default; read in Calico's sources, v3.28 and v3.32: `felix/bpf/polprog/pol_prog_builder.go`, felix/bpf-gpl/tc.c).

mod read;

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    flight::Flight,
    matches::{Answer, Match, Test},
    packet::{Packet, Protocol},
    path::{End, Step},
    programs::{MASQUERADE, goes_on},
    state::State,
    walker::{Ends, Walker},
};
use crate::Family;

/// Which packets of an interface a program sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    /// Those that the node receives by it.
    In,
    /// Those that leave by it.
    Out,
    /// Those that it receives, before connections are tracked.
    Untracked,
}

/// The policies of one family at one interface, in one direction.
type Place = (String, Direction, Family);

/// All of them that were noted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policies(BTreeMap<Place, Policy>);

/// What one program asks, in order. What nothing of it allows is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Policy {
    rules: Vec<Rule>,
    /// Why that is not all of it.
    open: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    /// Of which policy or profile, in Felix's words.
    of: String,
    /// In which tier, by number; none of a profile's.
    tier: Option<usize>,
    conditions: Vec<Condition>,
    action: Action,
}

/// What is asked: one of these, or none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    not: bool,
    any: Vec<Match>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Allow,
    Deny,
    /// On to the next tier, or to the profiles.
    Pass,
    Unknown(String),
}

impl Policies {
    /// Takes in a program: its line of JSON behind the name of its file, which alone says of which family it is. None where the text is none.
    pub(crate) fn take(&mut self, line: &str) -> Option<()> {
        let (name, json) = line.split_once(".json:")?;
        let family = match name.get(name.len().checked_sub(3)?..)? {
            "_v4" => Family::V4,
            "_v6" => Family::V6,
            _ => return None,
        };
        let (interface, direction, policy) = read::policy(json)?;
        let place = (interface, direction, family);
        self.0.insert(place, policy);
        Some(())
    }

    /// Whether any program of that family was noted.
    fn has(&self, family: Family) -> bool {
        self.0.keys().any(|(_, _, known)| *known == family)
    }

    /// The sets of addresses and ports that are asked for in a family, by their numbers.
    pub(crate) fn sets(&self, family: Family) -> impl Iterator<Item = &str> {
        let all = self.0.iter().filter(move |((_, _, of), _)| *of == family);
        let rules = all.flat_map(|(_, policy)| &policy.rules);
        let tests = rules.flat_map(|rule| rule.conditions.iter().flat_map(|it| &it.any));
        tests.filter_map(|it| match &it.test {
            Test::Set { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }

    fn at(&self, interface: &str, direction: Direction, family: Family) -> Option<&Policy> {
        self.0.get(&(interface.to_owned(), direction, family))
    }
}

impl Condition {
    fn ask(&self, flight: &Flight, state: &State) -> Answer {
        let mut open = None;
        for one in &self.any {
            match one.ask(flight, state) {
                Answer::Yes => return (!self.not).into(),
                Answer::No => {}
                other => open = Some(other),
            }
        }
        open.unwrap_or_else(|| self.not.into())
    }
}

impl State {
    /// Whether any of its family were noted.
    fn has_policies(&self) -> bool {
        let programs = self.felix.as_ref();
        programs.is_some_and(|it| it.maps.policies().has(self.family))
    }

    fn noted(&self, interface: &str, direction: Direction) -> Option<&Policy> {
        let policies = self.felix.as_ref()?.maps.policies();
        policies.at(interface, direction, self.family)
    }

    /// Whether an address is a pod's of this node, by the routes of Felix's programs.
    fn is_own_pod(&self, address: IpAddr) -> Option<bool> {
        self.felix.as_ref()?.is_own_pod(address)
    }
}

impl Walker<'_> {
    /// Asks the policies at the interface by which it came.
    pub(super) fn policies_in(&mut self) -> Ends<()> {
        let input = self.flight.packet.input.clone().unwrap_or_default();
        if self.state.noted(&input, Direction::Untracked).is_some() {
            self.policies_unknown(&format!(
                "whether the untracked policies of {input} let it pass: they are not read"
            ))?;
        }
        self.policies_at(&input, Direction::In)
    }

    /// What a pod sends to its own node `defaultEndpointToHostAction` may drop behind its policies (Drop is Felix's default), which no file
    /// says. Where it accepts Felix has a rule that says so.
    pub(super) fn policies_to_node(&mut self) -> Ends<()> {
        let Some(programs) = &self.state.felix else {
            return Ok(());
        };
        let input = self.flight.packet.input.clone().unwrap_or_default();
        let policy = self.state.noted(&input, Direction::In);
        let is_workloads = policy.is_some_and(|it| it.open.is_none());
        if !self.flight.is_policed || !is_workloads || programs.accepts_to_node {
            return Ok(());
        }
        self.policies_unknown(
            "whether pods may reach their own node (defaultEndpointToHostAction): no dump tells",
        )
    }

    /// Asks the policies at the interface by which it leaves, if those where it came in were all that was known. The node's own packets pass unasked
    /// to a workload, and not by a host endpoint.
    pub(super) fn policies_out(&mut self, interface: Option<&str>) -> Ends<()> {
        let state = self.state;
        let is_policed = std::mem::take(&mut self.flight.is_policed);
        let packet = self.flight.packet.clone();
        let policy = interface.and_then(|it| state.noted(it, Direction::Out));
        let is_hosts = policy.is_some_and(|it| it.open.is_some());
        let begins_here = packet.input.is_none() && !goes_on(&packet);
        let is_asked = is_policed || begins_here && is_hosts;
        if !is_asked {
            return Ok(());
        }
        let Some(interface) = interface else {
            return self
                .policies_unknown("which policies it meets where it leaves: no routes tell");
        };
        if !is_policed || packet.mark & MASQUERADE != MASQUERADE {
            return self.policies_at(interface, Direction::Out);
        }
        // It comes back to who sent it: to policies it is still from there. From v3.31.4 on the programs take its mark for that of what has passed them.
        self.flight.packet.src = packet.dst;
        let asked = self.policies_at(interface, Direction::Out);
        self.flight.packet.src = packet.src;
        match asked {
            Err(End::Refused { why }) => self.policies_unknown(&format!(
                "whether policies are asked of what comes back to who sent it, as up to v3.31.3: {why}"
            )),
            other => other,
        }
    }

    fn policies_at(&mut self, interface: &str, direction: Direction) -> Ends<()> {
        let state = self.state;
        if !state.has_policies() {
            return self.policies_unknown(
                "whether the policies in Felix's programs let it pass: no dump tells",
            );
        }
        // Asked again where it leaves.
        self.flight.is_policed = direction == Direction::In;
        if is_of_neighbours(&self.flight.packet) {
            return Ok(());
        }
        let Some(policy) = state.noted(interface, direction) else {
            return self.without_policy(interface, direction);
        };
        if let Some(why) = &policy.open {
            return self.policies_unknown(&format!(
                "whether the policies at {interface} let it pass: {why}"
            ));
        }
        if direction == Direction::In {
            self.taken_from(interface)?;
        }
        let packet = self.flight.packet.clone();
        if ![Protocol::TCP, Protocol::UDP].contains(&packet.protocol) {
            // They read no others' ports.
            (self.flight.packet.sport, self.flight.packet.dport) = (0, 0);
        }
        let asked = self.ask(policy, interface);
        (self.flight.packet.sport, self.flight.packet.dport) = (packet.sport, packet.dport);
        asked
    }

    /// At a workload's interface they take only what that may send, before they ask any policy.
    fn taken_from(&mut self, interface: &str) -> Ends<()> {
        let packet = &self.flight.packet;
        let is_others = self.state.is_own_pod(packet.src) == Some(false);
        if !is_others || packet.protocol == Protocol::ICMPV6 {
            return Ok(());
        }
        let src = packet.src;
        self.policies_unknown(&format!(
            "whether Felix's programs take it from {interface}: {src} is no pod's of this node"
        ))
    }

    /// No program was noted there: it is no workload's interface, or its program is missing among the dumps.
    fn without_policy(&mut self, interface: &str, direction: Direction) -> Ends<()> {
        let packet = &self.flight.packet;
        let end = if direction == Direction::In {
            packet.src
        } else {
            packet.dst
        };
        if self.state.is_own_pod(end) == Some(false) {
            return Ok(());
        }
        self.policies_unknown(&format!(
            "whether the policies at {interface} let it pass: they are not among the dumps"
        ))
    }

    /// Takes both ways.
    pub(super) fn policies_unknown(&mut self, question: &str) -> Ends<()> {
        if self.assume(question.to_owned(), &["they do", "they do not"]) == 1 {
            let why = "by a policy in Felix's programs".to_owned();
            return Err(End::Refused { why });
        }
        Ok(())
    }

    fn ask(&mut self, policy: &Policy, interface: &str) -> Ends<()> {
        let denied = |of: &str| {
            let why = format!("{of} denies it, in Felix's programs at {interface}");
            Err(End::Refused { why })
        };
        let mut passed = None;
        for rule in &policy.rules {
            let is_passed = rule.tier.is_some() && rule.tier == passed;
            if is_passed || !self.applies(rule, interface) {
                continue;
            }
            match &rule.action {
                Action::Allow => {
                    let what = format!("{} lets it pass at {interface}", rule.of);
                    self.steps.push(Step::Programs { what });
                    return Ok(());
                }
                Action::Pass if rule.tier.is_some() => passed = rule.tier,
                Action::Deny | Action::Pass => return denied(&rule.of),
                Action::Unknown(what) => {
                    let why = format!("what {} does at {interface}: {what}", rule.of);
                    return Err(End::Undecided { why });
                }
            }
        }
        denied("the lack of any policy and profile that allows it")
    }

    fn applies(&mut self, rule: &Rule, interface: &str) -> bool {
        let mut open = Vec::new();
        for condition in &rule.conditions {
            match condition.ask(&self.flight, self.state) {
                Answer::No => return false,
                Answer::Open(question) => open.push(question),
                Answer::Yes | Answer::Chance(_) => {}
            }
        }
        if open.is_empty() {
            return true;
        }
        let question = format!(
            "whether a rule of {} at {interface} applies: {}",
            rule.of,
            open.join(" and ")
        );
        self.assume(question, &["it does", "it does not"]) == 0
    }
}

/// Who has which address is asked past all policies.
fn is_of_neighbours(packet: &Packet) -> bool {
    packet.protocol == Protocol::ICMPV6 && matches!(packet.icmp, 130..=133 | 135 | 136)
}
