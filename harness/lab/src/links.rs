//! When a link that was wired carries packets.
//!
//! The end of a veth that comes up first does so without a carrier. When its other end is up the kernel puts it to work some
//! time later, in a queue of its own (`net/core/link_watch.c`), and drops what is sent on it until then: on a busy machine for
//! half a second. That costs the ARP request of a pod's first connection, which is repeated a second later.

use std::{future::ready, time::Duration};

use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};
use tokio::time::{Instant, sleep_until};

use crate::{error::LabError, place::PlaceThread, wiring::BRIDGE};

/// Distance of two looks: reading the flags of a few links takes some microseconds.
const LOOK: Duration = Duration::from_millis(1);
/// A kernel that takes longer has no time for the world.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns when a place's end of a link carries packets.
pub(crate) async fn carries(place: &PlaceThread, interface: &str) -> Result<(), LabError> {
    let running = || {
        let name = interface.to_owned();
        place.run(move || is_running(&name))
    };
    until(running, place.name(), interface).await
}

/// The same in the worker's own namespace.
pub(crate) async fn carries_here(interface: &str) -> Result<(), LabError> {
    let running = || ready(is_running(interface));
    until(running, "the underlay", interface).await
}

/// The same for the underlay, which has so many ports.
pub(crate) async fn underlay_carries(ports: usize) -> Result<(), LabError> {
    let ports = (0..ports).map(|number| format!("u{number}"));
    for interface in ports.chain([BRIDGE.to_owned()]) {
        carries_here(&interface).await?;
    }
    Ok(())
}

/// What the kernel calls running is what its queue is done with (`netif_oper_up`).
fn is_running(interface: &str) -> bool {
    let Ok(mut links) = getifaddrs() else {
        return false;
    };
    let running = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    links.any(|link| link.interface_name == interface && link.flags.contains(running))
}

async fn until<R: Future<Output = bool>>(
    running: impl Fn() -> R,
    what: &str,
    interface: &str,
) -> Result<(), LabError> {
    let deadline = Instant::now() + PATIENCE;
    while !running().await {
        if Instant::now() >= deadline {
            let seconds = PATIENCE.as_secs();
            return Err(LabError::Wire {
                what: what.to_owned(),
                stderr: format!("{interface} carries no packets after {seconds} s"),
            });
        }
        sleep_until(Instant::now() + LOOK).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_link_is_waited_for_and_named_when_it_never_carries_a_packet() {
        let looks = Cell::new(0);
        let third = || {
            looks.set(looks.get() + 1);
            ready(looks.get() == 3)
        };
        until(third, "node/n1", "cali1").await.unwrap();
        assert_eq!(looks.get(), 3);
        let never = until(|| ready(false), "node/n1", "cali1").await;
        assert_eq!(
            never.unwrap_err().to_string(),
            "could not wire node/n1: cali1 carries no packets after 20 s"
        );
    }

    #[test]
    fn only_a_link_that_is_there_can_run() {
        assert!(!is_running("no-such-link"));
    }
}
