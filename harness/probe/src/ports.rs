//! Client ports, each the one after its last.
//!
//! Left to itself the kernel picks ports from a counter that all network namespaces of a machine share, for targets whose
//! addresses are alike: worlds beside this one take their part of it, and a port comes back while conntrack still has the entry
//! of a connection that nobody answered (`nf_conntrack_tcp_timeout_syn_sent`, 120 s), whose server may be gone. Seen with
//! Linux 6.18 and six worlds: one request of twenty went that way after an outage.

use std::{fs::File, ops::RangeInclusive, os::unix::fs::FileExt};

/// The range of the network namespace of whoever opens it.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// The ports of one order.
#[derive(Debug)]
pub(crate) struct Ports {
    number: u16,
    /// Read before each port, for a scenario may change it.
    file: Option<File>,
    range: Option<RangeInclusive<u16>>,
    next: u16,
}

impl Ports {
    /// Of the order with that number among those that a place may have: they begin far from each other.
    pub(crate) fn new(number: u16) -> Self {
        Self {
            number,
            file: File::open(RANGE).ok(),
            range: None,
            next: 0,
        }
    }

    /// The next one. 0, the kernel's choice, where the range is not known.
    pub(crate) fn take(&mut self) -> u16 {
        let mut text = [0; 64];
        let read = self.file.as_ref().map(|file| file.read_at(&mut text, 0));
        let length = read.and_then(Result::ok).unwrap_or_default();
        let text = text.get(..length).unwrap_or_default();
        self.take_of(std::str::from_utf8(text).ok().and_then(range))
    }

    fn take_of(&mut self, range: Option<RangeInclusive<u16>>) -> u16 {
        if self.range != range {
            self.next = range.as_ref().map_or(0, |range| first(range, self.number));
            self.range = range;
        }
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

/// Multiples of the golden section never come close to each other.
fn first(range: &RangeInclusive<u16>, number: u16) -> u16 {
    let length = u64::from(range.end() - range.start()) + 1;
    let ahead = u64::from(number) * length * 618 / 1000 % length;
    range.start() + u16::try_from(ahead).expect("shorter than the range")
}

/// What the file says: `32768`, a tab, `60999`.
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
        let mut ports = Ports::new(1);
        let mut take = || ports.take_of(range("40000\t40003\n"));
        assert_eq!(
            [(); 5].map(|()| take()),
            [40002, 40003, 40000, 40001, 40002]
        );
    }

    #[test]
    fn a_range_that_changes_is_kept_to_from_the_next_port_on() {
        let mut ports = Ports::new(0);
        let mut take = |text| ports.take_of(range(text));
        assert_eq!([take("40000 40003"), take("40000 40003")], [40000, 40001]);
        assert_eq!([take("20000 24999"), take("20000 24999")], [20000, 20001]);
    }

    #[test]
    fn orders_of_one_place_begin_far_from_each_other() {
        let of = |number| Ports::new(number).take_of(range("32768 60999"));
        let mut first: Vec<u16> = (0..8).map(of).collect();
        first.sort_unstable();
        assert_eq!(first.first(), Some(&32768));
        let nearest = first.windows(2).map(|pair| pair[1] - pair[0]).min();
        assert!(nearest > Some(2000), "{first:?}");
    }

    #[test]
    fn the_kernel_chooses_where_the_range_is_not_known() {
        for text in ["", "1", "a b", "5 4", "0 0"] {
            assert_eq!(Ports::new(3).take_of(range(text)), 0, "{text:?}");
        }
    }
}
