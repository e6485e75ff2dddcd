//! Connections as a bystander knows them: from what passes, how far each end has come.

use std::net::SocketAddr;

use crate::{
    craft::segment::{Made, Segment, flags},
    wire::craft,
};

/// A segment farther from the last one than any window is not the connection's own.
const NEAR: u32 = 1 << 28;
/// Farther than any window, and still "after" in the arithmetic of sequence numbers.
const FAR: u32 = 1 << 30;
/// A stray handshake begins this far before the real one's numbers: what really passes is far ahead of it.
const STRAY: u32 = 1 << 29;

/// A connection.
#[derive(Debug)]
pub(crate) struct Flow {
    client: SocketAddr,
    server: SocketAddr,
    /// The sequence number that follows what each end is known to have sent; `None` until it is known.
    client_next: Option<u32>,
    server_next: Option<u32>,
    over: bool,
}

impl Flow {
    /// A connection of which nothing was seen.
    pub(crate) fn new(client: SocketAddr, server: SocketAddr) -> Self {
        Self {
            client,
            server,
            client_next: None,
            server_next: None,
            over: false,
        }
    }

    /// Client and server.
    pub(crate) fn ends(&self) -> (SocketAddr, SocketAddr) {
        (self.client, self.server)
    }

    /// Takes note of a segment of either end.
    pub(crate) fn see(&mut self, segment: &Segment<'_>) {
        let by_client = segment.from == self.client;
        if by_client && segment.has(flags::SYN) {
            *self = Self::new(self.client, self.server);
        }
        let (own, other) = if by_client {
            (&mut self.client_next, &mut self.server_next)
        } else {
            (&mut self.server_next, &mut self.client_next)
        };
        // A reset with any other number is not believed by its receiver (RFC 5961).
        let resets = segment.has(flags::RST) && own.is_none_or(|next| next == segment.seq);
        self.over |= resets || segment.has(flags::FIN);
        advance(own, segment.seq.wrapping_add(segment.length));
        if segment.has(flags::ACK) {
            advance(other, segment.ack);
        }
    }

    /// What is sent into it now: nothing when it is over, or not yet known from both ends.
    pub(crate) fn craft(&self, what: craft::Segment) -> Vec<Made> {
        let (Some(client), Some(server), false) = (self.client_next, self.server_next, self.over)
        else {
            return Vec::new();
        };
        let answer = (self.server, self.client);
        match what {
            craft::Segment::OutOfWindow => {
                let numbers = (server.wrapping_add(FAR), client);
                let data = b"chainbreak";
                vec![Made::new(answer, numbers, flags::PSH | flags::ACK, data)]
            }
            craft::Segment::Reset => {
                let numbers = (server, client);
                vec![Made::new(answer, numbers, flags::RST | flags::ACK, &[])]
            }
            craft::Segment::StrayHandshake => {
                let (client, server) = (client.wrapping_sub(STRAY), server.wrapping_sub(STRAY));
                let ask = (self.client, self.server);
                let syn = Made::new(ask, (client, 0), flags::SYN, &[]);
                let numbers = (server, client.wrapping_add(1));
                let syn_ack = Made::new(answer, numbers, flags::SYN | flags::ACK, &[]);
                vec![syn.spoil(), syn_ack.spoil()]
            }
        }
    }
}

/// Sequence numbers only grow: what is seen late or twice moves nothing back.
fn advance(next: &mut Option<u32>, seen: u32) {
    match next {
        Some(next) if seen.wrapping_sub(*next) < NEAR => *next = seen,
        Some(_) => {}
        None => *next = Some(seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "10.0.0.1:4000";
    const SERVER: &str = "10.0.0.2:80";

    fn passes(flow: &mut Flow, from: &str, numbers: (u32, u32), flags: u8, data: &[u8]) {
        let to = if from == CLIENT { SERVER } else { CLIENT };
        let ends = (from.parse().unwrap(), to.parse().unwrap());
        let packet = Made::new(ends, numbers, flags, data).packet();
        flow.see(&Segment::read(&packet).unwrap());
    }

    fn flow() -> Flow {
        Flow::new(CLIENT.parse().unwrap(), SERVER.parse().unwrap())
    }

    fn crafted(flow: &Flow, what: craft::Segment) -> Vec<(u32, u32, u8)> {
        let read = |made: &Made| {
            let packet = made.packet();
            let segment = Segment::read(&packet).unwrap();
            (segment.seq, segment.ack, segment.flags)
        };
        flow.craft(what).iter().map(read).collect()
    }

    #[test]
    fn crafted_segments_follow_what_both_ends_have_sent() {
        let mut flow = flow();
        passes(&mut flow, CLIENT, (u32::MAX - 4, 0), flags::SYN, &[]);
        assert!(crafted(&flow, craft::Segment::Reset).is_empty());
        passes(
            &mut flow,
            SERVER,
            (100, u32::MAX - 3),
            flags::SYN | flags::ACK,
            &[],
        );
        // The client's numbers begin again on their way.
        passes(
            &mut flow,
            CLIENT,
            (u32::MAX - 3, 101),
            flags::ACK,
            b"request",
        );
        passes(&mut flow, SERVER, (101, 3), flags::ACK, b"answer");
        let reset = (107, 3, flags::RST | flags::ACK);
        assert_eq!(crafted(&flow, craft::Segment::Reset), [reset]);
        // Neither a segment seen twice nor one out of any window moves it.
        passes(
            &mut flow,
            CLIENT,
            (u32::MAX - 3, 101),
            flags::ACK,
            b"request",
        );
        passes(&mut flow, SERVER, (107 + FAR, 3), flags::ACK, b"answer");
        assert_eq!(crafted(&flow, craft::Segment::Reset), [reset]);
        let far = (107 + FAR, 3, flags::PSH | flags::ACK);
        assert_eq!(crafted(&flow, craft::Segment::OutOfWindow), [far]);
        let syn = (3_u32.wrapping_sub(STRAY), 0, flags::SYN);
        let syn_ack = (
            107_u32.wrapping_sub(STRAY),
            syn.0 + 1,
            flags::SYN | flags::ACK,
        );
        assert_eq!(
            crafted(&flow, craft::Segment::StrayHandshake),
            [syn, syn_ack]
        );
    }

    #[test]
    fn a_reset_that_its_receiver_does_not_believe_ends_nothing() {
        let mut flow = flow();
        passes(&mut flow, CLIENT, (7, 9), flags::ACK, b"request");
        passes(&mut flow, CLIENT, (7, 0), flags::RST, &[]);
        assert_eq!(crafted(&flow, craft::Segment::Reset).len(), 1);
        passes(&mut flow, CLIENT, (14, 0), flags::RST, &[]);
        assert!(crafted(&flow, craft::Segment::Reset).is_empty());
    }

    #[test]
    fn nothing_is_sent_into_a_connection_that_is_over_until_its_addresses_are_used_again() {
        for end in [flags::RST, flags::FIN] {
            let mut flow = flow();
            passes(&mut flow, CLIENT, (7, 9), flags::ACK, &[]);
            assert_eq!(crafted(&flow, craft::Segment::Reset).len(), 1);
            passes(&mut flow, CLIENT, (7, 9), end | flags::ACK, &[]);
            passes(&mut flow, SERVER, (9, 8), flags::ACK, &[]);
            assert!(crafted(&flow, craft::Segment::Reset).is_empty());
            passes(&mut flow, CLIENT, (5_000_000, 0), flags::SYN, &[]);
            passes(
                &mut flow,
                SERVER,
                (50, 5_000_001),
                flags::SYN | flags::ACK,
                &[],
            );
            let reset = (51, 5_000_001, flags::RST | flags::ACK);
            assert_eq!(crafted(&flow, craft::Segment::Reset), [reset]);
        }
    }
}
