//! Whether two kube-proxies left the same rules.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::case::{IpFamily, ProxyMode};
use chainbreak_netfilter::NetfilterError;
use chainbreak_recordings::{BY_CIDRS, Mode, Spelling, Standing};

/// The rules of each family, as they are listed.
pub(crate) type Rules = BTreeMap<IpFamily, String>;

/// A line for every difference: what only the left one has, and what only the right one has.
pub(crate) fn differences(mode: ProxyMode, left: &Rules, right: &Rules) -> Vec<String> {
    let families: BTreeSet<IpFamily> = left.keys().chain(right.keys()).copied().collect();
    let of_each = families.into_iter().flat_map(|family| {
        let sides = [left, right].map(|rules| standing(mode, rules.get_key_value(&family)));
        match sides {
            [Ok(left), Ok(right)] => of_family(mode, left, right),
            [Err(error), _] | [_, Err(error)] => vec![format!("unreadable: {error}")],
        }
    });
    of_each.collect()
}

fn of_family(mode: ProxyMode, mut left: Standing, mut right: Standing) -> Vec<String> {
    // Which family's first sync knows the networks is chance, which recordings hold the models to.
    if left.has_line_with(BY_CIDRS) != right.has_line_with(BY_CIDRS) {
        for side in [&mut left, &mut right] {
            side.drop_lines_with(BY_CIDRS);
        }
    }
    let mut spelling = Spelling::default();
    let (names, sides) = (["left", "right"], [&left, &right]);
    chainbreak_recordings::differences(as_recorded(mode), &mut spelling, names, sides)
}

/// What stands there, of all families.
pub(crate) fn standing<'a>(
    mode: ProxyMode,
    rules: impl IntoIterator<Item = (&'a IpFamily, &'a String)>,
) -> Result<Standing, NetfilterError> {
    let mut standing = Standing::default();
    for (family, text) in rules {
        match (as_recorded(mode), family) {
            (Mode::Nftables, _) => standing.add_listing(text)?,
            (Mode::Iptables, IpFamily::V4) => standing.add_save("ip", text)?,
            (Mode::Iptables, IpFamily::V6) => standing.add_save("ip6", text)?,
        }
    }
    Ok(standing)
}

/// The mode, as recordings have it.
pub(crate) fn as_recorded(mode: ProxyMode) -> Mode {
    match mode {
        ProxyMode::Iptables => Mode::Iptables,
        ProxyMode::Nftables => Mode::Nftables,
        ProxyMode::Ipvs => unreachable!("no model plays it"),
    }
}
