//! A port, opened as Go opens one.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use nix::sys::socket::{setsockopt, sockopt::Ipv6V6Only};
use tokio::net::{TcpListener, TcpSocket};

/// As many connections may wait as Go's listener has, while the kernel's limit is not lower.
const WAITING: u32 = 4096;

/// Listens as `net.Listen` does: `tcp` takes `0.0.0.0` and `::` alike for all addresses of both families, where the
/// node has both. With `own_family` it is `tcp4` or `tcp6`.
pub(super) fn listen(address: SocketAddr, own_family: bool) -> io::Result<TcpListener> {
    if own_family || !address.ip().is_unspecified() {
        return open(address, true);
    }
    let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
    match open(both, false) {
        Err(error) if error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => open(address, true),
        opened => opened,
    }
}

fn open(address: SocketAddr, own_family: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        let socket = TcpSocket::new_v6()?;
        setsockopt(&socket, Ipv6V6Only, &own_family)?;
        socket
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}
