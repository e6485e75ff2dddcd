//! What stands in for Felix's eBPF programs where they are to work: a table of nftables. Like the programs it lies on the way of packets
//! before kube-proxy's rules, knows services only by what Felix's own proxy was told ([`NatMap`]), and stays when Felix ends.
//!
//! | program | here |
//! |---|---|
//! | tc, at pods' interfaces and the node's | chain `interfaces`, before kube-proxy's PREROUTING; chain `marks` sets "Seen" |
//! | connect-time load balancing | chain `connect`, before kube-proxy's OUTPUT. Where its links are not pinned (until v3.28.4) they go with the process |
//! | tc behind `bpfin.cali`, for the node's own packets without connect-time load balancing | chain `host`, behind kube-proxy's OUTPUT |
//! | none at the node's interface (v3.32) | it is in none of the two first chains; replies that come in by it to connections of `host` are dropped in chain `strangers` |
//!
//! Not like the programs: connections are the kernel's conntrack's, and so what is marked here is always tracked; a service without
//! backends swallows packets, which the programs refuse by ICMP; a node port with the cluster policy hides the client's address,
//! which the programs keep; IPv6 is neither translated nor dropped; policies are not applied.

use std::{fmt::Write, time::Duration};

use chainbreak_netfilter::felix_programs::TABLE;

use super::{
    Config, Event,
    apply::Panicked,
    nat_map::{Address, Frontend, NatMap},
    params::Params,
};
use crate::step::{Command, Io, Output};

/// "Seen", and that raw rules leave the packet to conntrack (`MarkSeenSkipFIB`, felix/bpf/tc/defs/defs.go).
const SEEN: &str = "0x01100000";
/// What Felix's own nat rule masquerades (`MarkSeenMASQ`), and the bits that are cleared for it.
const MASQUERADE: [&str; 2] = ["0xfc0fffff", "0x03600000"];
/// Reads changes of tables.
const NFT: [&str; 3] = ["nft", "-f", "-"];
/// Where connect-time load balancing is: before kube-proxy.
const CONNECT: &str = "{ type nat hook output priority -105; }";
/// A node's interface in the lab, which has programs where `bpfDataIfacePattern` matches it.
const DATA_INTERFACE: &str = "eth0";
/// The bit of a connection's mark by which `strangers` knows those of `host`: none that Felix, kube-proxy or AWS VPC CNI sets unless told to.
const OF_HOST: &str = "0x40000000";

/// The programs of one life of Felix.
#[derive(Debug)]
pub(super) struct Programs {
    min_sync_period: Duration,
    not_before: Duration,
}

impl Programs {
    /// Attaches them. What an earlier life wrote into the map stays until the API was listed.
    pub(super) async fn attach(
        io: &Io<Event>,
        config: &Config,
        params: &Params,
    ) -> Result<Self, Panicked> {
        nft(io, hooks(config, params)).await?;
        Ok(Self {
            min_sync_period: params.time("BPFKubeProxyMinSyncPeriod"),
            not_before: io.now(),
        })
    }

    /// When the map is to be written next.
    pub(super) fn due(&self, map: &NatMap) -> Option<Duration> {
        map.is_due().then_some(self.not_before)
    }

    /// Writes the map.
    pub(super) async fn sync(&mut self, io: &Io<Event>, map: &mut NatMap) -> Result<(), Panicked> {
        self.not_before = io.now() + self.min_sync_period;
        nft(io, frontends(&map.frontends())).await
    }
}

/// Removes them, as a Felix does that begins without eBPF.
pub(super) async fn remove(io: &Io<Event>) -> Result<(), Panicked> {
    // Also where there are none.
    nft(io, format!("table ip {TABLE}\ndelete table ip {TABLE}\n")).await
}

/// What the end of the process before took along, as a command to be run before this one asks anybody anything: the links of
/// connect-time load balancing, unless they are pinned.
pub fn lost_with_the_process(config: &Config) -> Option<Command> {
    if !config.programs || config.version.pins_connect_time_links() {
        return None;
    }
    let connect = format!("add chain ip {TABLE} connect {CONNECT}");
    let input = format!("add table ip {TABLE}\n{connect}\nflush chain ip {TABLE} connect\n");
    Some(command(input))
}

/// What the end of the pod takes along where the pins were in a file system of its own. Pinned links detach their programs; where interfaces
/// have none, programs stay attached, and the arrays through which they call each other are emptied: each packet is dropped (seen with v3.28.1 and
/// v3.32.1). It fails where no programs were attached ([`NOTHING_ATTACHED`]).
pub fn lost_with_the_pod(config: &Config) -> Option<Command> {
    config.programs.then(|| {
        command(if config.version.pins_links_of_interfaces() {
            format!("delete table ip {TABLE}\n")
        } else {
            format!(
                "flush chain ip {TABLE} connect\nflush chain ip {TABLE} marks\n\
                 add rule ip {TABLE} marks iifname != \"lo\" counter drop\n"
            )
        })
    })
}

/// A command that reads changes of tables.
fn command(input: String) -> Command {
    Command {
        argv: NFT.map(str::to_owned).to_vec(),
        input,
    }
}

async fn nft(io: &Io<Event>, input: String) -> Result<(), Panicked> {
    written(&io.run(&NFT, input).await).map_err(Panicked)
}

/// What [`lost_with_the_pod`] says on a node where no programs are attached.
pub const NOTHING_ATTACHED: &str = "No such file or directory";

/// Whether a command of the table did its work; if not, the words with which Felix panics.
pub fn written(output: &Output) -> Result<(), String> {
    if output.exit == 0 {
        return Ok(());
    }
    let why = output.stderr.trim_end();
    Err(format!(
        "the table in place of eBPF programs cannot be written: {why}"
    ))
}

/// All but the map's entries.
fn hooks(config: &Config, params: &Params) -> String {
    let mut text = format!(
        "table ip {TABLE} {{\n\
         \tset hairpin {{ type ipv4_addr . ipv4_addr; }}\n\
         \tchain frontends {{ }}\n\
         \tchain marks {{ type filter hook prerouting priority -350; }}\n\
         \tchain interfaces {{ type nat hook prerouting priority -105; }}\n\
         \tchain connect {CONNECT}\n\
         \tchain host {{ type nat hook output priority -95; }}\n\
         \tchain strangers {{ type filter hook prerouting priority -150; }}\n\
         \tchain loopback {{ type nat hook postrouting priority 95; }}\n\
         }}\n"
    );
    for chain in [
        "marks",
        "interfaces",
        "connect",
        "host",
        "strangers",
        "loopback",
    ] {
        add(&mut text, format_args!("flush chain ip {TABLE} {chain}"));
    }
    let pods = params.list("InterfacePrefix").iter();
    let pods = pods.map(|prefix| format!("\"{prefix}*\""));
    let is_matched = params.matches("BPFDataIfacePattern", DATA_INTERFACE);
    let node = is_matched.then(|| format!("\"{DATA_INTERFACE}\""));
    for interface in pods.chain(node) {
        rule(
            &mut text,
            "marks",
            format_args!("iifname {interface} meta mark set meta mark | {SEEN}"),
        );
        rule(
            &mut text,
            "interfaces",
            format_args!("iifname {interface} jump frontends"),
        );
    }
    let host = Host::of(config, params);
    if let Some(which) = host.connect {
        rule(&mut text, "connect", format_args!("{which}jump frontends"));
    }
    if let Some(which) = host.behind {
        behind(&mut text, which, is_matched);
    }
    rule(
        &mut text,
        "loopback",
        format_args!("ip saddr . ip daddr @hairpin ct status dnat masquerade"),
    );
    text
}

/// The node's own packets that are translated behind kube-proxy's rules. Where its interface has no programs, nobody translates back what
/// returns by it; kube-proxy's connections are the kernel's, and are.
fn behind(text: &mut String, which: &str, is_matched: bool) {
    if !is_matched {
        rule(
            text,
            "host",
            format_args!("{which}ct mark set ct mark | {OF_HOST}"),
        );
        let back = format!("iifname \"{DATA_INTERFACE}\" ct direction reply ct status dnat");
        rule(
            text,
            "strangers",
            format_args!("{back} ct mark & {OF_HOST} == {OF_HOST} counter drop"),
        );
    }
    rule(text, "host", format_args!("{which}jump frontends"));
}

/// Which of the node's own connections are translated where.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    /// At connect time.
    connect: Option<&'static str>,
    /// As packets, after kube-proxy's rules.
    behind: Option<&'static str>,
}

impl Host {
    fn of(config: &Config, params: &Params) -> Self {
        let word = match params.given("BPFConnectTimeLoadBalancingEnabled") {
            Some(true) => "Enabled",
            Some(false) => "Disabled",
            None if !config.version.balances_tcp_alone() => "Enabled",
            None => params.word("BPFConnectTimeLoadBalancing"),
        };
        let (connect, rest) = match word {
            "Enabled" => (Some(""), None),
            "Disabled" => (None, Some("")),
            _ => (Some("meta l4proto tcp "), Some("meta l4proto != tcp ")),
        };
        let packets = params.word("BPFHostNetworkedNATWithoutCTLB") == "Enabled";
        Self {
            connect,
            behind: rest.filter(|_| packets),
        }
    }
}

/// The map's entries, in one transaction.
fn frontends(map: &[Frontend]) -> String {
    let mut text = format!("flush chain ip {TABLE} frontends\nflush set ip {TABLE} hairpin\n");
    for frontend in map {
        let (protocol, number) = (frontend.protocol, frontend.number);
        let (address, hidden) = match frontend.address {
            Address::Ip(ip) => (format!("ip daddr {ip}"), String::new()),
            Address::Node => {
                let [keep, set] = MASQUERADE;
                let hidden = format!("meta mark set meta mark & {keep} | {set} ");
                ("fib daddr type local".to_owned(), hidden)
            }
        };
        let verdict = verdict(frontend);
        let name = &frontend.port;
        rule(
            &mut text,
            "frontends",
            format_args!(
                "{address} {protocol} dport {number} {hidden}{verdict} comment \"{name}\""
            ),
        );
        for (ip, _) in &frontend.backends {
            add(
                &mut text,
                format_args!("add element ip {TABLE} hairpin {{ {ip} . {ip} }}"),
            );
        }
    }
    text
}

fn verdict(frontend: &Frontend) -> String {
    match &*frontend.backends {
        [] => "drop".to_owned(),
        [(ip, port)] => format!("dnat to {ip}:{port}"),
        many => {
            let numbered = many.iter().enumerate();
            let numbered: Vec<String> = numbered
                .map(|(number, (ip, port))| format!("{number} : {ip} . {port}"))
                .collect();
            let (count, numbered) = (numbered.len(), numbered.join(", "));
            format!("dnat to numgen random mod {count} map {{ {numbered} }}")
        }
    }
}

fn rule(text: &mut String, chain: &str, rule: std::fmt::Arguments<'_>) {
    add(text, format_args!("add rule ip {TABLE} {chain} {rule}"));
}

fn add(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes everything");
}
