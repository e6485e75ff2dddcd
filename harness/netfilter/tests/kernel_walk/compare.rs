//! One world in the kernel and in the walk.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::IpAddr,
    ops::AddAssign,
    time::{Duration, Instant},
};

use chainbreak_netfilter::{
    Family, Rule, Table,
    conntrack::{Flow, flows},
    nft::NftTable,
    walk::{End, Packet, Path, Routing, State, Step, walk},
};

use crate::{
    front::{Backend, Front, Rules},
    packets::Ends,
    places::{Place, Places, run},
    talk::{follow, place_of},
    world::{Sent, World},
};

/// By table, chain and number, how many packets.
type Counts = BTreeMap<(String, String, usize), u64>;

/// How many packets were compared.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) packets: u64,
    /// Of these, how many arrived somewhere.
    pub(crate) arrived: u64,
    /// How many had another address or port afterwards.
    pub(crate) translated: u64,
    /// Of these, for how many the walk assumes something.
    pub(crate) open: u64,
}

impl AddAssign for Compared {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.arrived += other.arrived;
        self.translated += other.translated;
        self.open += other.open;
    }
}

/// What was seen of a packet.
#[derive(Debug, Default)]
struct Seen {
    arrived: Vec<(Place, Ends)>,
    counts: Counts,
}

/// What stands in the node's kernel.
#[derive(Debug)]
struct Look {
    rules: Rules,
    flows: Vec<Flow>,
}

impl Rules {
    /// The tables by the names that a walk has for them.
    fn tables(&self) -> BTreeMap<String, &Table> {
        match self {
            Self::Save(save) => save
                .tables
                .iter()
                .map(|(name, it)| (name.clone(), it))
                .collect(),
            Self::Nft(tables) => {
                let name = |it: &NftTable| format!("{} {}", it.family, it.name);
                tables.iter().map(|it| (name(it), &it.table)).collect()
            }
        }
    }
}

pub(crate) struct Kernel {
    places: Places,
    routing: [Routing; 2],
    front: Front,
    last: Look,
}

/// What `ip` says of a node's ways in one family.
fn routing(family: Family) -> Routing {
    let of = match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    };
    let ip = |what: &str| run(&format!("ip {of} {what}"), "");
    Routing::read(
        family,
        &ip("rule"),
        &ip("route show table all"),
        &ip("-o addr"),
    )
}

/// How long the kernel may take to let a packet arrive.
const PATIENCE: Duration = Duration::from_millis(500);

impl Kernel {
    /// Of a node that has these addresses, too.
    pub(crate) fn new(addresses: &[IpAddr]) -> Self {
        let places = Places::new(addresses);
        Self {
            places,
            routing: [routing(Family::V4), routing(Family::V6)],
            front: Front {
                family: Family::V4,
                backend: Backend::Legacy,
            },
            last: Look {
                rules: Rules::Nft(Vec::new()),
                flows: Vec::new(),
            },
        }
    }

    /// How many packets came out alike, and how many the walk leaves open; or the first one that did not.
    pub(crate) fn compare(&mut self, world: &World) -> Result<Compared, String> {
        self.set_up(world);
        let mut arrivals: Vec<Option<(Place, Ends)>> = Vec::new();
        let mut compared = Compared::default();
        for (number, sent) in world.packets.iter().enumerate() {
            let arrived = match follow(sent, &arrivals) {
                Some(packet) => self
                    .send(world, sent, &packet, &mut compared)
                    .map_err(|it| {
                        format!(
                            "packet {number}, {packet} by {:?} mark {:#x}: {it}",
                            packet.input, packet.mark
                        )
                    })?,
                None => None,
            };
            arrivals.push(arrived);
        }
        Ok(compared)
    }

    fn set_up(&mut self, world: &World) {
        if world.front != self.front {
            self.front.clear();
            self.front = world.front;
        }
        self.front.load(&world.rules);
        let [all, each] = world.rp_filter;
        for (name, value) in [("all", all), ("cali1", each), ("eth0", each)] {
            let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
            std::fs::write(path, value.to_string()).unwrap();
        }
        self.places.arrived();
        self.last = self.look();
    }

    /// Rules with counters, and connections.
    fn look(&self) -> Look {
        let (rules, flows_listed) = self.front.list();
        Look {
            rules,
            flows: flows(&flows_listed).collect(),
        }
    }

    /// What the walk is told of the node.
    fn state(&self, world: &World) -> State {
        let mut state = State::new(world.front.family);
        match &self.last.rules {
            Rules::Save(save) => state.add_save(save),
            Rules::Nft(tables) => state.add_nft(tables),
        }
        for flow in &self.last.flows {
            state.add_flow(flow.clone());
        }
        let [v4, v6] = &self.routing;
        let routing = match world.front.family {
            Family::V4 => v4,
            Family::V6 => v6,
        };
        state.set_routing(routing.clone());
        let [all, each] = world.rp_filter;
        state.set_sysctl("net.ipv4.conf.all.rp_filter", &all.to_string());
        for name in ["cali1", "eth0"] {
            state.set_sysctl(
                &format!("net.ipv4.conf.{name}.rp_filter"),
                &each.to_string(),
            );
        }
        state
    }

    fn send(
        &mut self,
        world: &World,
        sent: &Sent,
        packet: &Packet,
        compared: &mut Compared,
    ) -> Result<Option<(Place, Ends)>, String> {
        let walk = walk(&self.state(world), packet);
        compared.packets += 1;
        compared.open += u64::from(!walk.decided());
        let from = match sent.answers {
            Some(_) => place_of(packet),
            None => sent.from,
        };
        self.places.send(from, packet, sent.answers.is_some());
        let begun = Instant::now();
        let mut seen = Seen::default();
        loop {
            // What no rule counts has arrived by the time that the rules are listed.
            let now = self.look();
            seen.arrived.extend(self.places.arrived());
            seen.counts = counts(&now.rules, &self.last.rules);
            let alike = walk.paths.iter();
            let alike = alike.filter(|path| is_as(path, &seen, &now.rules));
            // Where a rule is come to twice, ways with different marks may count alike: the kernel took one of them.
            let kept = alike.map(|path| same_flow(path, &now.flows));
            if let Some(kept) = kept.reduce(Result::or) {
                kept?;
                self.last = now;
                compared.arrived += u64::from(!seen.arrived.is_empty());
                let is_other = seen.arrived.iter().any(|(_, ends)| !ends.is(packet));
                compared.translated += u64::from(is_other);
                return Ok(seen.arrived.first().copied());
            }
            if begun.elapsed() > PATIENCE {
                return Err(told(&walk.paths, &seen, &now.rules));
            }
        }
    }
}

/// Whether conntrack keeps what the walk says.
fn same_flow(path: &Path, listed: &[Flow]) -> Result<(), String> {
    let Some(expected) = &path.flow else {
        return Ok(());
    };
    let same =
        |flow: &&Flow| flow.original == expected.original && flow.protocol == expected.protocol;
    let Some(real) = listed.iter().find(same) else {
        return Ok(());
    };
    let mut reply = expected.reply;
    reply.dport = reply.dport.or(real.reply.dport);
    reply.echo = reply.echo.or(real.reply.echo);
    if real.reply == reply && real.mark == expected.mark {
        return Ok(());
    }
    Err(format!("the entry is {real}, expected {expected}"))
}

fn counts(now: &Rules, before: &Rules) -> Counts {
    let mut counts = Counts::new();
    let before = before.tables();
    for (table, content) in now.tables() {
        for (chain, rules) in &content.chains {
            let earlier = &before[&table].chains[chain].rules;
            for ((rule, earlier), number) in rules.rules.iter().zip(earlier).zip(1..) {
                let packets = |it: &Rule| it.counters.unwrap_or_default().packets;
                let grown = packets(rule) - packets(earlier);
                if grown > 0 {
                    counts.insert((table.clone(), chain.clone(), number), grown);
                }
            }
        }
    }
    counts
}

/// What a way says of counters. A rule of nft's that does several things is told several times, and need not have one.
fn expected(path: &Path, rules: &Rules) -> Counts {
    let tables = rules.tables();
    let counts_packets = |table: &str, chain: &str, number: usize| {
        let rule = tables[table].chains[chain].rules.get(number - 1);
        rule.is_some_and(|it| it.counters.is_some())
    };
    let mut counts = Counts::new();
    let mut last = None;
    for step in &path.steps {
        let Step::Rule { site, number, .. } = step else {
            last = None;
            continue;
        };
        let at = (site.table.clone(), site.chain.clone(), *number);
        if last.as_ref() != Some(&at) && counts_packets(&at.0, &at.1, at.2) {
            *counts.entry(at.clone()).or_default() += 1;
        }
        last = Some(at);
    }
    counts
}

fn is_as(path: &Path, seen: &Seen, rules: &Rules) -> bool {
    if expected(path, rules) != seen.counts {
        return false;
    }
    let place = match &path.end {
        End::Delivered => Some(Place::Node),
        End::Sent { interface, .. } => match interface.as_deref() {
            Some("cali1") => Some(Place::Client),
            _ => Some(Place::Server),
        },
        _ => None,
    };
    match (place, seen.arrived.as_slice()) {
        (None, []) => true,
        (Some(place), [(at, ends)]) => *at == place && ends.is(&path.packet),
        _ => false,
    }
}

fn told(paths: &[Path], seen: &Seen, rules: &Rules) -> String {
    let mut text = format!("seen {:?}\n  counted {:?}\n", seen.arrived, seen.counts);
    for path in paths {
        writeln!(
            text,
            "  or {:?} {} counting {:?}",
            path.end,
            path.packet,
            expected(path, rules)
        )
        .unwrap();
        for step in &path.steps {
            if !matches!(step, Step::Hook { .. }) {
                writeln!(text, "     {step:?}").unwrap();
            }
        }
    }
    text
}

/// The same difference with as few rules and packets as can be.
pub(crate) fn shrunk(kernel: &mut Kernel, world: &World) -> String {
    let mut small = world.clone();
    let mut difference = String::new();
    while let Some((_, rest)) = small.packets.split_last() {
        let mut fewer = small.clone();
        fewer.packets = rest.to_vec();
        match kernel.compare(&fewer) {
            Err(it) => (small, difference) = (fewer, it),
            Ok(_) => break,
        }
    }
    let mut lines: Vec<&str> = world.rules.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        // A table of nft's stays as it is: nft takes no line's absence lightly.
        let left = lines[at].starts_with("-A ").then(|| {
            let (before, after) = (&lines[..at], &lines[at + 1..]);
            [before, after].concat()
        });
        let fewer = left.as_ref().map(|lines| World {
            rules: lines.join("\n") + "\n",
            ..small.clone()
        });
        match fewer.map(|fewer| (kernel.compare(&fewer), fewer)) {
            Some((Err(it), fewer)) => {
                (small, difference) = (fewer, it);
                lines = left.unwrap();
            }
            _ => at += 1,
        }
    }
    format!(
        "{:?} rp_filter {:?}\n{}\n{difference}",
        small.front, small.rp_filter, small.rules
    )
}
