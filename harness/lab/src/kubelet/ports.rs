//! Whether somebody is there at a port, seen from inside: what the node's rules do to packets is what the lab is
//! there to find out, not a matter of readiness.

use std::{fs, io, net::SocketAddr, time::Duration};

use tokio::{
    net::TcpSocket,
    time::{Instant, sleep_until, timeout},
};

use crate::place::PlaceThread;

/// First pause before another look; doubles up to the longest.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// Returns when a place accepts a connection.
pub(crate) async fn accepts(place: &PlaceThread, target: SocketAddr) {
    let mut pause = FIRST_LOOK;
    loop {
        let socket = place.run(move || match target {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        });
        // An IPv6 address of a moment ago may be nobody's yet: the first segment leaves by the default route and is
        // lost, and so is the one a second later.
        if let Ok(socket) = socket.await
            && let Ok(Ok(_)) = timeout(LONGEST_LOOK, socket.connect(target)).await
        {
            return;
        }
        sleep_until(Instant::now() + pause).await;
        pause = (pause * 2).min(LONGEST_LOOK);
    }
}

/// Returns when a place has a UDP socket at a port. A datagram would be a question of nobody's.
pub(super) async fn is_bound(place: &PlaceThread, port: u16) {
    let mut pause = FIRST_LOOK;
    loop {
        if let Ok(true) = place.run(move || has_socket(port)).await {
            return;
        }
        sleep_until(Instant::now() + pause).await;
        pause = (pause * 2).min(LONGEST_LOOK);
    }
}

/// Whether a UDP socket of either family has the port, in the network namespace of this thread.
fn has_socket(port: u16) -> io::Result<bool> {
    let families = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let tables = families.map(fs::read_to_string);
    let [v4, v6] = tables;
    // A kernel without IPv6 has no table of it.
    let tables = v4? + &v6.unwrap_or_default();
    Ok(tables.lines().any(|line| local_port(line) == Some(port)))
}

/// The second word of a line is the local address and its port, in hexadecimal digits (`proc(5)`).
fn local_port(line: &str) -> Option<u16> {
    let local = line.split_ascii_whitespace().nth(1)?;
    u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_sockets_shows_who_has_which_port() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when
  437: 00000000:1FBD 00000000:0000 07 00000000:00000000 00:00000000 00000000";
        let ports: Vec<_> = table.lines().map(local_port).collect();
        assert_eq!(ports, [None, Some(8125)]);
    }
}
