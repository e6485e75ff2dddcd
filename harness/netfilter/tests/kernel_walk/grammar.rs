//! Random rules and packets: what kube-proxy and Felix write, in any order and nesting.

use chainbreak_netfilter::{
    Family,
    walk::{Packet, Protocol},
};
use rand::{Rng, RngExt, seq::IndexedRandom};

use crate::{
    front::{Backend, Front, Line, TABLES, restore},
    places::Place,
    talk,
    world::{Sent, World},
};

/// What a user's chain may be called from: NAT of destinations and of sources are for different hooks.
const SIDES: [&str; 2] = ["PRE", "POST"];
const TRANSLATED: Backend = Backend::Tables(
    "raw mangle nat filter",
    "$program-restore-translate -f /dev/stdin",
);
const DESTINATIONS: [&str; 8] = [
    "10.1.2.2",
    "10.1.2.3",
    "10.96.0.1",
    "10.96.0.2",
    "10.1.2.1",
    "10.1.1.1",
    "10.1.1.2",
    "192.0.2.9",
];
const PORTS: [u16; 4] = [53, 80, 443, 30080];
const MARKS: [u32; 4] = [0x4000, 0x1_0000, 0x4_0000, 0x1];

pub(crate) fn world(random: &mut impl Rng) -> World {
    let mut rules: Vec<Line> = Vec::new();
    for (table, hooks) in TABLES {
        for hook in hooks {
            let side = usize::from(matches!(*hook, "POSTROUTING" | "INPUT"));
            for _ in 0..random.random_range(0..4) {
                rules.push((
                    table,
                    (*hook).to_owned(),
                    rule(random, table, hook, SIDES[side], 0),
                ));
            }
        }
        for (side, depth) in SIDES
            .iter()
            .flat_map(|side| (1..4).map(move |depth| (side, depth)))
        {
            let name = format!("{side}-{depth}");
            for _ in 0..random.random_range(0..4) {
                rules.push((table, name.clone(), rule(random, table, side, side, depth)));
            }
        }
    }
    let mut drops = Vec::new();
    if random.random_bool(0.1) {
        drops.push((
            "filter",
            *["INPUT", "FORWARD", "OUTPUT"].choose(random).unwrap(),
        ));
    }
    let backends = [Backend::Legacy, Backend::Nft, TRANSLATED];
    let names = |side| (1..4).map(move |depth| format!("{side}-{depth}"));
    let chains: Vec<String> = SIDES.into_iter().flat_map(names).collect();
    World {
        front: Front {
            family: Family::V4,
            backend: *backends.choose(random).unwrap(),
        },
        rules: restore(&rules, &chains, &drops),
        rp_filter: [random.random_range(0..3), random.random_range(0..3)],
        packets: talk::packets(random, 10, first),
    }
}

fn rule(random: &mut impl Rng, table: &str, hook: &str, side: &str, depth: usize) -> String {
    let mut text = String::new();
    let mut protocol = None;
    for _ in 0..random.random_range(0..3) {
        condition(random, &mut text, &mut protocol, table, hook);
    }
    // Rules that ask nothing leave nothing to those after them.
    if text.is_empty() && random.random_bool(0.7) {
        condition(random, &mut text, &mut protocol, table, hook);
    }
    let target = target(random, table, hook, side, depth, protocol);
    format!("{text}{target}")
}

const STATES: [&str; 7] = [
    "NEW",
    "RELATED,ESTABLISHED",
    "INVALID",
    "DNAT",
    "UNTRACKED",
    "SNAT,NEW",
    "RELATED,ESTABLISHED,DNAT",
];

fn with_ports(random: &mut impl Rng, not: &str, protocol: &mut Option<&'static str>) -> String {
    let name = *["tcp", "udp"].choose(random).unwrap();
    *protocol = Some(name);
    let port = PORTS.choose(random).unwrap();
    match random.random_range(0..4) {
        0 => format!("-p {name} "),
        1 => format!("-p {name} -m multiport --dports {port},1000:2000 "),
        _ => format!("-p {name} -m {name} {not}--dport {port} "),
    }
}

fn with_flags(random: &mut impl Rng, protocol: &mut Option<&'static str>) -> String {
    *protocol = Some("tcp");
    let flags = [
        "--tcp-flags FIN,SYN,RST,ACK SYN",
        "! --tcp-flags SYN,ACK SYN,ACK",
    ];
    format!("-p tcp -m tcp {} ", flags.choose(random).unwrap())
}

fn condition(
    random: &mut impl Rng,
    text: &mut String,
    protocol: &mut Option<&'static str>,
    table: &str,
    hook: &str,
) {
    let not = if random.random_bool(0.2) { "! " } else { "" };
    let has = |text: &str, option: &str| text.contains(option);
    let mark = MARKS.choose(random).unwrap();
    let net = |random: &mut dyn FnMut() -> usize| {
        let address = DESTINATIONS[random() % DESTINATIONS.len()];
        let length = [8, 16, 24, 32, 32, 32][random() % 6];
        format!("{address}/{length}")
    };
    let mut draw = || random.random_range(0..1000_usize);
    let net = net(&mut draw);
    let early = table == "raw";
    let words = match random.random_range(0..16) {
        0 | 1 if !has(text, "-d ") => format!("{not}-d {net} "),
        2 if !has(text, "-s ") => format!("{not}-s {net} "),
        3 | 4 if protocol.is_none() => with_ports(random, not, protocol),
        5 => format!("-m mark {not}--mark {mark:#x}/{mark:#x} "),
        6 => format!("-m connmark {not}--mark {mark:#x}/{mark:#x} "),
        7 if !early && !has(text, "--ctstate") => {
            let states = STATES.choose(random).unwrap();
            format!("-m conntrack {not}--ctstate {states} ")
        }
        8 if !has(text, "--dst-type") => format!("-m addrtype {not}--dst-type LOCAL "),
        9 if !has(text, "--src-type") => format!("-m addrtype {not}--src-type LOCAL "),
        10 if random.random_bool(0.5) => {
            let share = ["0.50000000000", "0.33333333349", "0.25000000000"]
                .choose(random)
                .unwrap();
            format!("-m statistic --mode random --probability {share} ")
        }
        11 if matches!(hook, "PREROUTING" | "INPUT" | "FORWARD") && !has(text, "-i ") => {
            let name = ["cali+", "eth0", "lo", "cali1"].choose(random).unwrap();
            format!("{not}-i {name} ")
        }
        12 if matches!(hook, "POSTROUTING" | "OUTPUT" | "FORWARD") && !has(text, "-o ") => {
            let name = ["cali+", "eth0", "lo"].choose(random).unwrap();
            format!("{not}-o {name} ")
        }
        13 if hook == "PREROUTING" && matches!(table, "raw" | "mangle") => {
            let options = ["", "--validmark ", "--loose "].choose(random).unwrap();
            format!("-m rpfilter {options}--invert ")
        }
        14 if protocol.is_none() => with_flags(random, protocol),
        15 if !early => {
            let original = DESTINATIONS.choose(random).unwrap();
            format!("-m conntrack {not}--ctorigdst {original} ")
        }
        _ => String::new(),
    };
    text.push_str(&words);
}

fn target(
    random: &mut impl Rng,
    table: &str,
    hook: &str,
    side: &str,
    depth: usize,
    protocol: Option<&str>,
) -> String {
    let mark = MARKS.choose(random).unwrap();
    let at = random.random_range(0..12);
    if at < 4 && depth < 3 {
        let go = if random.random_bool(0.25) { "-g" } else { "-j" };
        return format!("{go} {side}-{}", random.random_range(depth + 1..4));
    }
    match (table, at) {
        (_, 4) => "-j RETURN".to_owned(),
        (_, 5) => "-j ACCEPT".to_owned(),
        (_, 7) => format!("-j MARK --set-xmark {mark:#x}/{mark:#x}"),
        (_, 8) => format!(
            "-j MARK --set-xmark {}/{mark:#x}",
            ["0x0", "0x1"].choose(random).unwrap()
        ),
        ("raw", 9) => ["-j NOTRACK", "-j CT --notrack"]
            .choose(random)
            .unwrap()
            .to_string(),
        ("mangle", 9) => [
            "-j CONNMARK --save-mark",
            "-j CONNMARK --restore-mark",
            "-j CONNMARK --set-xmark 0x4000/0x4000",
        ]
        .choose(random)
        .unwrap()
        .to_string(),
        ("nat", 9..) if side == "PRE" => {
            let to = ["10.1.2.2", "10.1.2.3", "10.1.1.2", "10.1.2.1"]
                .choose(random)
                .unwrap();
            match (protocol, random.random_range(0..5)) {
                (Some(_), 0) => "-j REDIRECT --to-ports 8080".to_owned(),
                (Some(_), 1..) => format!("-j DNAT --to-destination {to}:8080"),
                _ => format!("-j DNAT --to-destination {to}"),
            }
        }
        ("nat", 9..) if hook == "POSTROUTING" => ["-j MASQUERADE", "-j MASQUERADE --random-fully"]
            .choose(random)
            .unwrap()
            .to_string(),
        ("nat", 9..) => "-j SNAT --to-source 203.0.113.77".to_owned(),
        ("filter", 9) => match protocol {
            Some("tcp") => "-j REJECT --reject-with tcp-reset".to_owned(),
            _ => "-j REJECT --reject-with icmp-port-unreachable".to_owned(),
        },
        ("filter" | "raw" | "mangle", 10) => "-j DROP".to_owned(),
        _ => String::new(),
    }
}

fn first(random: &mut impl Rng, sport: u16) -> Sent {
    let from = *[
        Place::Client,
        Place::Client,
        Place::Client,
        Place::Server,
        Place::Node,
    ]
    .choose(random)
    .unwrap();
    let src = match from {
        Place::Client => *[
            "10.1.1.2",
            "10.1.1.2",
            "10.1.1.2",
            "198.51.100.9",
            "198.51.100.7",
        ]
        .choose(random)
        .unwrap(),
        Place::Server => *["10.1.2.2", "10.1.2.2", "192.0.2.5"]
            .choose(random)
            .unwrap(),
        Place::Node => *["10.1.2.1", "10.1.1.1"].choose(random).unwrap(),
    };
    let outside = |to: &&&str| !from.is_own(to.parse().unwrap());
    let reachable: Vec<&&str> = DESTINATIONS.iter().filter(outside).collect();
    let to = reachable.choose(random).unwrap();
    let protocol = *[Protocol::TCP, Protocol::TCP, Protocol::UDP, Protocol::ICMP]
        .choose(random)
        .unwrap();
    let ports = protocol.has_ports();
    let port = *PORTS.choose(random).unwrap();
    let end = |address: &str, port: u16| format!("{address}:{port}").parse().unwrap();
    // Of echoes every other one has an identifier that others have.
    let id = if sport.is_multiple_of(2) { 7 } else { sport };
    let (sport, dport) = if ports { (sport, port) } else { (id, 0) };
    let packet = Packet::new(protocol, end(src, sport), end(to, dport));
    talk::sent(random, from, packet)
}
