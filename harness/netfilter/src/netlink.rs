//! Netfilter's netlink messages, as far as a kube-proxy without programs sends them: conntrack's table asked for and
//! entries deleted (`nfnetlink_conntrack.h`), counters looked for and made (`nfnetlink_acct.h`). Pure: what is sent
//! and what was heard is bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::conntrack::{Flow, Tuple};

const HEADER: usize = 16;
/// Family, version and resource of netfilter's messages.
const NETFILTER_HEADER: usize = 4;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
/// Set on the messages of a listing that a change interrupted.
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CREATE: u16 = 0x400;
const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;

const CTNETLINK: u16 = 1 << 8;
const CT_NEW: u16 = CTNETLINK;
const CT_GET: u16 = CTNETLINK | 1;
const CT_DELETE: u16 = CTNETLINK | 2;
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const TIMEOUT: u16 = 7;
const MARK: u16 = 8;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const IP_V4_SRC: u16 = 1;
const IP_V4_DST: u16 = 2;
const IP_V6_SRC: u16 = 3;
const IP_V6_DST: u16 = 4;
const PROTO_NUM: u16 = 1;
const PROTO_SRC_PORT: u16 = 2;
const PROTO_DST_PORT: u16 = 3;
const IPS_SEEN_REPLY: u32 = 1 << 1;
const IPS_ASSURED: u32 = 1 << 2;

const ACCT: u16 = 7 << 8;
const ACCT_NEW: u16 = ACCT;
const ACCT_GET: u16 = ACCT | 1;
const ACCT_NAME: u16 = 1;

const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Names of protocols that conntrack's listings use.
const PROTOCOLS: [(u8, &str); 5] = [
    (1, "icmp"),
    (6, "tcp"),
    (17, "udp"),
    (58, "icmpv6"),
    (132, "sctp"),
];

/// Which connections are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Asks for every connection of that version.
pub fn connections(version: Version) -> Vec<u8> {
    let family = match version {
        Version::V4 => AF_INET,
        Version::V6 => AF_INET6,
    };
    request(CT_GET, NLM_F_DUMP, family, &[])
}

/// Deletes one connection, by its original direction. `None` for a protocol that has no number here.
pub fn deletion(flow: &Flow) -> Option<Vec<u8>> {
    let number = PROTOCOLS.iter().find(|(_, name)| *name == flow.protocol)?.0;
    let (family, addresses) = addresses(&flow.original)?;
    let port = |kind, port: Option<u16>| {
        let bytes = port.map(|port| attribute(kind, &port.to_be_bytes()));
        bytes.unwrap_or_default()
    };
    let ports = [
        attribute(PROTO_NUM, &[number]),
        port(PROTO_SRC_PORT, flow.original.sport),
        port(PROTO_DST_PORT, flow.original.dport),
    ];
    let tuple = [
        attribute(TUPLE_IP | NLA_F_NESTED, &addresses),
        attribute(TUPLE_PROTO | NLA_F_NESTED, &ports.concat()),
    ];
    let tuple = attribute(TUPLE_ORIG | NLA_F_NESTED, &tuple.concat());
    Some(request(CT_DELETE, NLM_F_ACK, family, &tuple))
}

/// Asks for a counter of that name.
pub fn counter(name: &str) -> Vec<u8> {
    request(ACCT_GET, NLM_F_ACK, AF_UNSPEC, &name_attribute(name))
}

/// Makes a counter of that name.
pub fn new_counter(name: &str) -> Vec<u8> {
    let flags = NLM_F_ACK | NLM_F_CREATE;
    request(ACCT_NEW, flags, AF_UNSPEC, &name_attribute(name))
}

/// One message of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// A connection of a listing.
    Flow(Box<Flow>),
    /// Something that is not asked for here, such as a counter's content.
    Other,
    /// The end: 0, or the number of an error.
    End(i32),
}

/// The messages in what was heard, and whether a change interrupted the listing.
pub fn answers(heard: &[u8]) -> (Vec<Answer>, bool) {
    let (mut answers, mut interrupted) = (Vec::new(), false);
    let mut rest = heard;
    while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
        let [a, b, c, d, low, high, flags_low, flags_high, ..] = *header;
        let length = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let body = rest.get(HEADER..length).unwrap_or_default();
        let flags = u16::from_ne_bytes([flags_low, flags_high]);
        interrupted |= flags & NLM_F_DUMP_INTR != 0;
        answers.push(match u16::from_ne_bytes([low, high]) {
            NLMSG_ERROR => Answer::End(errno(body)),
            NLMSG_DONE => Answer::End(0),
            CT_NEW => read_flow(body.get(NETFILTER_HEADER..).unwrap_or_default())
                .map_or(Answer::Other, |flow| Answer::Flow(Box::new(flow))),
            _ => Answer::Other,
        });
        let next = length.max(HEADER).next_multiple_of(4);
        rest = rest.get(next..).unwrap_or_default();
    }
    (answers, interrupted)
}

/// It is told as a negative number.
fn errno(body: &[u8]) -> i32 {
    let told = body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
    told.map_or(0, i32::saturating_neg)
}

fn read_flow(body: &[u8]) -> Option<Flow> {
    let tuple = |kind| read_tuple(find(body, kind)?);
    let (protocol, original) = tuple(TUPLE_ORIG)?;
    let (_, reply) = tuple(TUPLE_REPLY)?;
    let number = |kind| Some(u32::from_be_bytes(*find(body, kind)?.first_chunk()?));
    let status = number(STATUS).unwrap_or(0);
    let name = PROTOCOLS.iter().find(|(number, _)| *number == protocol);
    Some(Flow {
        protocol: name.map_or_else(|| protocol.to_string(), |(_, name)| (*name).to_owned()),
        timeout: number(TIMEOUT).map(u64::from),
        state: None,
        original,
        reply,
        unreplied: status & IPS_SEEN_REPLY == 0,
        assured: status & IPS_ASSURED != 0,
        mark: number(MARK).unwrap_or(0),
    })
}

fn read_tuple(body: &[u8]) -> Option<(u8, Tuple)> {
    let (ip, proto) = (find(body, TUPLE_IP)?, find(body, TUPLE_PROTO)?);
    let address = |v4, v6| {
        let short = find(ip, v4).and_then(|it| it.first_chunk::<4>());
        let long = || find(ip, v6).and_then(|it| it.first_chunk::<16>());
        match short {
            Some(bytes) => Some(IpAddr::from(Ipv4Addr::from(*bytes))),
            None => long().map(|bytes| IpAddr::from(Ipv6Addr::from(*bytes))),
        }
    };
    let port = |kind| Some(u16::from_be_bytes(*find(proto, kind)?.first_chunk()?));
    let tuple = Tuple {
        src: address(IP_V4_SRC, IP_V6_SRC)?,
        dst: address(IP_V4_DST, IP_V6_DST)?,
        sport: port(PROTO_SRC_PORT),
        dport: port(PROTO_DST_PORT),
        // kube-proxy asks for nothing of ICMP.
        echo: None,
    };
    Some((*find(proto, PROTO_NUM)?.first()?, tuple))
}

/// The value of the first attribute of that kind.
fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut rest = attributes;
    while let Some((&[low, high, kind_low, kind_high], _)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let found = u16::from_ne_bytes([kind_low, kind_high]) & NLA_TYPE_MASK;
        if found == kind {
            return rest.get(4..length);
        }
        rest = rest
            .get(length.max(4).next_multiple_of(4)..)
            .unwrap_or_default();
    }
    None
}

fn addresses(tuple: &Tuple) -> Option<(u8, Vec<u8>)> {
    match (tuple.src, tuple.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let both = [
                attribute(IP_V4_SRC, &src.octets()),
                attribute(IP_V4_DST, &dst.octets()),
            ];
            Some((AF_INET, both.concat()))
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let both = [
                attribute(IP_V6_SRC, &src.octets()),
                attribute(IP_V6_DST, &dst.octets()),
            ];
            Some((AF_INET6, both.concat()))
        }
        _ => None,
    }
}

fn name_attribute(name: &str) -> Vec<u8> {
    attribute(ACCT_NAME, &[name.as_bytes(), b"\0"].concat())
}

fn request(kind: u16, flags: u16, family: u8, attributes: &[u8]) -> Vec<u8> {
    let length = HEADER + NETFILTER_HEADER + attributes.len();
    let mut message = Vec::with_capacity(length);
    message.extend(u32::try_from(length).unwrap_or(0).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    // Sequence and port: one request at a time is under way on a socket.
    message.extend([0; 8]);
    message.extend([family, 0, 0, 0]);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(from: &str, to: &str) -> Flow {
        let line = format!(
            "udp 17 29 src={from} dst={to} sport=4000 dport=53 src={to} dst={from} sport=53 \
             dport=4000 [ASSURED] mark=0 use=1"
        );
        Flow::parse(&line).unwrap()
    }

    /// As the kernel lists it: the tuple of the deletion and its mirror, timeout and status.
    fn listed(flow: &Flow) -> Vec<u8> {
        let deletion = deletion(flow).unwrap();
        let original = &deletion[HEADER + NETFILTER_HEADER..];
        let mirrored = Flow {
            original: flow.reply,
            ..flow.clone()
        };
        let reply = super::deletion(&mirrored).unwrap();
        let mut reply = reply[HEADER + NETFILTER_HEADER..].to_vec();
        reply[2..4].copy_from_slice(&(TUPLE_REPLY | NLA_F_NESTED).to_ne_bytes());
        let status = attribute(STATUS, &(IPS_SEEN_REPLY | IPS_ASSURED).to_be_bytes());
        let timeout = attribute(TIMEOUT, &29_u32.to_be_bytes());
        let attributes = [original, &reply, &status, &timeout].concat();
        request(CT_NEW, 0, AF_INET, &attributes)
    }

    #[test]
    fn a_listed_connection_is_the_one_that_its_deletion_names() {
        for flow in [
            flow("10.20.9.1", "10.96.0.10"),
            flow("fd00:20::1", "fd00:96::a"),
        ] {
            let heard = [listed(&flow), request(NLMSG_DONE, 0, 0, &[])].concat();
            let (answers, interrupted) = answers(&heard);
            let expected = [Answer::Flow(Box::new(flow)), Answer::End(0)];
            assert_eq!((answers.as_slice(), interrupted), (&expected[..], false));
        }
    }

    #[test]
    fn errors_end_an_answer_and_a_listing_that_changed_says_so() {
        let mut error = request(NLMSG_ERROR, 0, 0, &[]);
        error[HEADER..].copy_from_slice(&(-2_i32).to_ne_bytes());
        assert_eq!(answers(&error).0, [Answer::End(2)]);
        let done = request(NLMSG_DONE, NLM_F_DUMP_INTR, 0, &[]);
        assert_eq!(answers(&done), (vec![Answer::End(0)], true));
        assert_eq!(answers(&done[..7]), (vec![], false));
    }

    #[test]
    fn an_error_of_any_number_is_an_end() {
        for (told, number) in [(i32::MIN, i32::MAX), (i32::MAX, -i32::MAX), (0, 0)] {
            let mut error = request(NLMSG_ERROR, 0, 0, &[]);
            error[HEADER..].copy_from_slice(&told.to_ne_bytes());
            assert_eq!(answers(&error).0, [Answer::End(number)]);
        }
    }

    #[test]
    fn a_counters_name_ends_with_a_zero() {
        let request = counter("packets");
        assert_eq!(&request[HEADER + NETFILTER_HEADER + 4..], b"packets\0");
    }
}
