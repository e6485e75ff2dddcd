//! Client ports, each the one after its last.
//!
//! Left to itself the kernel picks ports from a counter that all network namespaces of a machine share, for targets whose
//! addresses are alike: worlds beside this one take their part of it, and a port comes back while conntrack still has the entry
//! of a connection that nobody answered (`nf_conntrack_tcp_timeout_syn_sent`, 120 s), whose server may be gone. Seen with
//! Linux 6.18 and six worlds: one request of twenty went that way after an outage.

use std::{fs, ops::RangeInclusive};

/// The range of the network namespace of whoever reads it.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// The ports of one order.
#[derive(Debug)]
pub(crate) struct Ports {
    range: Option<RangeInclusive<u16>>,
    next: u16,
}

impl Ports {
    /// Of the order with that number among those that a place may have: they begin far from each other.
    pub(crate) fn new(number: u16) -> Self {
        let text = fs::read_to_string(RANGE).unwrap_or_default();
        Self::within(range(&text), number)
    }

    fn within(range: Option<RangeInclusive<u16>>, number: u16) -> Self {
        let next = range.as_ref().map_or(0, |range| {
            // Multiples of the golden section never come close to each other.
            let length = u32::from(range.end() - range.start()) + 1;
            let ahead = u64::from(number) * u64::from(length) * 618 / 1000 % u64::from(length);
            range.start() + u16::try_from(ahead).expect("shorter than the range")
        });
        Self { range, next }
    }

    /// The next one. 0, the kernel's choice, where the range is not known.
    pub(crate) fn take(&mut self) -> u16 {
        let Some(range) = &self.range else {
            return 0;
        };
        let port = self.next;
        self.next = if port == *range.end() {
            *range.start()
        } else {
            port + 1
        };
        port
    }
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let (Some(Ok(low)), Some(Ok(high))) = (numbers.next(), numbers.next()) else {
        return None;
    };
    (0 < low && low <= high).then_some(low..=high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_comes_once_before_one_comes_again() {
        let mut ports = Ports::within(range("40000\t40003\n"), 1);
        let taken: Vec<u16> = (0..5).map(|_| ports.take()).collect();
        assert_eq!(taken, [40002, 40003, 40000, 40001, 40002]);
    }

    #[test]
    fn orders_of_one_place_begin_far_from_each_other() {
        let mut first: Vec<u16> = (0..8)
            .map(|number| Ports::within(range("32768 60999"), number).take())
            .collect();
        first.sort_unstable();
        assert_eq!(first.first(), Some(&32768));
        let nearest = first.windows(2).map(|pair| pair[1] - pair[0]).min();
        assert!(nearest > Some(2000), "{first:?}");
    }

    #[test]
    fn the_kernel_chooses_where_the_range_is_not_known() {
        for text in ["", "1", "a b", "5 4", "0 0"] {
            assert_eq!(Ports::within(range(text), 3).take(), 0, "{text:?}");
        }
    }
}
