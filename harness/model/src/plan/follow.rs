//! What a scenario says of its default family holds of the cell's: rules that promises ask for and
//! faults change, where the matrix gives the cluster another default.

use crate::case::{Claim, Counter, Family, Fault, IpFamily, Promise, Step};

/// The tables of a family.
pub(super) fn tables(family: IpFamily) -> Family {
    match family {
        IpFamily::V4 => Family::Ip,
        IpFamily::V6 => Family::Ip6,
    }
}

/// Promises and steps that speak of `before` speak of `after`.
pub(super) fn follow<'a>(
    (before, after): (IpFamily, IpFamily),
    promises: impl Iterator<Item = &'a mut Promise>,
    timeline: &mut [Step],
) {
    let of_promises = promises.filter_map(|promise| match &mut promise.claim {
        Claim::HasElement { element, .. } => Some(&mut element.family),
        Claim::HasRule { rule, .. }
        | Claim::Counter {
            counter: Counter::Rule(rule),
            ..
        } => Some(&mut rule.family),
        _ => None,
    });
    let of_steps = timeline.iter_mut().filter_map(|step| match step {
        Step::Fault {
            fault: Fault::Flush { rules, .. } | Fault::DeleteRule { rules, .. },
            ..
        } => Some(&mut rules.family),
        _ => None,
    });
    for family in of_promises.chain(of_steps) {
        if *family == tables(before) {
            *family = tables(after);
        }
    }
}
