//! What an agent asks of the kernel itself, without a program: conntrack's table, and counters.
//!
//! A core asks for it as for a command, whose program is called `netlink`: so it passes the same gate, and the history
//! tells it in the same way. No such program exists, and none is run: the request is sent from the calling thread,
//! in whose network namespace the kernel answers.
//!
//! | command | its input | its output |
//! |---|---|---|
//! | `netlink conntrack list ipv4` (or `ipv6`) | | UDP connections, a line each, as `conntrack -L` has them |
//! | `netlink conntrack delete ipv4` (or `ipv6`) | such lines | those of them that were there and are gone |
//! | `netlink nfacct get NAME`, `… new NAME` | | |
//!
//! The exit code is the kernel's error number, 0 for none.

use std::{
    fmt::Write as _,
    os::fd::{AsRawFd, OwnedFd},
    time::Instant,
};

use chainbreak_netfilter::{
    conntrack::{Flow, flows},
    netlink::{self, Answer, Version},
};
use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
            setsockopt, socket, sockopt,
        },
        time::TimeVal,
    },
};

use crate::step::{Command, Output};

/// The name of the program that is none.
pub const PROGRAM: &str = "netlink";
/// The kernel answers in the time of the call; nothing waits longer for it.
const PATIENCE_S: i64 = 10;
/// What the kernel gives at once is at most half of it.
const HEARD: usize = 65_536;

/// Carries the request out, if the command is one.
pub fn answer(command: &Command) -> Option<Output> {
    let (program, words) = command.argv.split_first()?;
    if program != PROGRAM {
        return None;
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let begin = Instant::now();
    let done = match words.as_slice() {
        ["conntrack", "list", version] => version_of(version).and_then(list),
        ["conntrack", "delete", _] => delete(&command.input),
        ["nfacct", "get", name] => ask(&netlink::counter(name)),
        ["nfacct", "new", name] => ask(&netlink::new_counter(name)),
        _ => Err(Errno::EINVAL),
    };
    let (stdout, error) = done.unwrap_or_else(|errno| (String::new(), Some(errno)));
    Some(Output {
        exit: error.map_or(0, |errno| errno as i32),
        stdout,
        stderr: error.map_or(String::new(), |errno| errno.desc().to_lowercase()),
        took: begin.elapsed(),
    })
}

fn version_of(word: &str) -> Result<Version, Errno> {
    match word {
        "ipv4" => Ok(Version::V4),
        "ipv6" => Ok(Version::V6),
        _ => Err(Errno::EINVAL),
    }
}

/// A listing that a change interrupted is an error that comes with what was heard.
fn list(version: Version) -> Result<(String, Option<Errno>), Errno> {
    let mut text = String::new();
    let interrupted = Kernel::open()?.tell(&netlink::connections(version), |answer| {
        if let Answer::Flow(flow) = answer
            && flow.protocol == "udp"
        {
            line(&mut text, &flow);
        }
    })?;
    Ok((text, interrupted.then_some(Errno::EINTR)))
}

fn delete(lines: &str) -> Result<(String, Option<Errno>), Errno> {
    let kernel = Kernel::open()?;
    let mut gone = String::new();
    for flow in flows(lines) {
        let request = netlink::deletion(&flow).ok_or(Errno::EPROTONOSUPPORT)?;
        match kernel.tell(&request, |_| ()) {
            Ok(_) => line(&mut gone, &flow),
            // It ended by itself meanwhile.
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok((gone, None))
}

fn line(text: &mut String, flow: &Flow) {
    writeln!(text, "{flow}").expect("a string takes everything");
}

fn ask(request: &[u8]) -> Result<(String, Option<Errno>), Errno> {
    Kernel::open()?.tell(request, |_| ())?;
    Ok((String::new(), None))
}

/// Netfilter of the calling thread's network namespace.
struct Kernel(OwnedFd);

impl Kernel {
    fn open() -> Result<Self, Errno> {
        let (flags, netfilter) = (SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkNetFilter);
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, netfilter)?;
        let patience = TimeVal::new(PATIENCE_S, 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &patience)?;
        Ok(Self(socket))
    }

    /// Sends a request and hears its answers to the end. Whether a change interrupted them.
    fn tell(&self, request: &[u8], mut heard: impl FnMut(Answer)) -> Result<bool, Errno> {
        let (socket, kernel) = (self.0.as_raw_fd(), NetlinkAddr::new(0, 0));
        sendto(socket, request, &kernel, MsgFlags::empty())?;
        let mut buffer = vec![0; HEARD];
        let mut any = false;
        loop {
            let length = recv(socket, &mut buffer, MsgFlags::empty())?;
            let (answers, interrupted) = netlink::answers(buffer.get(..length).unwrap_or_default());
            any |= interrupted;
            for answer in answers {
                match answer {
                    Answer::End(0) => return Ok(any),
                    Answer::End(errno) => return Err(Errno::from_raw(errno)),
                    answer => heard(answer),
                }
            }
        }
    }
}
