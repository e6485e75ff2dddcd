//! A client, a node and a server, each in a network namespace of its own; this process is in the node's.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use chainbreak_netfilter::walk::Packet;
use nix::{sched::CloneFlags, unistd::gettid};

use crate::{
    packets::{Ends, bytes},
    sockets::Sockets,
};

/// What a namespace lets out: packets with this mark. The kernel's own answers have none.
pub(crate) const OURS: u32 = 0x8000_0000;

const CLIENT: [u8; 4] = [10, 1, 1, 2];
const SERVERS: [[u8; 4]; 2] = [[10, 1, 2, 2], [10, 1, 2, 3]];

/// `fd0a:1:2::9` for `10.1.2.9`.
pub(crate) fn in_ipv6(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets().map(u16::from);
    Ipv6Addr::new(0xfd00 | a, b, c, 0, 0, 0, 0, d)
}

/// Where packets can arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Client,
    Node,
    Server,
}

impl Place {
    /// Whether what it sends to an address does not leave it. Of the node, everything is to be compared.
    pub(crate) fn is_own(self, address: IpAddr) -> bool {
        let own = match self {
            Self::Client => &[CLIENT][..],
            Self::Node => &[],
            Self::Server => &SERVERS,
        };
        let own = own.iter().map(|it| Ipv4Addr::from(*it));
        let is = |own: Ipv4Addr| address == own || address == in_ipv6(own);
        own.into_iter().any(is)
    }
}

pub(crate) struct Places {
    client: Sockets,
    node: Sockets,
    server: Sockets,
}

/// Runs a shell script where this thread is.
pub(crate) fn run(script: &str, input: &str) -> String {
    use std::io::Write;
    let mut child = Command::new("sh")
        .args(["-ec", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh runs");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{input}\n{error}");
    String::from_utf8(output.stdout).unwrap()
}

const QUIET: &str = "ip link set lo up
nft 'table inet quiet { chain out { type filter hook output priority -400; meta mark & 0x80000000 == 0 drop
}
}'\n";

impl Places {
    /// Makes the namespaces of client and server, and the node's interfaces with these addresses beside their own.
    pub(crate) fn new(more: &[IpAddr]) -> Self {
        run(QUIET, "");
        let client = beyond("cali1", [10, 1, 1, 1], &[CLIENT]);
        let server = beyond("eth0", [10, 1, 2, 1], &SERVERS);
        let gateway = Ipv4Addr::from(SERVERS[0]);
        let gateway6 = in_ipv6(gateway);
        let more = more.iter();
        let more = more.map(|it| format!("ip addr add {it} dev eth0 {}", no_dad(*it)));
        let more = more.collect::<Vec<_>>().join("\n");
        run(
            &format!(
                "ip route add default via {gateway} dev eth0; ip route add default via {gateway6} dev eth0
                 sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.netfilter.nf_conntrack_tcp_be_liberal=1\n{more}"
            ),
            "",
        );
        Self {
            client,
            node: Sockets::open(),
            server,
        }
    }

    fn of(&mut self, place: Place) -> &mut Sockets {
        match place {
            Place::Client => &mut self.client,
            Place::Node => &mut self.node,
            Place::Server => &mut self.server,
        }
    }

    /// Sends a packet; false where the kernel has no route for it.
    pub(crate) fn send(&mut self, from: Place, packet: &Packet, is_reply: bool) {
        let mark = if from == Place::Node {
            packet.mark
        } else {
            OURS
        };
        let bytes = bytes(packet, is_reply);
        self.of(from).send(&bytes, packet.dst, mark);
    }

    /// What has arrived since, and where.
    pub(crate) fn arrived(&mut self) -> Vec<(Place, Ends)> {
        let mut all = Vec::new();
        for place in [Place::Client, Place::Node, Place::Server] {
            let ends = self.of(place).receive();
            all.extend(ends.into_iter().map(|it| (place, it)));
        }
        all
    }
}

/// An address of IPv6 is there at once where nobody asks first whether others have it.
fn no_dad(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "" } else { "nodad" }
}

const NEAR: &str = "02:00:00:00:00:01";
const FAR: &str = "02:00:00:00:00:02";

/// Commands by which an interface has an address in both families.
fn has(interface: &str, address: Ipv4Addr) -> String {
    let address6 = in_ipv6(address);
    format!(
        "ip addr add {address}/24 dev {interface}; ip addr add {address6}/48 dev {interface} nodad\n"
    )
}

/// Commands by which it knows another one's hardware address, so that nobody has to ask for it.
fn knows(interface: &str, address: Ipv4Addr, hardware: &str) -> String {
    let address6 = in_ipv6(address);
    let knows = |address: &dyn std::fmt::Display| {
        format!("ip neigh replace {address} lladdr {hardware} dev {interface}\n")
    };
    knows(&address) + &knows(&address6)
}

/// A namespace at the other end of an interface of the node's. It receives whatever is sent to it.
fn beyond(interface: &str, gateway: [u8; 4], addresses: &[[u8; 4]]) -> Sockets {
    let (name, wired) = (mpsc::channel(), mpsc::channel::<()>());
    let near = Ipv4Addr::from(gateway);
    let far: Vec<Ipv4Addr> = addresses.iter().map(|it| Ipv4Addr::from(*it)).collect();
    let knows_far: String = far.iter().map(|it| knows(interface, *it, FAR)).collect();
    let sender = name.0;
    let waits = wired.1;
    let other = thread::spawn(move || {
        nix::sched::unshare(CloneFlags::CLONE_NEWNET).unwrap();
        sender.send(gettid()).unwrap();
        waits.recv().unwrap();
        let has_far: String = far.iter().map(|it| has("peer", *it)).collect();
        let (knows_near, near6) = (knows("peer", near, NEAR), in_ipv6(near));
        run(
            &format!(
                "{QUIET}ip link set peer addrgenmode none up\n{has_far}{knows_near}
                 ip route add default via {near}; ip route add default via {near6}
                 for family in -4 -6; do
                     ip $family rule add iif peer lookup 100
                     ip $family route add local default dev lo table 100
                 done
                 sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.peer.rp_filter=0 net.ipv4.conf.all.accept_local=1"
            ),
            "",
        );
        Sockets::open()
    });
    let thread = name.1.recv().unwrap();
    run(
        &format!(
            "ip link add {interface} address {NEAR} type veth peer name peer address {FAR}
             ip link set peer netns {thread}
             ip link set {interface} addrgenmode none up\n{}{knows_far}",
            has(interface, near)
        ),
        "",
    );
    wired.0.send(()).unwrap();
    other.join().unwrap()
}
