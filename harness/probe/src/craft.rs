//! The crafter: watches the TCP segments that pass its place, and sends its own into the connections that
//! it knows. See [`crate::wire::craft`].

mod flow;
mod segment;

use std::{
    collections::VecDeque,
    fs::File,
    io::{Read, Write},
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use indexmap::IndexMap;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto,
        socket,
    },
};

use crate::{
    clock::monotonic_us,
    craft::{
        flow::Flow,
        segment::{Made, Segment},
    },
    error::ProbeError,
    output::say,
    wire::craft::{Craft, Report},
};

/// So many of its own segments may be on their way back to it at once.
const OWN: usize = 256;

/// Carries out an order until `control` ends, and reports to `out`.
pub(crate) fn run(order: &Craft, mut control: File, mut out: impl Write) -> Result<(), ProbeError> {
    let mut crafter = Crafter::new(order)?;
    say(&mut out, &Report::Started)?;
    let mut due_us = monotonic_us() + order.every_us;
    loop {
        let left = due_us.saturating_sub(monotonic_us());
        let (passes, told) = crafter.wait(&control, left)?;
        if told && !control.read(&mut [0; 64]).is_ok_and(|count| count > 0) {
            let segments = crafter.sent;
            return say(&mut out, &Report::Done { segments });
        }
        if passes {
            crafter.watch()?;
        }
        if monotonic_us() >= due_us {
            due_us += order.every_us;
            for (client, server) in crafter.turn()? {
                say(&mut out, &Report::Crafted { client, server })?;
            }
        }
    }
}

#[derive(Debug)]
struct Crafter<'a> {
    order: &'a Craft,
    tap: OwnedFd,
    senders: Senders,
    flows: IndexMap<(SocketAddr, SocketAddr), Flow>,
    /// The crafter's own segments, which pass its place, too.
    own: VecDeque<Vec<u8>>,
    sent: u64,
}

impl<'a> Crafter<'a> {
    fn new(order: &'a Craft) -> Result<Self, ProbeError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let every = SockProtocol::EthAll;
        let tap = socket(AddressFamily::Packet, SockType::Datagram, flags, every)
            .map_err(ProbeError::system("watch what passes"))?;
        Ok(Self {
            order,
            tap,
            senders: Senders::default(),
            flows: IndexMap::new(),
            own: VecDeque::new(),
            sent: 0,
        })
    }

    /// Waits at most `left_us`. Whether something passed, and whether `control` has something to say.
    fn wait(&self, control: &File, left_us: u64) -> Result<(bool, bool), ProbeError> {
        let mut fds =
            [self.tap.as_fd(), control.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let timeout = PollTimeout::try_from(left_us.div_ceil(1_000)).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(ProbeError::system("wait")(errno)),
        }
        let [tap, control] = fds.map(|fd| fd.any().unwrap_or_default());
        Ok((tap, control))
    }

    /// Takes note of everything that passed.
    fn watch(&mut self) -> Result<(), ProbeError> {
        let mut packet = vec![0; 65_536];
        loop {
            let length = match recv(self.tap.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(length) => length,
                Err(Errno::EAGAIN) => return Ok(()),
                // An interface that goes away says so once.
                Err(Errno::EINTR | Errno::ENETDOWN) => continue,
                Err(errno) => return Err(ProbeError::system("read what passes")(errno)),
            };
            let read = packet.get(..length).and_then(Segment::read);
            if let Some(segment) = read {
                self.see(&segment);
            }
        }
    }

    fn see(&mut self, segment: &Segment<'_>) {
        let (client, server) = if self.order.servers.contains(&segment.to) {
            (segment.from, segment.to)
        } else if self.order.servers.contains(&segment.from) {
            (segment.to, segment.from)
        } else {
            return;
        };
        if self.own.iter().any(|own| own == segment.bytes) {
            return;
        }
        let flow = self.flows.entry((client, server));
        flow.or_insert_with(|| Flow::new(client, server))
            .see(segment);
    }

    /// Sends into every live connection, and names those.
    fn turn(&mut self) -> Result<Vec<(SocketAddr, SocketAddr)>, ProbeError> {
        let mut crafted = Vec::new();
        for flow in self.flows.values() {
            let segments = flow.craft(self.order.segment);
            if segments.is_empty() {
                continue;
            }
            crafted.push(flow.ends());
            for segment in segments {
                self.senders.send(&segment)?;
                self.sent += 1;
                self.own.push_back(segment.tcp().to_vec());
            }
        }
        let old = self.own.len().saturating_sub(OWN);
        self.own.drain(..old);
        Ok(crafted)
    }
}

/// Raw sockets that take whole IP packets, one for each family that is needed.
#[derive(Debug, Default)]
struct Senders {
    ipv4: Option<OwnedFd>,
    ipv6: Option<OwnedFd>,
}

impl Senders {
    fn send(&mut self, made: &Made) -> Result<(), ProbeError> {
        let (family, sender) = match made.to() {
            IpAddr::V4(_) => (AddressFamily::Inet, &mut self.ipv4),
            IpAddr::V6(_) => (AddressFamily::Inet6, &mut self.ipv6),
        };
        let sender = match sender {
            Some(sender) => sender,
            None => sender.insert(raw(family)?),
        };
        // The address says where to; a port would be taken for a protocol.
        let to = SockaddrStorage::from(SocketAddr::new(made.to(), 0));
        match sendto(sender.as_raw_fd(), &made.packet(), &to, MsgFlags::empty()) {
            // EPERM: a rule of the place's own OUTPUT dropped it.
            Ok(_) | Err(Errno::EPERM) => Ok(()),
            Err(errno) => Err(ProbeError::system("send a crafted segment")(errno)),
        }
    }
}

fn raw(family: AddressFamily) -> Result<OwnedFd, ProbeError> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(family, SockType::Raw, flags, SockProtocol::Raw)
        .map_err(ProbeError::system("make a raw socket"))
}
