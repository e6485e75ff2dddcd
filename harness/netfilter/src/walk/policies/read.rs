//! What Felix notes of a policy program, read: before the instructions that ask for something it says in words what that is.

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{Action, Condition, Direction, Policy, Rule};
use crate::walk::{
    matches::{Match, Ports, Side, Test},
    packet::Protocol,
    parse::net,
};

/// The label of what a host endpoint asks of packets to and from the node itself, which no workload's program has.
const HOSTS: &str = "to_or_from_host";
/// Behind which label of a program nothing more is a host endpoint's.
const WORKLOADS: &str = "allowed_by_host_policy";

/// As Felix notes a program.
#[derive(Deserialize)]
struct Noted {
    ifacename: String,
    hook: String,
    #[serde(rename = "policyInfo")]
    instructions: Option<Vec<Instruction>>,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct Instruction {
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    comments: Vec<String>,
    #[serde(default)]
    annotation: String,
}

/// Reads a program: its interface, which packets it sees, and what it asks of them. None where the text is none.
pub(super) fn policy(json: &str) -> Option<(String, Direction, Policy)> {
    let noted: Noted = serde_json::from_str(json).ok()?;
    let direction = match noted.hook.trim_start_matches("tc ") {
        "ingress" => Direction::In,
        "egress" => Direction::Out,
        "xdp" => Direction::Untracked,
        _ => return None,
    };
    let policy = Policy::of(noted.instructions.unwrap_or_default(), &noted.error);
    Some((noted.ifacename, direction, policy))
}

impl Policy {
    fn of(instructions: Vec<Instruction>, error: &str) -> Self {
        let mut reader = Reader::default();
        for (instruction, number) in instructions.into_iter().zip(0..) {
            for label in &instruction.labels {
                reader.is_of_host |= label == HOSTS;
                if label == WORKLOADS {
                    reader.is_behind_hosts = true;
                    reader.is_of_host |= !reader.rules.is_empty();
                }
            }
            for comment in &instruction.comments {
                reader.read(comment, number);
            }
            if let Some(label) = instruction.annotation.strip_prefix("goto ") {
                reader.goes(label);
            }
        }
        let why = if !error.is_empty() {
            Some(format!("Felix could not load it: {error}"))
        } else if reader.is_of_host || !reader.is_behind_hosts {
            Some("it has a host endpoint's policies".to_owned())
        } else {
            None
        };
        Self {
            rules: reader.rules,
            open: why,
        }
    }
}

/// A program's words as they are read.
#[derive(Default)]
struct Reader {
    rules: Vec<Rule>,
    is_of_host: bool,
    is_behind_hosts: bool,
    tiers: usize,
    tier: Option<usize>,
    policy: Option<String>,
    rule: Option<Begun>,
    /// Whether what the last tier does with the rest is not known yet.
    is_tier_open: bool,
    /// Sets of which one has to fit.
    sets: Vec<Match>,
}

/// A rule that is read.
struct Begun {
    rule: Rule,
    /// Before which instruction it began.
    number: usize,
    /// The numbers of protocols in its words, which are compared, whatever they are called later: that it asks for, and that it may not be.
    protocols: [Option<u8>; 2],
    /// Whether the program is continued in another one meanwhile, so that it has instructions in any case.
    is_split: bool,
}

impl Begun {
    /// Nothing of a rule about the other family, of which there are words and no instructions.
    fn end(mut self, number: usize) -> Option<Rule> {
        if self.is_split && self.rule.conditions.is_empty() {
            let what = "whether it is about this family, where its program is split".to_owned();
            self.rule.conditions.push(Condition::unknown(what));
        }
        (self.number != number).then_some(self.rule)
    }
}

impl Reader {
    fn read(&mut self, comment: &str, number: usize) {
        let begins = |with: &str| comment.strip_prefix(with);
        if let Some(rule) = begins("Start of rule ") {
            self.begin(rule, number);
        } else if begins("End of rule ").is_some() {
            let rule = self.rule.take().and_then(|it| it.end(number));
            self.rules.extend(rule);
        } else if begins("Start of tier ").is_some() {
            self.tier = Some(self.tiers);
            self.tiers += 1;
        } else if let Some(tier) = begins("End of tier ") {
            self.end_tier(tier);
        } else if let Some(policy) = begins("Start of ") {
            self.policy = Some(named(policy));
        } else if begins("End of ").is_some() {
            self.policy = None;
        } else if let Some(asked) = begins("If ") {
            self.condition(asked);
        } else if begins("Splitting program")
            .or_else(|| begins("##### Start"))
            .is_some()
        {
            self.rule.iter_mut().for_each(|it| it.is_split = true);
        }
    }

    /// `default.web action:"allow" …`, without a name up to v3.28.
    fn begin(&mut self, words: &str, number: usize) {
        // What the end of the tier does has no instruction: nothing comes so far.
        self.is_tier_open = false;
        let action = words
            .split_once("action:\"")
            .and_then(|(_, rest)| rest.split_once('"'));
        let action = match action.map(|(action, _)| action.to_lowercase()) {
            Some(action) => match action.as_str() {
                "allow" => Action::Allow,
                "deny" => Action::Deny,
                "pass" | "next-tier" => Action::Pass,
                // It changes nothing: what it asks for is not read.
                "log" => {
                    self.rule = None;
                    return;
                }
                _ => Action::Unknown(action),
            },
            None => Action::Unknown(words.to_owned()),
        };
        let profile = || "a profile".to_owned();
        let rule = Rule {
            of: self.policy.clone().unwrap_or_else(profile),
            tier: self.tier,
            conditions: Vec::new(),
            action,
        };
        // `protocol:{number:6}`, up to v3.28 `protocol:<number:6 >`.
        let protocols = [" protocol:", " not_protocol:"].map(|with| {
            let (_, rest) = words.split_once(with)?;
            let number = rest.get(1..)?.strip_prefix("number:")?;
            number.split(['}', ' ']).next()?.parse().ok()
        });
        self.rule = Some(Begun {
            rule,
            number,
            protocols,
            is_split: false,
        });
    }

    /// Where an instruction leads; the first one behind a tier says what that does with the rest.
    fn goes(&mut self, label: &str) {
        if !std::mem::take(&mut self.is_tier_open) {
            return;
        }
        if let Some(end) = self.rules.last_mut() {
            end.action = match label {
                "deny" => Action::Deny,
                label if label.starts_with("end_of_tier_") => Action::Pass,
                label => Action::Unknown(format!("it goes to {label}")),
            };
        }
    }

    /// `default: pass`; up to v3.29 without what it does.
    fn end_tier(&mut self, tier: &str) {
        let (name, action) = match tier.split_once(": ") {
            Some((name, "deny" | "")) => (name, Action::Deny),
            Some((name, "pass")) => (name, Action::Pass),
            Some((name, other)) => (name, Action::Unknown(other.to_owned())),
            None => {
                self.is_tier_open = true;
                (tier, Action::Unknown("what no dump tells".to_owned()))
            }
        };
        self.rules.push(Rule {
            of: format!("the end of tier {name}"),
            tier: self.tier.take(),
            conditions: Vec::new(),
            action,
        });
    }

    /// `source not in {10.0.0.0/8}, skip to next rule`.
    fn condition(&mut self, text: &str) {
        let Some(Begun {
            rule, protocols, ..
        }) = &mut self.rule
        else {
            return;
        };
        let asked = text
            .strip_suffix(", skip to next rule")
            .or_else(|| text.strip_suffix(", jump to next ipset"));
        let words: Vec<&str> = asked.unwrap_or(text).split(' ').collect();
        let test = asked.and_then(|_| asks(&words, *protocols));
        match (words.as_slice(), test) {
            ([_, "doesn't", "match", "any", ..], _) => rule.conditions.push(Condition {
                not: false,
                any: std::mem::take(&mut self.sets),
            }),
            (_, Some(asked)) if text.ends_with("ipset") => self.sets.extend(asked.any),
            // Ports by name are asked for beside those by number.
            ([_, "port", "is", .., "named", "ports", _], Some(asked)) => {
                if let Some(last) = rule.conditions.last_mut() {
                    last.any.extend(asked.any);
                }
            }
            (_, Some(asked)) => rule.conditions.push(asked),
            (_, None) => rule
                .conditions
                .push(Condition::unknown(format!("whether not: {text}"))),
        }
    }
}

impl Condition {
    fn of(not: bool, any: Vec<Test>) -> Self {
        let any = any.into_iter().map(|test| Match { not: false, test });
        Self {
            not,
            any: any.collect(),
        }
    }

    /// Of what is not known here.
    fn unknown(what: String) -> Self {
        Self::of(false, vec![Test::Unknown(what)])
    }
}

/// A condition, by the words of what skips its rule.
fn asks(words: &[&str], [is, is_not]: [Option<u8>; 2]) -> Option<Condition> {
    let asked = |not, any| Some(Condition::of(not, any));
    match *words {
        ["protocol", how, name] => {
            let not = how == "==";
            let number = if not { is_not } else { is };
            let protocol = number.map_or_else(|| of_name(name), |it| Some(Protocol(it)));
            asked(not, vec![Test::Protocol(protocol?)])
        }
        ["ICMP", "type", is, kind] => {
            let kind = kind.parse().ok()?;
            asked(is == "==", vec![Test::Icmp { kind }])
        }
        [leg, ref is @ .., nets] if matches!(is, ["in"] | ["not", "in"]) => {
            let side = side(leg)?;
            let nets = within(nets)?.split(',').filter(|it| !it.is_empty());
            let nets: Option<Vec<_>> = nets.map(net).collect();
            let any = nets?.into_iter().map(|net| Test::Address(side, net));
            asked(*is == ["in"], any.collect())
        }
        [leg, ref is @ .., "ipset", _, number] => {
            let name = number.strip_prefix('(')?.strip_suffix(')')?.to_owned();
            let side = side(leg)?;
            // A source's ports are looked up by its own, too.
            let keys = vec![side, side];
            asked(*is == ["matches"], vec![Test::Set { name, keys }])
        }
        [leg, "port", "is", ref rest @ ..] => asks_port(side(leg)?, rest),
        _ => None,
    }
}

/// `within any of {80,443}`, `not within any of the named ports {s:web}`.
fn asks_port(side: Side, words: &[&str]) -> Option<Condition> {
    let (not, words) = match words {
        ["not", rest @ ..] => (false, rest),
        rest => (true, rest),
    };
    let all = match words {
        ["within", "any", "of", ports] => match within(ports)? {
            "" => Vec::new(),
            ports => vec![Test::Port(side, Ports::parse(ports)?)],
        },
        ["within", "any", "of", "the", "named", "ports", names] => {
            let names = within(names)?.split(',').filter(|it| !it.is_empty());
            let set = |name: &str| Test::Set {
                name: number_of(name),
                keys: vec![side, side],
            };
            names.map(set).collect()
        }
        _ => return None,
    };
    Some(Condition::of(not, all))
}

/// `GlobalNetworkPolicy default.web 3` without the number; up to v3.28 `policy default.web`.
fn named(policy: &str) -> String {
    let (name, number) = policy.rsplit_once(' ').unwrap_or((policy, ""));
    let is_number = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
    if is_number { name } else { policy }.to_owned()
}

/// Of a protocol that has no number: other names than these are compared with nothing.
fn of_name(name: &str) -> Option<Protocol> {
    match name {
        "" => None,
        "tcp" => Some(Protocol::TCP),
        "udp" => Some(Protocol::UDP),
        "icmp" => Some(Protocol::ICMP),
        "sctp" => Some(Protocol::SCTP),
        _ => Some(Protocol(0)),
    }
}

/// By which number Felix has a set in its map, unless another one has it already (felix/idalloc).
fn number_of(set: &str) -> String {
    let hash = Sha256::new().chain_update([0; 8]).chain_update(set);
    let first = hash.finalize().into_iter().take(8);
    let number = first
        .rev()
        .fold(0_u64, |all, byte| all << 8 | u64::from(byte));
    format!("{number:#x}")
}

fn side(leg: &str) -> Option<Side> {
    match leg {
        "source" => Some(Side::Src),
        "dest" => Some(Side::Dst),
        _ => None,
    }
}

fn within(braces: &str) -> Option<&str> {
    braces.strip_prefix('{')?.strip_suffix('}')
}
