//! What is seen of a node of a sign.

use std::cell::OnceCell;

use chainbreak_model::{
    case::{Sign, Symptom, Which},
    names::AgentName,
};
use chainbreak_netfilter::{Table, dumps::Kind};
use regex::Regex;
use serde_json::{Map, Value};

use crate::{Evidence, Finding, checks::logged, objects, printed, tables::Tables};

/// What is known of a sign: that it is there (of several which one), and where; that it is not; or nothing.
pub(super) enum Seen<'s> {
    At(&'s Sign, Option<String>),
    Not,
    Unknown,
}

/// What was attached of a node, and what was found in it.
pub(super) struct Node<'a> {
    evidence: &'a Evidence,
    findings: &'a [Finding],
    /// Written once for all signs: a node of ten thousand services has some seventy thousand rules.
    iptables: OnceCell<Lines>,
    nft: OnceCell<Lines>,
    printed: OnceCell<Vec<Tables>>,
}

/// What a sign of a rule is looked for in.
struct Lines {
    /// Each with its table in front, as a rule of it begins.
    chains: Vec<String>,
    rules: Vec<Line>,
}

/// A rule: its table, its chain and its text.
struct Line {
    text: String,
    packets: Option<u64>,
}

impl<'a> Node<'a> {
    pub(super) fn new(evidence: &'a Evidence, findings: &'a [Finding]) -> Self {
        Self {
            evidence,
            findings,
            iptables: OnceCell::new(),
            nft: OnceCell::new(),
            printed: OnceCell::new(),
        }
    }

    /// Rules of iptables that nft alone has printed.
    fn printed(&self) -> &[Tables] {
        let printed = || printed::tables(self.evidence).collect();
        self.printed.get_or_init(printed)
    }

    pub(super) fn shows<'s>(&self, sign: &'s Sign) -> Seen<'s> {
        let known = match sign {
            Sign::Found(symptom) => self.finds(*symptom),
            Sign::Logged { agent, matches } => self.logs(*agent, matches),
            Sign::Rule { matches, which } => self.has_rule(matches, *which),
            Sign::Object(object) => self.has_object(object),
            Sign::Felix(spec) => self.has_felix_configuration(spec),
            Sign::Any(signs) => return self.shows_any(signs),
            Sign::Not(inner) => {
                return match self.shows(inner) {
                    Seen::At(..) => Seen::Not,
                    Seen::Not => Seen::At(sign, None),
                    Seen::Unknown => Seen::Unknown,
                };
            }
        };
        match known {
            Some(Some(place)) => Seen::At(sign, Some(place)),
            Some(None) => Seen::Not,
            None => Seen::Unknown,
        }
    }

    fn shows_any<'s>(&self, signs: &'s [Sign]) -> Seen<'s> {
        let mut known = Seen::Not;
        for sign in signs {
            match self.shows(sign) {
                Seen::At(leaf, place) => return Seen::At(leaf, place),
                Seen::Unknown => known = Seen::Unknown,
                Seen::Not => {}
            }
        }
        known
    }
}

/// Where it is; nothing inside where it is not, and nothing at all where that cannot be told.
type Place = Option<Option<String>>;

impl Node<'_> {
    fn finds(&self, symptom: Symptom) -> Place {
        let found = self.findings.iter().find(|it| it.kind == symptom);
        match found {
            Some(finding) => Some(Some(finding.what.clone())),
            None => self.could_find(symptom).then_some(None),
        }
    }

    /// Whether that was attached in which it would be found.
    fn could_find(&self, symptom: Symptom) -> bool {
        let Evidence { dumps, objects, .. } = self.evidence;
        let has = |kind| dumps.found().contains(&kind);
        let logs = |agent| self.evidence.log(agent).is_some();
        let mut tables = self
            .tables(Which::Iptables)
            .map(|(name, _)| name)
            .peekable();
        let saves = tables.peek().is_some();
        let nat = tables.any(|name| name == "nat");
        let nft = !dumps.nft_tables().is_empty();
        let slices = objects.endpoints().is_some();
        match symptom {
            Symptom::JumpMissing | Symptom::ServicesEmpty => nat,
            Symptom::BothBackends => dumps.saves().len() > 1,
            Symptom::ChainsMissing | Symptom::ElementsMissing => nft,
            Symptom::BothModes => saves && nft,
            Symptom::ServiceLeadsNowhere => nat || nft,
            Symptom::FelixCleansUp => saves || nft,
            Symptom::EndpointsDiffer | Symptom::ServiceWithoutRules => (saves || nft) && slices,
            Symptom::NatMapDiffers => !crate::nat_map::of(dumps).is_empty() && slices,
            Symptom::StaleConnections | Symptom::ConnectionsUntranslated => has(Kind::Flows),
            Symptom::InterfaceWithoutPrograms => {
                has(Kind::Routes) && objects.felix_configuration().is_some()
            }
            Symptom::NoForwarding | Symptom::ConntrackFull => has(Kind::Sysctls),
            Symptom::ConntrackDropped | Symptom::ConntrackInsertFailed => has(Kind::Statistics),
            Symptom::InvalidDropped => self
                .lines(Which::Iptables)
                .is_some_and(|it| it.rules.iter().any(|rule| rule.packets.is_some())),
            Symptom::FelixWaits | Symptom::EbpfRefused => logs(AgentName::Felix),
            Symptom::RestoreFails | Symptom::ModeRefused => logs(AgentName::KubeProxy),
            Symptom::KernelLacks
            | Symptom::ApiUnreachable
            | Symptom::PortTaken
            | Symptom::LockHeld => !self.evidence.logs.is_empty(),
        }
    }

    /// The last entry that matches.
    fn logs(&self, agent: AgentName, matches: &str) -> Place {
        let log = self.evidence.log(agent)?;
        let wanted = Regex::new(matches).ok()?;
        let found = log.entries.iter().rev().find(|it| wanted.is_match(it));
        Some(found.map(|entry| logged::shown(entry)))
    }

    fn has_rule(&self, matches: &str, which: Which) -> Place {
        let wanted = Regex::new(matches).ok()?;
        let lines = self.lines(which)?;
        if which != Which::Counted
            && let Some(chain) = lines.chains.iter().find(|chain| wanted.is_match(chain))
        {
            return Some(Some(chain.clone()));
        }
        // nft leaves comments out, and has other words for some matches: of a rule that is not found there nobody knows.
        let mut are_known = which == Which::Nft || self.printed().is_empty();
        for Line { text, packets } in &lines.rules {
            if !wanted.is_match(text) {
                continue;
            }
            match packets {
                _ if which != Which::Counted => return Some(Some(text.clone())),
                Some(0) => {}
                Some(packets) => return Some(Some(format!("{text}: {packets} packets"))),
                None => are_known = false,
            }
        }
        are_known.then_some(None)
    }

    /// None where no table was listed.
    fn lines(&self, which: Which) -> Option<&Lines> {
        let cell = match which {
            Which::Iptables | Which::Counted => &self.iptables,
            Which::Nft => &self.nft,
        };
        self.tables(which).next()?;
        Some(cell.get_or_init(|| Lines::of(self.tables(which))))
    }

    /// iptables' as it prints them itself, for nft has other words for their rules.
    fn tables(&self, which: Which) -> impl Iterator<Item = (&str, &Table)> {
        let dumps = &self.evidence.dumps;
        let is_nft = which == Which::Nft;
        let saved = dumps.saves().iter().flat_map(|save| &save.ruleset.tables);
        let printed = self.printed().iter().flat_map(|it| &it.ruleset.tables);
        let saved = saved.chain(printed);
        let saved = saved.map(|(name, table)| (name.as_str(), table));
        let native = dumps.nft_tables().iter();
        let native = native.map(|it| (it.name.as_str(), &it.table));
        saved
            .filter(move |_| !is_nft)
            .chain(native.filter(move |_| is_nft))
    }

    fn has_object(&self, part: &Map<String, Value>) -> Place {
        let kind = part.get("kind").and_then(Value::as_str);
        let mut of_kind = self
            .evidence
            .objects
            .of(kind.unwrap_or_default())
            .peekable();
        of_kind.peek()?;
        let found = of_kind.find(|object| has(object, part));
        Some(found.map(|object| {
            let about = |field: &str| about(object, field);
            [about("namespace"), about("name")]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("/")
        }))
    }

    fn has_felix_configuration(&self, part: &Map<String, Value>) -> Place {
        let spec = self.evidence.objects.felix_configuration()?;
        Some(has(spec, part).then(|| "default".to_owned()))
    }
}

impl Lines {
    fn of<'t>(tables: impl Iterator<Item = (&'t str, &'t Table)>) -> Self {
        let (mut chains, mut rules) = (Vec::new(), Vec::new());
        for (name, table) in tables {
            for (chain, it) in &table.chains {
                let place = format!("{name} {chain}");
                rules.extend(it.rules.iter().map(|rule| Line {
                    text: format!("{place} {}", rule.text),
                    packets: rule.counters.map(|it| it.packets),
                }));
                chains.push(place);
            }
        }
        Self { chains, rules }
    }
}

fn about(object: &Value, field: &str) -> Option<String> {
    object["metadata"][field].as_str().map(objects::shown)
}

/// Whether all of these are there, of mappings in it likewise, and of lists each of theirs in one of its own.
fn has(object: &Value, part: &Map<String, Value>) -> bool {
    let has_value = |own: &Value, wanted: &Value| match (own, wanted) {
        (_, Value::Null) => !own.is_null(),
        (_, Value::Object(wanted)) => has(own, wanted),
        (Value::Array(own), Value::Array(wanted)) => wanted.iter().all(|wanted| {
            own.iter().any(|own| match wanted {
                Value::Object(wanted) => has(own, wanted),
                _ => own == wanted,
            })
        }),
        _ => own == wanted,
    };
    part.iter()
        .all(|(key, wanted)| has_value(&object[key.as_str()], wanted))
}
