//! Conntrack's table, written and emptied through netlink: see [`crate::wire::conntrack`].
//!
//! `conntrack -R` asks for an answer to each entry, and is slower by an order of magnitude. Here a
//! message carries many requests, and only those are answered that fail.

mod message;

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
        socket,
    },
};

use crate::{
    error::ProbeError,
    output::say,
    wire::conntrack::{Fill, Report},
};

/// Requests a message: all their answers find room in a socket's receive buffer of the default size.
const BATCH: usize = 128;

/// How long a full table is left alone, in milliseconds.
const AGAIN: u8 = 20;

/// What a second of the kernel's work gives way by: what is measured meanwhile comes first.
const NICER: i32 = 10;

/// Makes the entries, and gives way to whatever else wants a processor. Where the table is full before all are there, the
/// others take what room there is, until `control` ends: as soon as a table is full, the kernel looks for connections of
/// others that are nearly over, and forgets them.
pub(crate) fn fill(order: &Fill, mut control: File, mut out: impl Write) -> Result<(), ProbeError> {
    rustix::process::nice(NICER).map_err(|errno| ProbeError::System {
        what: "give way",
        source: errno.into(),
    })?;
    let table = Table::open()?;
    let mut numbers = 0..order.entries;
    let mut full = false;
    while !full && !numbers.is_empty() {
        let batch = numbers.by_ref().take(BATCH);
        let requests = batch.flat_map(|number| message::made(order, number));
        full = table.tell(&requests.collect::<Vec<u8>>())?;
        // Who asked for them may be gone, and somebody about to delete them.
        if !goes_on(&mut control, PollTimeout::ZERO)? {
            return Ok(());
        }
    }
    say(&mut out, &Report::Filled { full })?;
    for number in numbers {
        while table.tell(&message::made(order, number))? {
            if !goes_on(&mut control, PollTimeout::from(AGAIN))? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Whether the input has not ended after a while.
fn goes_on(control: &mut File, wait: PollTimeout) -> Result<bool, ProbeError> {
    let mut watched = [PollFd::new(control.as_fd(), PollFlags::POLLIN)];
    match poll(&mut watched, wait) {
        Ok(0) | Err(Errno::EINTR) => Ok(true),
        Ok(_) => Ok(control.read(&mut [0; 64]).is_ok_and(|count| count > 0)),
        Err(errno) => Err(ProbeError::system("wait for the end")(errno)),
    }
}

/// Deletes every entry of ours.
pub(crate) fn empty(mut out: impl Write) -> Result<(), ProbeError> {
    Table::open()?.tell(&message::none_left())?;
    say(&mut out, &Report::Emptied)
}

/// The table of the place's network namespace.
struct Table(OwnedFd);

impl Table {
    fn open() -> Result<Self, ProbeError> {
        let (flags, netfilter) = (SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkNetFilter);
        socket(AddressFamily::Netlink, SockType::Raw, flags, netfilter)
            .map(Self)
            .map_err(ProbeError::system("reach conntrack"))
    }

    /// Carries requests out, in the caller's time: the kernel has done them when it took them. Whether the
    /// table is full. An entry that is there already is fine.
    fn tell(&self, requests: &[u8]) -> Result<bool, ProbeError> {
        let (socket, kernel) = (self.0.as_raw_fd(), NetlinkAddr::new(0, 0));
        sendto(socket, requests, &kernel, MsgFlags::empty())
            .map_err(ProbeError::system("tell conntrack"))?;
        let mut full = false;
        let mut answers = vec![0; 65_536];
        loop {
            let length = match recv(socket, &mut answers, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => length,
                Err(Errno::EAGAIN) => return Ok(full),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(ProbeError::system("hear conntrack")(errno)),
            };
            for errno in message::failures(answers.get(..length).unwrap_or_default()) {
                match errno {
                    Errno::EEXIST => {}
                    Errno::ENOMEM => full = true,
                    other => return Err(ProbeError::system("write conntrack")(other)),
                }
            }
        }
    }
}
