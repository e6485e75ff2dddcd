//! A recorded world, played again by the model.
//!
//! What chance decided when it was recorded is left as open as the real one leaves it: when within a
//! round a change is seen does not count, what stands in the kernel at the round's end does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use chainbreak_agents::{
    driver::selectors,
    kube_proxy::{Event, Version, VersionError},
};
use serde_json::Value;

use crate::{
    compare::{BY_CIDRS, Spelling, differences},
    file::Header,
    logs::{self, Sites},
    shape,
    stage::Stage,
    standing::Standing,
    world::{Operation, World},
};

/// How long a round may take, in the model's time.
const MOST: Duration = Duration::from_secs(12);
/// So many orders show each of two or three elements as either service would have it, and that in one round after the other.
const ORDERS: u64 = 128;
/// What the health servers say is the driver's to say, and nobody drives here.
const HEALTH: &str = " service_health.go] ";
/// The distance of two looks at what stands there, and of two changes.
const LOOK: Duration = Duration::from_millis(10);

/// What became of a replay.
#[derive(Debug)]
pub struct Outcome {
    /// Where the model parted from what was recorded, if it did.
    pub difference: Option<Difference>,
    /// What the model showed of itself: kinds of rule, of chain, and of line.
    pub shown: BTreeSet<String>,
}

/// Where the model parts from the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Other rules stand there after that round.
    Rules {
        /// Which round, from 0.
        round: usize,
        /// Line by line: `<` is the real one's, `>` the model's.
        what: Vec<String>,
    },
    /// Only kinds of lines differ, over the whole life.
    Logs {
        /// Line by line: `<` is the real one's, `>` the model's.
        what: Vec<String>,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Rules { round, what } => {
                writeln!(f, "after round {round} other rules stand there:")?;
                what
            }
            Self::Logs { what } => {
                writeln!(f, "other kinds of lines were said:")?;
                what
            }
        };
        what.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Difference {
    /// How many lines it takes to show it.
    pub fn size(&self) -> usize {
        match self {
            Self::Rules { what, .. } | Self::Logs { what } => what.len(),
        }
    }
}

/// Lets the model live through the world.
///
/// Chance decided whether a sync was under way while changes came, which the next one then took over all at once. And
/// where two services claim one address and port, nftables mode has an element for one of them, by the order of a
/// Go map. There, too, nobody waits for the networks of cluster IPs before the first sync. So the model may take it either way, and one has
/// to lead to what was recorded.
pub fn replay(
    header: &Header,
    world: &World,
    spelling: &mut Spelling,
) -> Result<Outcome, VersionError> {
    let mut open = Open {
        orders: 1,
        lates: 1,
    };
    let (mut tried, mut first) = (BTreeSet::new(), None);
    loop {
        let chances = open.chances();
        let Some(chance) = chances.into_iter().find(|it| !tried.contains(it)) else {
            return Ok(first.expect("there is one chance at least"));
        };
        let outcome = by(chance, header, world, spelling)?;
        let Some(difference) = &outcome.difference else {
            return Ok(outcome);
        };
        open.widen(difference, world);
        tried.insert(chance);
        first.get_or_insert(outcome);
    }
}

/// What chance may have decided otherwise, judged by the differences that were seen.
struct Open {
    orders: u64,
    lates: u8,
}

impl Open {
    fn chances(&self) -> Vec<Chance> {
        let (orders, lates) = (0..self.orders, 0..self.lates);
        let all = lates.flat_map(|late| orders.clone().map(move |order| (late, order)));
        let chances = all.flat_map(|(late, order)| {
            [false, true].map(|at_once| Chance {
                order,
                at_once,
                late,
            })
        });
        chances.collect()
    }

    fn widen(&mut self, difference: &Difference, world: &World) {
        let Difference::Rules { what, .. } = difference else {
            return;
        };
        let mut lines = what.iter().map(|it| it.trim_start());
        if lines.clone().any(|it| it.contains(BY_CIDRS)) {
            self.lates = 1 << world.setup.cluster_cidrs.len();
        }
        let is_element = |it: &str| it.starts_with("< element") || it.starts_with("> element");
        if lines.any(is_element) {
            self.orders = ORDERS;
        }
    }
}

/// What chance decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Chance {
    /// The number of the maps' order.
    order: u64,
    /// Whether the changes between two harms come while the first one's sync is under way.
    at_once: bool,
    /// Which proxiers hear of the networks of cluster IPs after the first round only, by the bits of their numbers.
    late: u8,
}

impl Chance {
    fn is_late(self, proxier: usize) -> bool {
        self.late & (1 << proxier) != 0
    }
}

fn by(
    chance: Chance,
    header: &Header,
    world: &World,
    spelling: &mut Spelling,
) -> Result<Outcome, VersionError> {
    let version: Version = header.version.parse()?;
    let mut play = Play {
        selectors: selectors(&version),
        stage: Stage::new(&version, header.mode, &world.setup, chance.order),
        recorded: Standing::default(),
        notices: BTreeMap::new(),
        told: BTreeSet::new(),
    };
    let mut difference = None;
    for (number, round) in world.rounds.iter().enumerate() {
        if number == 0 {
            play.start(world, chance);
        }
        for operation in &round.operations {
            play.perform(operation, number == 0, chance);
        }
        play.stage.release();
        if number == 0 {
            play.stage.tell(&Event::ServicesSynced);
            play.stage.tell(&Event::SlicesSynced);
        }
        play.recorded.change(&round.after);
        let what = play.settle(header, spelling, round.stuck);
        if !what.is_empty() {
            difference = Some(Difference::Rules {
                round: number,
                what,
            });
            break;
        }
        if number == 0 {
            let cidrs = &world.setup.service_cidrs;
            play.stage
                .tell_service_cidrs(cidrs, |it| chance.is_late(it));
        }
    }
    let sites = Sites::Files;
    let said = logs::kinds(&play.stage.log, sites);
    let mut shown = shape::of_stage(&play.stage, header.mode);
    shown.extend(said.iter().cloned());
    if difference.is_none() {
        // What is not compared today may have been so when it was recorded.
        let recorded: Vec<String> = world.said.iter().cloned().collect();
        let lives = [logs::kinds(&recorded, sites), said];
        let mut what = logs::differences(&lives);
        what.retain(|line| !logs::is_by_chance(line, &lives) && !line.contains(HEALTH));
        difference = (!what.is_empty()).then_some(Difference::Logs { what });
    }
    Ok(Outcome { difference, shown })
}

struct Play {
    stage: Stage,
    /// What services and what slices kube-proxy watches.
    selectors: [&'static str; 2],
    /// What stood in the recorded kernel last.
    recorded: Standing,
    /// How often each text that announces that a harm was noticed has to be said.
    notices: BTreeMap<String, usize>,
    /// What kube-proxy was told of and not told to be gone: kind, namespace and name.
    told: BTreeSet<(String, String, String)>,
}

impl Play {
    fn start(&mut self, world: &World, chance: Chance) {
        let setup = &world.setup;
        let cidrs = &setup.service_cidrs;
        self.stage
            .tell_service_cidrs(cidrs, |it| !chance.is_late(it));
        if let Ok(node) = serde_json::from_value(setup.node.clone()) {
            self.stage.tell(&Event::Node(Box::new(node)));
        }
    }

    fn perform(&mut self, operation: &Operation, before_start: bool, chance: Chance) {
        if chance.at_once && !before_start && !matches!(operation, Operation::Harm { .. }) {
            self.stage.hold();
        }
        match operation {
            Operation::Put(object) => self.put(object),
            Operation::Delete {
                kind,
                namespace,
                name,
            } => self.delete(kind, namespace, name),
            Operation::Harm {
                after, noticed_by, ..
            } => {
                self.stage.release();
                self.recorded.change(after);
                self.stage.kernel.set(&self.recorded);
                if let Some(text) = noticed_by {
                    self.notice(text);
                }
            }
        }
        if !before_start && !chance.at_once {
            self.stage.pass(LOOK);
        }
    }

    fn notice(&mut self, text: &str) {
        let times = self.notices.entry(text.to_owned()).or_default();
        // Each family has a monitor of its own.
        *times += self.stage.proxiers();
        let times = *times;
        let mut waited = Duration::ZERO;
        while self.stage.said(text) < times && waited < MOST {
            self.stage.pass(LOOK);
            waited += LOOK;
        }
        self.stage.pass(LOOK);
    }

    fn put(&mut self, object: &Value) {
        let kind = object["kind"].as_str().unwrap_or_default();
        let (namespace, name) = named(object);
        if !self.watches(kind, object) {
            // To a watch, a selector that no longer holds is an end.
            return self.delete(kind, &namespace, &name);
        }
        let Some(event) = event(kind, object) else {
            return;
        };
        self.told.insert((kind.to_owned(), namespace, name));
        self.stage.tell(&event);
    }

    /// A selector only names labels that must not be there.
    fn watches(&self, kind: &str, object: &Value) -> bool {
        let selector = self.selectors[usize::from(kind == "EndpointSlice")];
        let labels = &object["metadata"]["labels"];
        let mut unwanted = selector.split(',').map(|it| it.trim_start_matches('!'));
        unwanted.all(|label| labels.get(label).is_none())
    }

    fn delete(&mut self, kind: &str, namespace: &str, name: &str) {
        let [kind, namespace, name] = [kind, namespace, name].map(str::to_owned);
        let known = (kind.clone(), namespace.clone(), name.clone());
        if !self.told.remove(&known) {
            return;
        }
        self.stage.tell(&match kind.as_str() {
            "Service" => Event::ServiceGone { namespace, name },
            _ => Event::SliceGone { namespace, name },
        });
    }

    /// Waits until the same stands in both kernels; what differs when it never does.
    fn settle(&mut self, header: &Header, spelling: &mut Spelling, stuck: bool) -> Vec<String> {
        let names = ["real", "model"];
        // One that is stuck has to be so to the end.
        if stuck {
            self.stage.pass(MOST);
        }
        let mut waited = Duration::ZERO;
        let mut pause = LOOK;
        loop {
            self.stage.pass(pause);
            let model = self.stage.kernel.standing();
            let sides = [&self.recorded, &model];
            let found = differences(header.mode, spelling, names, sides);
            waited += pause;
            if found.is_empty() || waited >= MOST {
                return found;
            }
            // The later, the longer: what takes a second is a retry.
            pause *= 4;
        }
    }
}

fn named(object: &Value) -> (String, String) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    (text("namespace").to_owned(), text("name").to_owned())
}

fn event(kind: &str, object: &Value) -> Option<Event> {
    let object = object.clone();
    match kind {
        "Service" => serde_json::from_value(object).ok().map(Event::Service),
        "EndpointSlice" => serde_json::from_value(object).ok().map(Event::Slice),
        _ => None,
    }
}
