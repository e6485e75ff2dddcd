//! What Felix notes of a policy program, read: before the instructions that ask for something it says in words what that is.

use serde::Deserialize;

use super::{Action, Condition, Direction, Policy, Rule};
use crate::walk::{
    matches::{Ports, Side, Test},
    packet::Protocol,
    parse::net,
};

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
        for (Instruction { labels, comments }, number) in instructions.into_iter().zip(0..) {
            if labels.iter().any(|it| it == WORKLOADS) {
                reader.is_behind_hosts = true;
                reader.has_host_rules |= !reader.rules.is_empty();
            }
            for comment in &comments {
                reader.read(comment, number);
            }
        }
        let why = if !error.is_empty() {
            Some(format!("Felix could not load it: {error}"))
        } else if reader.has_host_rules || !reader.is_behind_hosts {
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
    has_host_rules: bool,
    is_behind_hosts: bool,
    tiers: usize,
    tier: Option<usize>,
    policy: Option<String>,
    /// The rule that is read, and before which instruction it began.
    rule: Option<(Rule, usize)>,
    /// Sets of which one has to fit.
    sets: Vec<Test>,
}

impl Reader {
    fn read(&mut self, comment: &str, number: usize) {
        let begins = |with: &str| comment.strip_prefix(with);
        if let Some(rule) = begins("Start of rule ") {
            self.begin(rule, number);
        } else if begins("End of rule ").is_some() {
            // Of a rule about the other family there are words and no instructions.
            let rule = self.rule.take().filter(|(_, began)| *began != number);
            self.rules.extend(rule.map(|(rule, _)| rule));
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
        }
    }

    /// `default.web action:"allow" …`, without a name up to v3.28.
    fn begin(&mut self, rule: &str, number: usize) {
        let action = rule
            .split_once("action:\"")
            .and_then(|(_, rest)| rest.split_once('"'));
        let action = match action.map(|(action, _)| action.to_lowercase()) {
            Some(action) => match action.as_str() {
                "allow" => Action::Allow,
                "deny" => Action::Deny,
                "pass" | "next-tier" => Action::Pass,
                "log" => Action::Log,
                _ => Action::Unknown(action),
            },
            None => Action::Unknown(rule.to_owned()),
        };
        let profile = || "a profile".to_owned();
        let rule = Rule {
            of: self.policy.clone().unwrap_or_else(profile),
            tier: self.tier,
            conditions: Vec::new(),
            action,
        };
        self.rule = Some((rule, number));
    }

    /// `default: pass`; up to v3.28 `default`, which denies.
    fn end_tier(&mut self, tier: &str) {
        let (name, action) = tier.split_once(": ").unwrap_or((tier, "deny"));
        self.rules.push(Rule {
            of: format!("the end of tier {name}"),
            tier: self.tier,
            action: match action {
                "deny" | "" => Action::Deny,
                "pass" => Action::Pass,
                other => Action::Unknown(other.to_owned()),
            },
            conditions: Vec::new(),
        });
        self.tier = None;
    }

    /// `source not in {10.0.0.0/8}, skip to next rule`.
    fn condition(&mut self, text: &str) {
        let Some((rule, _)) = &mut self.rule else {
            return;
        };
        let asked = text
            .strip_suffix(", skip to next rule")
            .or_else(|| text.strip_suffix(", jump to next ipset"));
        let words: Vec<&str> = asked.unwrap_or(text).split(' ').collect();
        let test = asked.and_then(|_| asks(&words));
        match (words.as_slice(), test) {
            ([_, "doesn't", "match", "any", ..], _) => rule.conditions.push(Condition {
                not: false,
                any: std::mem::take(&mut self.sets),
            }),
            (_, Some(Asked { any, .. })) if text.ends_with("ipset") => self.sets.extend(any),
            // Ports by name are asked for beside those by number.
            ([_, "port", "is", .., "named", "ports", _], Some(asked)) => {
                if let Some(last) = rule.conditions.last_mut() {
                    last.any.extend(asked.any);
                }
            }
            (_, Some(Asked { not, any })) => rule.conditions.push(Condition { not, any }),
            (_, None) => rule.conditions.push(Condition {
                not: false,
                any: vec![Test::Unknown(format!("whether not: {text}"))],
            }),
        }
    }
}

/// A condition, in the words of what skips its rule.
struct Asked {
    not: bool,
    any: Vec<Test>,
}

fn asks(words: &[&str]) -> Option<Asked> {
    let asked = |not, any| Some(Asked { not, any });
    match *words {
        ["protocol", is, protocol] => {
            let not = is == "==";
            asked(not, vec![Test::Protocol(Protocol::parse(protocol)?)])
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
        [leg, "port", "is", ref rest @ ..] => {
            let (not, any) = asks_port(side(leg)?, rest)?;
            asked(not, any)
        }
        _ => None,
    }
}

/// `within any of {80,443}`, `not within any of the named ports {s:web}`: whether none of them may be it, and them.
fn asks_port(side: Side, words: &[&str]) -> Option<(bool, Vec<Test>)> {
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
                name: name.to_owned(),
                keys: vec![side, side],
            };
            names.map(set).collect()
        }
        _ => return None,
    };
    Some((not, all))
}

/// `GlobalNetworkPolicy default.web 3` without the number; up to v3.28 `policy default.web`.
fn named(policy: &str) -> String {
    let (name, number) = policy.rsplit_once(' ').unwrap_or((policy, ""));
    let is_number = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
    if is_number { name } else { policy }.to_owned()
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
