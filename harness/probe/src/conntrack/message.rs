//! Netlink's messages about connections (`linux/netlink.h`, `linux/netfilter/nfnetlink_conntrack.h`).

use std::net::Ipv4Addr;

use nix::errno::Errno;

use crate::wire::conntrack::{Fill, MARK};

/// Addresses and ports that entries can have: 16 bits of an address, 14 of a port.
const DISTINCT: u64 = 1 << 30;

const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLA_F_NESTED: u16 = 0x8000;
/// Conntrack's messages among netfilter's, in the upper byte.
const CTNETLINK: u16 = 1 << 8;
const NEW: u16 = CTNETLINK;
const DELETE: u16 = CTNETLINK | 2;

const TUPLE_ORIG: u16 = NLA_F_NESTED | 1;
const TUPLE_REPLY: u16 = NLA_F_NESTED | 2;
const STATUS: u16 = 3;
const PROTOINFO: u16 = NLA_F_NESTED | 4;
const TIMEOUT: u16 = 7;
const CT_MARK: u16 = 8;
const CT_MARK_MASK: u16 = 21;
const TUPLE_IP: u16 = NLA_F_NESTED | 1;
const TUPLE_PROTO: u16 = NLA_F_NESTED | 2;
const IP_V4_SRC: u16 = 1;
const IP_V4_DST: u16 = 2;
const PROTO_NUM: u16 = 1;
const PROTO_SRC_PORT: u16 = 2;
const PROTO_DST_PORT: u16 = 3;
const PROTOINFO_TCP: u16 = NLA_F_NESTED | 1;
const TCP_STATE: u16 = 1;

const TCP: u8 = 6;
const ESTABLISHED: u8 = 3;
/// `IPS_SEEN_REPLY`, `IPS_ASSURED` and `IPS_CONFIRMED`, which every entry of the table is.
const ASSURED: u32 = 1 << 1 | 1 << 2 | 1 << 3;

/// The request for one entry. Different numbers are different connections.
pub(super) fn made(order: &Fill, number: u32) -> Vec<u8> {
    // An odd factor permutes the numbers, and the seed turns them round.
    let turned = u64::from(number)
        .wrapping_mul(0x9e37_79b1)
        .wrapping_add(order.seed.wrapping_mul(0x85eb_ca6b));
    let bits = u32::try_from(turned % DISTINCT).unwrap_or(0);
    let [_, _, high, low] = (bits >> 14).to_be_bytes();
    let port = u16::try_from(1024 + (bits & 0x3fff)).unwrap_or(0);
    let client = (Ipv4Addr::new(198, 18, high, low), port);
    let server = (Ipv4Addr::new(198, 19, high, low), 80);
    let state = attribute(TCP_STATE, &[ESTABLISHED]);
    let attributes = [
        attribute(TUPLE_ORIG, &tuple(client, server)),
        attribute(TUPLE_REPLY, &tuple(server, client)),
        attribute(STATUS, &ASSURED.to_be_bytes()),
        attribute(PROTOINFO, &attribute(PROTOINFO_TCP, &state)),
        attribute(TIMEOUT, &order.timeout_s.to_be_bytes()),
        attribute(CT_MARK, &MARK.to_be_bytes()),
    ];
    request(NEW, NLM_F_CREATE | NLM_F_EXCL, &attributes.concat())
}

/// The request that deletes all of them: the kernel takes a mark instead of an entry since Linux 4.0.
pub(super) fn none_left() -> Vec<u8> {
    let mark = attribute(CT_MARK, &MARK.to_be_bytes());
    let mask = attribute(CT_MARK_MASK, &u32::MAX.to_be_bytes());
    request(DELETE, 0, &[mark, mask].concat())
}

/// Which requests failed, and how.
pub(super) fn failures(answers: &[u8]) -> Vec<Errno> {
    let mut failures = Vec::new();
    let mut rest = answers;
    while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
        let [a, b, c, d, low, high, ..] = *header;
        let length = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let error = rest.get(HEADER..HEADER + 4);
        let error = error.and_then(|bytes| Some(i32::from_ne_bytes(bytes.try_into().ok()?)));
        if let (NLMSG_ERROR, Some(error @ ..=-1)) = (u16::from_ne_bytes([low, high]), error) {
            failures.push(Errno::from_raw(-error));
        }
        let next = length.max(HEADER).next_multiple_of(4);
        rest = rest.get(next..).unwrap_or_default();
    }
    failures
}

fn request(kind: u16, flags: u16, attributes: &[u8]) -> Vec<u8> {
    // Family, version and resource of netfilter's messages.
    let family = [u8::try_from(nix::libc::AF_INET).unwrap_or(0), 0, 0, 0];
    let length = u32::try_from(HEADER + family.len() + attributes.len()).unwrap_or(0);
    let mut message = Vec::with_capacity(HEADER + family.len() + attributes.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    // Sequence and port: nobody needs to tell the answers apart.
    message.extend([0; 8]);
    message.extend(family);
    message.extend(attributes);
    message
}

/// An attribute with its length and padding.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(4 + value.len().next_multiple_of(4));
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// One direction of a connection.
fn tuple(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    let addresses = [
        attribute(IP_V4_SRC, &from.0.octets()),
        attribute(IP_V4_DST, &to.0.octets()),
    ];
    let ports = [
        attribute(PROTO_NUM, &[TCP]),
        attribute(PROTO_SRC_PORT, &from.1.to_be_bytes()),
        attribute(PROTO_DST_PORT, &to.1.to_be_bytes()),
    ];
    [
        attribute(TUPLE_IP, &addresses.concat()),
        attribute(TUPLE_PROTO, &ports.concat()),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn of(seed: u64) -> BTreeSet<Vec<u8>> {
        let order = Fill {
            entries: 5000,
            timeout_s: 60,
            seed,
        };
        (0..order.entries).map(|it| made(&order, it)).collect()
    }

    #[test]
    fn no_two_entries_are_the_same_and_the_seed_chooses_them() {
        assert_eq!(of(1).len(), 5000);
        assert_eq!(of(1), of(1));
        assert!(of(1).is_disjoint(&of(2)));
    }

    #[test]
    fn failures_are_read_from_answers_and_successes_are_none() {
        let answer = |error: i32| {
            let mut bytes = request(NLMSG_ERROR, 0, &[]);
            bytes[HEADER..].copy_from_slice(&error.to_ne_bytes());
            bytes
        };
        let answers = [answer(-12), answer(0), answer(-17)].concat();
        assert_eq!(failures(&answers), [Errno::ENOMEM, Errno::EEXIST]);
        assert_eq!(failures(&answers[..7]), []);
    }
}
