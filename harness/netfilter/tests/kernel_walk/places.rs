//! A client, a node and a server, each in a network namespace of its own; this process is in the node's.

use std::{
    io::{ErrorKind, Read},
    net::IpAddr,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use chainbreak_netfilter::walk::{Packet, Protocol};
use nix::{sched::CloneFlags, unistd::gettid};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::packets::{Ends, bytes, read};

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
        let text = address.to_string();
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

/// A namespace's sockets.
struct Sockets {
    out: Socket,
    ins: Vec<Socket>,
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
        let client = beyond("cali1", "10.1.1.1/24", "10.1.1.2", "");
        let server = beyond(
            "eth0",
            "10.1.2.1/24",
            "10.1.2.2",
            "ip addr add 10.1.2.3/24 dev peer; ip route add local 10.96.0.0/16 dev lo; ip route add local 192.0.2.0/24 dev lo",
        );
        run(
            "ip route add default via 10.1.2.2 dev eth0
             ip neigh replace 10.1.2.3 lladdr 02:00:00:00:00:02 dev eth0
             sysctl -qw net.ipv4.ip_forward=1 net.netfilter.nf_conntrack_tcp_be_liberal=1",
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
        let socket = &self.of(from).out;
        let mark = if from == Place::Node {
            packet.mark
        } else {
            OURS
        };
        socket.set_mark(mark).unwrap();
        let to = SockAddr::from(std::net::SocketAddr::new(packet.dst, 0));
        // What a rule drops at once is an error here: the rule's counter is what is looked at.
        drop(socket.send_to(&bytes(packet, is_reply), &to));
    }

    /// What has arrived since, and where.
    pub(crate) fn arrived(&mut self) -> Vec<(Place, Ends)> {
        let mut all = Vec::new();
        for place in [Place::Client, Place::Node, Place::Server] {
            for socket in &mut self.of(place).ins {
                let mut buffer = [0; 2048];
                loop {
                    match socket.read(&mut buffer) {
                        Ok(length) => all.extend(read(&buffer[..length]).map(|it| (place, it))),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
        all
    }
}

impl Sockets {
    fn open() -> Self {
        let raw = |protocol: u8| {
            let protocol = socket2::Protocol::from(i32::from(protocol));
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(protocol)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        Self {
            out: raw(255),
            ins: [Protocol::TCP, Protocol::UDP, Protocol::ICMP]
                .map(|it| raw(it.0))
                .into(),
        }
    }
}

/// A namespace at the other end of an interface of the node's. Both ends know each other's hardware address, so that
/// nobody has to ask for it.
fn beyond(interface: &str, gateway: &str, address: &str, more: &str) -> Sockets {
    let (name, wired) = (mpsc::channel(), mpsc::channel::<()>());
    let near = gateway.split('/').next().unwrap().to_owned();
    let (far, more) = (address.to_owned(), more.to_owned());
    let sender = name.0;
    let waits = wired.1;
    let other = thread::spawn(move || {
        nix::sched::unshare(CloneFlags::CLONE_NEWNET).unwrap();
        sender.send(gettid()).unwrap();
        waits.recv().unwrap();
        run(
            &format!(
                "{QUIET}ip addr add {far}/24 dev peer; ip link set peer up
                 ip route add default via {near}; ip neigh replace {near} lladdr 02:00:00:00:00:01 dev peer
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
             ip addr add {gateway} dev {interface}; ip link set {interface} up
             ip neigh replace {address} lladdr 02:00:00:00:00:02 dev {interface}"
        ),
        "",
    );
    wired.0.send(()).unwrap();
    other.join().unwrap()
}
