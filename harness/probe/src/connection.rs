//! One TCP connection of the probe, and what its errors mean.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect,
        setsockopt, socket, sockopt::IpBindAddressNoPort,
    },
};

use crate::{
    answer::{Answer, Head},
    socket::any,
    wire::Outcome,
};

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The handshake is under way.
    Connecting,
    /// The request is sent, its answer awaited.
    Awaiting,
    /// Kept, and nothing is under way.
    Idle,
    /// Answered; the server's end of the connection is awaited.
    Draining,
}

/// A connection and the request it carries.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    answer: Answer,
    pub(crate) stage: Stage,
    /// When its present request was due, in microseconds since the start.
    pub(crate) due_us: u64,
}

impl Connection {
    /// Begins the handshake from that port, or, where somebody has it, from one of the kernel's choice.
    pub(crate) fn open(
        target: SocketAddr,
        source: Option<IpAddr>,
        port: u16,
        due_us: u64,
    ) -> io::Result<Self> {
        let opened = Self::from(target, source, port, due_us);
        opened.or_else(|error| match error.kind() {
            ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable if port != 0 => {
                Self::from(target, source, 0, due_us)
            }
            _ => Err(error),
        })
    }

    fn from(
        target: SocketAddr,
        source: Option<IpAddr>,
        port: u16,
        due_us: u64,
    ) -> io::Result<Self> {
        let family = match target {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(family, SockType::Stream, flags, SockProtocol::Tcp)?;
        let stream = TcpStream::from(socket);
        if source.is_some() || port != 0 {
            if port == 0 {
                // Chosen at connect time, so that it is taken only for this target.
                setsockopt(&stream, IpBindAddressNoPort, &true)?;
            }
            let source = SocketAddr::new(source.unwrap_or_else(|| any(target)), port);
            bind(fd(&stream), &SockaddrStorage::from(source))?;
        }
        match connect(fd(&stream), &SockaddrStorage::from(target)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(Self {
            stream,
            answer: Answer::new(),
            stage: Stage::Connecting,
            due_us,
        })
    }

    /// Sends the request. It fits into the empty send buffer of a connection on which nothing is under way.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.answer = Answer::new();
        self.stage = Stage::Awaiting;
        (&self.stream).write_all(request)
    }

    /// What became of the handshake.
    pub(crate) fn connected(&self) -> io::Result<()> {
        self.stream.take_error()?.map_or(Ok(()), Err)
    }

    /// Reads what has come. None when more must come.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Option<Reading> {
        loop {
            let count = match (&self.stream).read(buffer) {
                Ok(count) => count,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return None,
                    ErrorKind::Interrupted => continue,
                    _ => return Some(Reading::Failed(error)),
                },
            };
            if self.stage == Stage::Idle {
                return Some(Reading::Ended);
            }
            if count == 0 {
                return Some(self.answer.end().map_or(Reading::Ended, Reading::Complete));
            }
            if self.stage == Stage::Draining {
                continue;
            }
            let bytes = buffer.get(..count).unwrap_or_default();
            match self.answer.take(bytes) {
                Ok(None) => {}
                Ok(Some(head)) => return Some(Reading::Complete(head)),
                Err(what) => return Some(Reading::Garbage(what)),
            }
        }
    }

    /// The outcome of a complete answer.
    pub(crate) fn outcome(&self, head: Head) -> Outcome {
        if head.status != 200 {
            let what = format!("status {}", head.status);
            return Outcome::Wrong { what };
        }
        match self.stream.local_addr() {
            Ok(local) => Outcome::Answered {
                backend: head.backend,
                seen_as: head.seen_as,
                local,
            },
            Err(error) => outcome_of(&error),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn fd(stream: &TcpStream) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(stream)
}

/// What reading gave.
#[derive(Debug)]
pub(crate) enum Reading {
    /// The answer is there.
    Complete(Head),
    /// No answer is what came.
    Garbage(String),
    /// The connection ended.
    Ended,
    /// The connection broke.
    Failed(io::Error),
}

/// What an error of the system means for the request. An ICMP error while connecting comes as the errno
/// that the kernel maps its code to: port unreachable to `ECONNREFUSED`, like an RST.
pub(crate) fn outcome_of(error: &io::Error) -> Outcome {
    match error.kind() {
        ErrorKind::ConnectionRefused => Outcome::Refused,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
            Outcome::Reset
        }
        ErrorKind::TimedOut => Outcome::TimedOut,
        _ => Outcome::Unreachable {
            error: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_have_their_outcomes() {
        let word = |errno: Errno| outcome_of(&errno.into()).word();
        assert_eq!(word(Errno::ECONNREFUSED), "refused");
        assert_eq!(word(Errno::ECONNRESET), "reset");
        assert_eq!(word(Errno::EPIPE), "reset");
        assert_eq!(word(Errno::ETIMEDOUT), "timed out");
        assert_eq!(word(Errno::EHOSTUNREACH), "unreachable");
        assert_eq!(word(Errno::EADDRNOTAVAIL), "unreachable");
    }
}
