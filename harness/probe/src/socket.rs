//! One UDP socket of the probe.
//!
//! It is connected, so that it hears nobody but its target, and hears of ICMP errors. Such an error reaches a
//! plain socket as the failure of whatever it does next, be it another question; with `IP_RECVERR` the kernel
//! also queues it with the datagram that it is about (ip(7)), so that each error finds its question.

use std::{
    io::{self, ErrorKind, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use nix::{
    cmsg_space,
    errno::Errno,
    libc::sock_extended_err,
    sys::socket::{
        ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt,
        sockopt::{Ipv4RecvErr, Ipv6RecvErr},
    },
};

/// A socket and its one target.
#[derive(Debug)]
pub(crate) struct Socket(UdpSocket);

/// What a socket heard; the datagram is in the buffer.
#[derive(Debug)]
pub(crate) enum Heard {
    /// One that came.
    Datagram,
    /// One that was sent, or the part of it that the error gives back.
    Error(io::Error),
}

impl Socket {
    /// From that port, or, where somebody has it, from one of the kernel's choice.
    pub(crate) fn open(target: SocketAddr, source: Option<IpAddr>, port: u16) -> io::Result<Self> {
        let source = source.unwrap_or_else(|| any(target));
        let ports = [port, 0].map(|port| SocketAddr::new(source, port));
        let socket = UdpSocket::bind(&ports[..])?;
        socket.set_nonblocking(true)?;
        match target {
            SocketAddr::V4(_) => setsockopt(&socket, Ipv4RecvErr, &true)?,
            SocketAddr::V6(_) => setsockopt(&socket, Ipv6RecvErr, &true)?,
        }
        socket.connect(target)?;
        Ok(Self(socket))
    }

    pub(crate) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.0.send(datagram).map(drop)
    }

    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// The next error, or else the next datagram, and its length; none when nothing is there.
    pub(crate) fn hear(&self, buffer: &mut [u8]) -> Option<(Heard, usize)> {
        loop {
            if let Some(failed) = self.failed(buffer) {
                return Some(failed);
            }
            match self.0.recv(buffer) {
                Ok(length) => return Some((Heard::Datagram, length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // An error that has just come, and is in the queue by now.
                Err(_) => {}
            }
        }
    }

    fn failed(&self, buffer: &mut [u8]) -> Option<(Heard, usize)> {
        let mut control = cmsg_space!(sock_extended_err, SockaddrStorage);
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_ERRQUEUE;
        let fd = self.0.as_raw_fd();
        let message = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), flags).ok()?;
        let errno = message.cmsgs().ok()?.find_map(|control| match control {
            ControlMessageOwned::Ipv4RecvErr(error, _)
            | ControlMessageOwned::Ipv6RecvErr(error, _) => Some(error.ee_errno),
            _ => None,
        });
        let errno = errno.and_then(|errno| i32::try_from(errno).ok());
        let error = Errno::from_raw(errno.unwrap_or_default());
        Some((Heard::Error(error.into()), message.bytes))
    }
}

/// Any address of the target's family.
pub(crate) fn any(target: SocketAddr) -> IpAddr {
    match target {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
