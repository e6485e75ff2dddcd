//! Random worlds and what happens to them, by seed.
//!
//! What kube-proxy itself leaves to chance is avoided: an endpoint that is in two slices at once is the
//! same in both, for the order in which slices are read is that of a Go map.

use std::collections::BTreeMap;

use chainbreak_model::case::ProxyMode;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::{
    families,
    harms::{self, CANARIES},
    sequence::{Harm, Operation, Sequence},
    services::{Kind, service, slice_names, slices},
    stage::{IptablesBackend, Stage},
};

/// How many services a world has at most.
const SERVICES: u8 = 5;
/// Rounds after the start.
const ROUNDS: usize = 3;

/// The sequence of a seed. In iptables mode one in eight is nft's, whose commands take several times as
/// long, and one in twenty has the monitor wait for its canary.
pub(crate) fn sequence(seed: u64) -> Sequence {
    let backend = if seed % 8 == 4 {
        IptablesBackend::Nft
    } else {
        IptablesBackend::Legacy
    };
    on(Stage::asked(backend), seed)
}

/// The sequence of a seed on that stage.
pub(crate) fn on(stage: Stage, seed: u64) -> Sequence {
    let mut author = Author {
        rng: ChaCha8Rng::seed_from_u64(seed),
        kinds: [None; SERVICES as usize],
        harms: harms::of(stage.mode),
    };
    let mut rounds = vec![author.beginning()];
    for _ in 0..ROUNDS {
        let round = author.round();
        rounds.push(round);
    }
    if seed % 20 == 3 && stage.mode == ProxyMode::Iptables {
        let which = author.rng.random_range(0..CANARIES.len());
        rounds.push(vec![Operation::Harm(&CANARIES[which])]);
    }
    let told = |operation| families::operations(stage.families, operation);
    let rounds = one_by_one(rounds).into_iter();
    Sequence {
        stage,
        rounds: rounds
            .map(|round| round.into_iter().flat_map(told).collect())
            .collect(),
    }
}

/// From the first harm on every change has a round of its own. What a sync finds missing, and whether it fails over it and heals the
/// rest, depends on which changes it takes over together: on chance, where several come at once. Slices that are written one by one stand
/// beside older ones for a round: those that contradict them are deleted first.
fn one_by_one(rounds: Vec<Vec<Operation>>) -> Vec<Vec<Operation>> {
    let mut harmed = false;
    let mut there = BTreeMap::new();
    let mut found = Vec::new();
    for round in rounds {
        let mut part = Vec::new();
        for operation in round {
            harmed |= matches!(operation, Operation::Harm(_));
            if harmed && is_idle(&there, &operation) {
                continue;
            }
            let before = if harmed {
                contradicted(&there, &operation)
            } else {
                Vec::new()
            };
            for operation in before.into_iter().chain([operation]) {
                if harmed && !part.is_empty() {
                    found.push(std::mem::take(&mut part));
                }
                note(&mut there, &operation);
                part.push(operation);
            }
        }
        if !harmed || !part.is_empty() {
            found.push(part);
        }
    }
    found
}

/// Whether an operation deletes a slice that is not there: as a round of its own it would only take time.
fn is_idle(there: &BTreeMap<String, Value>, operation: &Operation) -> bool {
    matches!(operation, Operation::Delete(object)
        if object["kind"] == "EndpointSlice" && !there.contains_key(&object["metadata"]["name"].to_string()))
}

/// Notes which slices there are after an operation, by name.
fn note(there: &mut BTreeMap<String, Value>, operation: &Operation) {
    match operation {
        Operation::Put(object) if object["kind"] == "EndpointSlice" => {
            there.insert(object["metadata"]["name"].to_string(), object.clone());
        }
        Operation::Delete(object) => {
            there.remove(&object["metadata"]["name"].to_string());
        }
        Operation::Put(_) | Operation::Harm(_) => {}
    }
}

/// Deletes the slices that say otherwise of an endpoint than the one that an operation puts beside them.
fn contradicted(there: &BTreeMap<String, Value>, operation: &Operation) -> Vec<Operation> {
    let Operation::Put(object) = operation else {
        return Vec::new();
    };
    let others = there
        .values()
        .filter(|other| other["metadata"]["name"] != object["metadata"]["name"]);
    let contradict = others.filter(|other| contradict(other, object));
    contradict
        .map(|slice| Operation::Delete(named(slice)))
        .collect()
}

/// Whether two slices have an endpoint in common, with other ports or other hints.
fn contradict(one: &Value, other: &Value) -> bool {
    let endpoints = |slice: &'_ Value| slice["endpoints"].as_array().cloned().unwrap_or_default();
    let theirs = endpoints(other);
    endpoints(one).iter().any(|mine| {
        let same = |it: &&Value| it["addresses"] == mine["addresses"];
        theirs
            .iter()
            .find(same)
            .is_some_and(|same| same["hints"] != mine["hints"] || one["ports"] != other["ports"])
    })
}

struct Author {
    rng: ChaCha8Rng,
    /// What each service is, if it is there.
    kinds: [Option<Kind>; SERVICES as usize],
    harms: &'static [Harm],
}

impl Author {
    fn beginning(&mut self) -> Vec<Operation> {
        let mut operations = Vec::new();
        for number in 0..SERVICES {
            if self.rng.random_bool(0.6) {
                self.put_service(number, &mut operations);
                self.put_slices(number, &mut operations);
            }
        }
        operations
    }

    fn round(&mut self) -> Vec<Operation> {
        let mut operations = Vec::new();
        if self.rng.random_bool(0.4) {
            let which = self.rng.random_range(0..self.harms.len());
            operations.push(Operation::Harm(&self.harms[which]));
        }
        for _ in 0..self.rng.random_range(0..4) {
            let number = self.rng.random_range(0..SERVICES);
            match self.rng.random_range(0..100) {
                0..35 => self.put_service(number, &mut operations),
                35..45 => self.delete_service(number, &mut operations),
                45..52 => {
                    self.delete_service(number, &mut operations);
                    self.put_service(number, &mut operations);
                }
                52..65 => operations.extend(slice_names(number).map(Operation::Delete)),
                _ => self.put_slices(number, &mut operations),
            }
        }
        operations
    }

    fn put_service(&mut self, number: u8, operations: &mut Vec<Operation>) {
        let (kind, object) = service(&mut self.rng, number);
        let known = &mut self.kinds[usize::from(number)];
        // The API refuses to take a cluster IP away or to give one later.
        if known.is_some_and(|known| known != kind) {
            operations.push(Operation::Delete(named(&object)));
        }
        *known = Some(kind);
        operations.push(Operation::Put(object));
    }

    fn delete_service(&mut self, number: u8, operations: &mut Vec<Operation>) {
        let (_, object) = service(&mut self.rng, number);
        self.kinds[usize::from(number)] = None;
        operations.push(Operation::Delete(named(&object)));
    }

    fn put_slices(&mut self, number: u8, operations: &mut Vec<Operation>) {
        let written = slices(&mut self.rng, number);
        let absent = slice_names(number).filter(|name| {
            written
                .iter()
                .all(|it| it["metadata"]["name"] != name["metadata"]["name"])
        });
        let absent: Vec<Operation> = absent.map(Operation::Delete).collect();
        operations.extend(written.into_iter().map(Operation::Put));
        operations.extend(absent);
    }
}

/// Only what names the object.
pub(crate) fn named(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {
            "name": object["metadata"]["name"],
            "namespace": object["metadata"]["namespace"],
        },
    })
}

#[test]
fn no_two_slices_ever_contradict_each_other() {
    for seed in 0..2_000 {
        let mut there = BTreeMap::new();
        for round in sequence(seed).rounds {
            for operation in &round {
                note(&mut there, operation);
            }
            for (name, slice) in &there {
                let mut others = there.iter().filter(|(other, _)| *other != name);
                let other = others.find(|(_, other)| contradict(slice, other));
                assert!(other.is_none(), "seed {seed}: {name} and {other:?}");
            }
        }
    }
}
