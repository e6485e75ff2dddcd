//! The raw sockets of a namespace: what it sends, and what has arrived for it.

use std::{
    io::{ErrorKind, IoSliceMut, Read},
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
};

use chainbreak_netfilter::walk::Protocol;
use nix::{
    cmsg_space,
    errno::Errno,
    libc::in6_pktinfo,
    sys::socket::{
        ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, setsockopt,
        sockopt::Ipv6RecvPacketInfo,
    },
};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::packets::{Ends, read};

/// `IPPROTO_RAW`: what is sent has its header.
const WITH_HEADER: Protocol = Protocol(255);

/// A namespace's sockets.
pub(crate) struct Sockets {
    out: [Socket; 2],
    ins: Vec<Socket>,
    ins_of_ipv6: Vec<(Protocol, Socket)>,
}

impl Sockets {
    /// Those of the namespace that this thread is in.
    pub(crate) fn open() -> Self {
        let raw = |domain, protocol: Protocol| {
            let protocol = socket2::Protocol::from(i32::from(protocol.0));
            let socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let of_ipv6 = |protocol| {
            let socket = raw(Domain::IPV6, protocol);
            setsockopt(&socket, Ipv6RecvPacketInfo, &true).unwrap();
            (protocol, socket)
        };
        Self {
            out: [Domain::IPV4, Domain::IPV6].map(|domain| raw(domain, WITH_HEADER)),
            ins: [Protocol::TCP, Protocol::UDP, Protocol::ICMP]
                .map(|protocol| raw(Domain::IPV4, protocol))
                .into(),
            ins_of_ipv6: [Protocol::TCP, Protocol::UDP, Protocol::ICMPV6]
                .map(of_ipv6)
                .into(),
        }
    }

    /// Sends a packet. What a rule drops at once is an error here: the rule's counter is what is looked at.
    pub(crate) fn send(&self, packet: &[u8], to: IpAddr, mark: u32) {
        let [v4, v6] = &self.out;
        let socket = if to.is_ipv4() { v4 } else { v6 };
        socket.set_mark(mark).unwrap();
        drop(socket.send_to(packet, &SockAddr::from(SocketAddr::new(to, 0))));
    }

    /// What has arrived since.
    pub(crate) fn receive(&mut self) -> Vec<Ends> {
        let mut all = Vec::new();
        for socket in &mut self.ins {
            let mut buffer = [0; 2048];
            loop {
                match socket.read(&mut buffer) {
                    Ok(length) => all.extend(read(&buffer[..length])),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        for (protocol, socket) in &self.ins_of_ipv6 {
            while take(*protocol, socket, &mut all) {}
        }
        all
    }
}

/// Takes what a raw socket of IPv6 got next; false where there is nothing. It gives no header, and tells the addresses beside what it gives.
fn take(protocol: Protocol, socket: &Socket, all: &mut Vec<Ends>) -> bool {
    let mut bytes = [0; 2048];
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let mut told = cmsg_space!(in6_pktinfo);
    let flags = MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<SockaddrIn6>(socket.as_raw_fd(), &mut buffers, Some(&mut told), flags);
    let received = match received {
        Ok(received) => received,
        Err(Errno::EAGAIN) => return false,
        Err(error) => panic!("{error}"),
    };
    let src = received.address.expect("who sent it").ip();
    let dst = received.cmsgs().unwrap().find_map(|told| match told {
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(info.ipi6_addr.s6_addr.into()),
        _ => None,
    });
    let dst: IpAddr = dst.expect("IPV6_RECVPKTINFO is set");
    let length = received.bytes;
    all.extend(Ends::of(protocol, (src.into(), dst), &bytes[..length]));
    true
}
