//! A client, a node and a server, each in a network namespace of its own; this process is in the node's.

use std::{
    net::{IpAddr, Ipv4Addr},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use chainbreak_netfilter::walk::Packet;
use nix::{sched::CloneFlags, unistd::gettid};

use crate::{
    ipv6,
    packets::{Ends, bytes},
    sockets::Sockets,
};

/// What a namespace lets out: packets with this mark. The kernel's own answers have none.
pub(crate) const OURS: u32 = 0x8000_0000;

/// Where packets can arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Client,
    Node,
    Server,
}

impl Place {
    /// Whether what it sends to an address does not leave it. Of the node, everything is to be compared.
    pub(crate) fn has(self, address: IpAddr) -> bool {
        let text = ipv6::back(address).to_string();
        match self {
            Self::Client => text == "10.1.1.2",
            Self::Node => false,
            Self::Server => {
                let nets = ["10.96.", "192.0.2."];
                nets.iter().any(|net| text.starts_with(net))
                    || ["10.1.2.2", "10.1.2.3"].contains(&text.as_str())
            }
        }
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
    /// Makes the namespaces of client and server, and the node's interfaces.
    pub(crate) fn new() -> Self {
        run(QUIET, "");
        let client = beyond("cali1", [10, 1, 1, 1], [10, 1, 1, 2], "");
        let other = ipv6::of([10, 1, 2, 3].into());
        let server = beyond(
            "eth0",
            [10, 1, 2, 1],
            [10, 1, 2, 2],
            &format!(
                "ip addr add 10.1.2.3/24 dev peer; ip route add local 10.96.0.0/16 dev lo; ip route add local 192.0.2.0/24 dev lo
                 ip addr add {other}/48 dev peer nodad; ip route add local fd0a:60::/32 dev lo; ip route add local fdc0:0:2::/48 dev lo"
            ),
        );
        let gateway = ipv6::of([10, 1, 2, 2].into());
        run(
            &format!(
                "ip route add default via 10.1.2.2 dev eth0; ip route add default via {gateway} dev eth0
                 ip neigh replace 10.1.2.3 lladdr 02:00:00:00:00:02 dev eth0; ip neigh replace {other} lladdr 02:00:00:00:00:02 dev eth0
                 sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.netfilter.nf_conntrack_tcp_be_liberal=1"
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

/// A namespace at the other end of an interface of the node's. Both ends know each other's hardware address, so that
/// nobody has to ask for it.
fn beyond(interface: &str, gateway: [u8; 4], address: [u8; 4], more: &str) -> Sockets {
    let (name, wired) = (mpsc::channel(), mpsc::channel::<()>());
    let [near, far] = [gateway, address].map(Ipv4Addr::from);
    let [near6, far6] = [near, far].map(ipv6::of);
    let more = more.to_owned();
    let sender = name.0;
    let waits = wired.1;
    let other = thread::spawn(move || {
        nix::sched::unshare(CloneFlags::CLONE_NEWNET).unwrap();
        sender.send(gettid()).unwrap();
        waits.recv().unwrap();
        run(
            &format!(
                "{QUIET}ip link set peer addrgenmode none
                 ip addr add {far}/24 dev peer; ip addr add {far6}/48 dev peer nodad; ip link set peer up
                 ip route add default via {near}; ip neigh replace {near} lladdr 02:00:00:00:00:01 dev peer
                 ip route add default via {near6}; ip neigh replace {near6} lladdr 02:00:00:00:00:01 dev peer
                 sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.peer.rp_filter=0 net.ipv4.conf.all.accept_local=1\n{more}"
            ),
            "",
        );
        Sockets::open()
    });
    let thread = name.1.recv().unwrap();
    run(
        &format!(
            "ip link add {interface} address 02:00:00:00:00:01 type veth peer name peer address 02:00:00:00:00:02
             ip link set peer netns {thread}
             ip link set {interface} addrgenmode none
             ip addr add {near}/24 dev {interface}; ip addr add {near6}/48 dev {interface} nodad; ip link set {interface} up
             ip neigh replace {far} lladdr 02:00:00:00:00:02 dev {interface}; ip neigh replace {far6} lladdr 02:00:00:00:00:02 dev {interface}"
        ),
        "",
    );
    wired.0.send(()).unwrap();
    other.join().unwrap()
}
