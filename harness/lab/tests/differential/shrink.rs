//! From a sequence that shows a difference to a small one that still does.
//!
//! First operations go, in halves, quarters and so on (delta debugging), then parts of the objects that are
//! left. Any operation can go: puts create or replace, and what is not there need not be deleted.

use serde_json::Value;

use crate::sequence::{Operation, Sequence};

/// Parts of objects that can be left out or emptied.
const PARTS: [&str; 13] = [
    "/metadata/labels",
    "/metadata/annotations",
    "/spec/sessionAffinity",
    "/spec/sessionAffinityConfig",
    "/spec/externalTrafficPolicy",
    "/spec/healthCheckNodePort",
    "/spec/externalIPs",
    "/spec/publishNotReadyAddresses",
    "/spec/internalTrafficPolicy",
    "/spec/loadBalancerSourceRanges",
    "/status",
    "/endpoints",
    "/ports",
];
/// Lists of which single elements can be left out.
const LISTS: [&str; 6] = [
    "/spec/ports",
    "/spec/externalIPs",
    "/spec/loadBalancerSourceRanges",
    "/status/loadBalancer/ingress",
    "/endpoints",
    "/ports",
];

/// Shrinks as far as `differs` still says so. It is asked some hundred times at most.
pub(crate) async fn shrink(
    sequence: Sequence,
    differs: impl AsyncFn(&Sequence) -> bool,
) -> Sequence {
    let mut smallest = fewer_operations(sequence, &differs).await;
    while let Some(smaller) = smaller_object(&smallest, &differs).await {
        smallest = smaller;
    }
    smallest
}

async fn fewer_operations(
    mut sequence: Sequence,
    differs: &impl AsyncFn(&Sequence) -> bool,
) -> Sequence {
    let mut size = sequence.operations().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        while start < sequence.operations() {
            let candidate = without(&sequence, start..start + size);
            if differs(&candidate).await {
                sequence = candidate;
            } else {
                start += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    sequence
}

/// Rounds that nothing is left of go, too, but for the first, which is the start.
fn without(sequence: &Sequence, gone: std::ops::Range<usize>) -> Sequence {
    let mut number = 0;
    let rounds = sequence.rounds.iter().map(|round| {
        let mut kept = Vec::new();
        for operation in round {
            if !gone.contains(&number) {
                kept.push(operation.clone());
            }
            number += 1;
        }
        kept
    });
    let rounds: Vec<Vec<Operation>> = rounds.collect();
    let mut rounds = rounds.into_iter();
    let first = rounds.next().unwrap_or_default();
    let others = rounds.filter(|round| !round.is_empty());
    Sequence {
        rounds: std::iter::once(first).chain(others).collect(),
        ..sequence.clone()
    }
}

async fn smaller_object(
    sequence: &Sequence,
    differs: &impl AsyncFn(&Sequence) -> bool,
) -> Option<Sequence> {
    for (at, round) in sequence.rounds.iter().enumerate() {
        for (index, operation) in round.iter().enumerate() {
            let Operation::Put(object) = operation else {
                continue;
            };
            for smaller in smaller(object) {
                let mut candidate = sequence.clone();
                candidate.rounds[at][index] = Operation::Put(smaller);
                if differs(&candidate).await {
                    return Some(candidate);
                }
            }
        }
    }
    None
}

/// Every object with one part less.
fn smaller(object: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    for part in PARTS {
        let (parent, key) = part.rsplit_once('/').expect("a pointer has a slash");
        let mut copy = object.clone();
        let removed = copy
            .pointer_mut(parent)
            .and_then(Value::as_object_mut)
            .and_then(|parent| parent.remove(key));
        if removed.is_some() {
            found.push(copy);
        }
    }
    for list in LISTS {
        let length = object
            .pointer(list)
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        for index in 0..length {
            let mut copy = object.clone();
            if let Some(list) = copy.pointer_mut(list).and_then(Value::as_array_mut) {
                list.remove(index);
                found.push(copy);
            }
        }
    }
    found
}
