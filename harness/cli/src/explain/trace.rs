//! A real packet beside the walk: a request is made in a kept world, and the kernel says which rules it met there, by their counters and,
//! where rules of nft have none, by nft's trace.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::AsRawFd,
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use chainbreak_netfilter::{
    Site,
    dumps::Dumps,
    walk::{Packet, Protocol, Seen, Walk},
};
use chainbreak_probe::wire::{self, Connections, Errand, Order, Outcome, Report, Sample};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::{Value, json};

use super::{asked::address, world::World};
use crate::{args::Explain, cases::invalid};

/// For how long an answer is waited for.
const PATIENCE_US: u64 = 1_000_000;
/// Within what nft is to say what it heard: it takes milliseconds.
const WITHIN: Duration = Duration::from_secs(10);
/// A table of ours that says of which packets nft is to tell.
const TABLE: &str = "inet chainbreak-trace";
/// Where nobody listens: what is sent there last is what nft tells last.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);
/// Said once nft listens and the table is there.
const LISTENS: &str = "listens";
/// Listens until its input ends, and takes the table away again: also when this program is killed, or the terminal interrupts all.
const SCRIPT: &str = "trap '' INT HUP QUIT
nft monitor trace & nft=$!
looks=0
until grep -q ' 12 .* 00000100 ' /proc/net/netlink; do
    looks=$((looks + 1))
    if [ $looks -gt 500 ] || ! kill -0 $nft; then kill $nft; exit 1; fi
    sleep 0.01
done
nft \"$1\" && echo listens && read -r _
kill $nft
nft delete table inet chainbreak-trace";
/// So many rules that are not of the way are told.
const BESIDE: usize = 20;

/// What became of a real request, and which rules were seen to match meanwhile.
pub(super) struct Traced {
    from: String,
    node: String,
    sample: Sample,
    seen: Seen,
}

/// Makes the request that the packet would begin, and looks.
pub(super) fn trace(
    args: &Explain,
    world: &World,
    (packet, before): (&Packet, &Dumps),
) -> Result<Traced> {
    if address(&args.from).is_some() {
        let words = "--trace sends from a place of the world: FROM by its name, as pod/client";
        return Err(invalid(words));
    }
    let protocol = match packet.protocol {
        Protocol::TCP => wire::Protocol::Tcp,
        Protocol::UDP => wire::Protocol::Udp,
        other => {
            let words = format!("--trace makes requests over tcp and udp, not over {other}");
            return Err(invalid(words));
        }
    };
    let target = SocketAddr::new(packet.dst, packet.dport);
    let family = packet.family();
    let monitor = Seen::needs_trace(before, family).then(|| Monitor::start(world, packet));
    let monitor = monitor.transpose()?;
    let sample = world.request(&args.from, target, protocol)?;
    let printed = monitor.map(Monitor::end).transpose()?;
    let mut seen = Seen::between(before, &world.listed()?.dumps, family);
    if let Some(printed) = printed {
        seen.add_trace(&printed, before, family);
    }
    Ok(Traced {
        from: args.from.clone(),
        node: world.node.clone(),
        sample,
        seen,
    })
}

impl World {
    /// Makes one request in a place. The probe is this program, which is no file of the world: it goes along open.
    fn request(&self, place: &str, target: SocketAddr, protocol: wire::Protocol) -> Result<Sample> {
        let program = File::open("/proc/self/exe").context("could not open this program")?;
        fcntl(&program, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let program = format!("/proc/self/fd/{}", program.as_raw_fd());
        let order = Errand::Requests(Order {
            target,
            protocol,
            every_us: PATIENCE_US,
            timeout_us: PATIENCE_US,
            connections: Connections::New,
            count: Some(1),
            source: None,
            number: 0,
        });
        let mut child = self.start(place, &[&program, "probe"], Stdio::piped())?;
        let mut stdin = child.stdin.take().context("its input is piped")?;
        let stdout = child.stdout.take().context("its output is piped")?;
        // What ends before it has read it says why itself.
        drop(writeln!(stdin, "{}", serde_json::to_string(&order)?));
        let mut sample = None;
        for line in BufReader::new(stdout).lines() {
            if let Ok(Report::Sample(it)) = serde_json::from_str(&line?) {
                sample = Some(it);
                break;
            }
        }
        drop(stdin);
        let mut why = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut why)?;
        }
        child.wait()?;
        sample.ok_or_else(|| anyhow!("no request could be made in {place}: {}", why.trim()))
    }
}

/// nft, listening on the node.
struct Monitor<'a> {
    world: &'a World,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl<'a> Monitor<'a> {
    /// Over once it listens for packets like that one.
    fn start(world: &'a World, packet: &Packet) -> Result<Self> {
        let script = ["sh", "-c", SCRIPT, "sh", &rules(packet)];
        let mut child = world.start(&world.node, &script, Stdio::null())?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("its output is piped")?;
        let (say, lines) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.map(|line| say.send(line)).find(Result::is_err)
        });
        let monitor = Self {
            world,
            child,
            stdin,
            lines,
        };
        monitor.until(|line| line == LISTENS)?;
        Ok(monitor)
    }

    /// What it printed.
    fn end(self) -> Result<String> {
        let node = &self.world.node;
        self.world.request(node, NOWHERE, wire::Protocol::Udp)?;
        let last = format!("udp dport {} ", NOWHERE.port());
        self.until(|line| line.contains(&last))
    }

    /// All lines up to such a one.
    fn until(&self, is_last: impl Fn(&str) -> bool) -> Result<String> {
        let mut all = String::new();
        loop {
            let line = self.lines.recv_timeout(WITHIN).map_err(|_over| {
                let node = &self.world.node;
                anyhow!(
                    "nft does not tell on {node} of the packets that it sees (nft monitor trace)"
                )
            })?;
            if is_last(&line) {
                return Ok(all);
            }
            all.extend([line.as_str(), "\n"]);
        }
    }
}

impl Drop for Monitor<'_> {
    fn drop(&mut self) {
        drop(self.stdin.take());
        drop(self.child.wait());
    }
}

/// What says of which packets nft is to tell, before any other table sees them.
fn rules(packet: &Packet) -> String {
    let family = packet.family().of_nft();
    let (protocol, dst, dport) = (packet.protocol, packet.dst, packet.dport);
    let asked = format!("{family} daddr {dst} {protocol} dport {dport} meta nftrace set 1");
    let last = format!(
        "ip daddr {} udp dport {} meta nftrace set 1",
        NOWHERE.ip(),
        NOWHERE.port()
    );
    let chain = |hook: &str| {
        format!(
            "add chain {TABLE} {hook} {{ type filter hook {hook} priority -1000; }}; add rule {TABLE} {hook} {asked}; "
        )
    };
    format!(
        "add table {TABLE}; delete table {TABLE}; add table {TABLE}; {}{}add rule {TABLE} output {last}",
        chain("prerouting"),
        chain("output")
    )
}

impl Traced {
    pub(super) fn human(&self, walk: &Walk) -> String {
        let node = &self.node;
        let way = self.seen.way(walk);
        let told = way.or_else(|| {
            let ways = walk.paths.iter().rev();
            ways.max_by_key(|path| self.seen.seen_of(path).len())
        });
        let Some(told) = told else {
            return String::new();
        };
        let ended = ended(&self.sample);
        let mut out = format!("\nA request was made from {}: {ended}.\n", self.from);
        let of_way = self.seen.seen_of(told);
        let lacks = self.seen.lacks(told);
        out.extend([match (way, of_way.as_slice()) {
            (Some(_), []) => format!("No rule of its way is told of by {node}'s kernel.\n"),
            (Some(_), _) => format!("{node}'s kernel tells of its way what the walk says:\n"),
            (None, _) => format!("{node}'s kernel tells of ANOTHER WAY than the walk's: of each a rule did not match.\n"),
        }]);
        let line = |mark: &str, site: &Site| {
            let packets = self.seen.matched().get(site).copied().unwrap_or_default();
            let Site { table, chain, rule } = site;
            format!("  {mark} {table} {chain}, {}: {rule}\n", counted(packets))
        };
        out.extend(of_way.iter().map(|site| line("✓", site)));
        out.extend(lacks.iter().map(|site| line("✗", site)));
        let beside = self.seen.matched().keys();
        let beside: Vec<&Site> = beside.filter(|site| !of_way.contains(site)).collect();
        if !beside.is_empty() {
            out.push_str("Beside it, by its answers, what it sent later, and others:\n");
            out.extend(beside.iter().take(BESIDE).map(|site| line("·", site)));
            if let Some(more) = beside.len().checked_sub(BESIDE).filter(|it| *it > 0) {
                out.extend([format!("  and {more} more rules\n")]);
            }
        }
        out
    }

    pub(super) fn document(&self, walk: &Walk) -> Value {
        let way = self.seen.way(walk);
        let rule = |site: &Site, packets: u64| json!({ "table": site.table, "chain": site.chain, "rule": site.rule, "packets": packets });
        let matched = self.seen.matched().iter();
        let matched: Vec<Value> = matched
            .map(|(site, packets)| rule(site, *packets))
            .collect();
        json!({
            "from": self.from,
            "outcome": self.sample.outcome,
            "took-us": self.sample.took_us,
            "as-walked": way.is_some(),
            "way": way.and_then(|way| walk.paths.iter().position(|path| path == way)),
            "matched": matched,
        })
    }
}

fn ended(sample: &Sample) -> String {
    let word = sample.outcome.word();
    let after = Duration::from_micros(sample.took_us);
    match &sample.outcome {
        Outcome::Answered { backend, .. } if !backend.is_empty() => {
            format!("{word} by {backend} after {after:.1?}")
        }
        Outcome::Unreachable { error } => format!("{word} after {after:.1?}: {error}"),
        _ => format!("{word} after {after:.1?}"),
    }
}

fn counted(packets: u64) -> String {
    match packets {
        0 => "no packet".to_owned(),
        1 => "1 packet".to_owned(),
        more => format!("{more} packets"),
    }
}
