//! Random worlds and what happens to them, by seed.
//!
//! What kube-proxy itself leaves to chance is avoided: an endpoint that is in two slices at once is the
//! same in both, for the order in which slices are read is that of a Go map.

use chainbreak_model::case::ProxyMode;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::{
    families,
    harms::{self, CANARIES},
    sequence::{Deed, Harm, Sequence},
    services::{Kind, service, slice_names, slices},
    stage::{Front, Stage},
};

/// How many services a world has at most.
const SERVICES: u8 = 5;
/// Rounds after the start.
const ROUNDS: usize = 3;

/// The sequence of a seed. In iptables mode one in eight is nft's, whose commands take several times as
/// long, and one in twenty has the monitor wait for its canary.
pub(crate) fn sequence(seed: u64) -> Sequence {
    let front = if seed % 8 == 4 {
        Front::Nft
    } else {
        Front::Legacy
    };
    on(Stage::asked(front), seed)
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
        rounds.push(vec![Deed::Harm(&CANARIES[which])]);
    }
    let told = |deed| families::deeds(stage.families, deed);
    let rounds = one_by_one(rounds).into_iter();
    Sequence {
        stage,
        rounds: rounds
            .map(|round| round.into_iter().flat_map(told).collect())
            .collect(),
    }
}

/// From the first harm on every change has a round of its own. What a sync finds missing, and whether it fails over it and heals the
/// rest, depends on which changes it takes over together: on chance, where several come at once.
fn one_by_one(rounds: Vec<Vec<Deed>>) -> Vec<Vec<Deed>> {
    let mut harmed = false;
    let mut found = Vec::new();
    for round in rounds {
        let mut part = Vec::new();
        for deed in round {
            if harmed && !part.is_empty() {
                found.push(std::mem::take(&mut part));
            }
            harmed |= matches!(deed, Deed::Harm(_));
            part.push(deed);
        }
        found.push(part);
    }
    found
}

struct Author {
    rng: ChaCha8Rng,
    /// What each service is, if it is there.
    kinds: [Option<Kind>; SERVICES as usize],
    harms: &'static [Harm],
}

impl Author {
    fn beginning(&mut self) -> Vec<Deed> {
        let mut deeds = Vec::new();
        for number in 0..SERVICES {
            if self.rng.random_bool(0.6) {
                self.put_service(number, &mut deeds);
                self.put_slices(number, &mut deeds);
            }
        }
        deeds
    }

    fn round(&mut self) -> Vec<Deed> {
        let mut deeds = Vec::new();
        if self.rng.random_bool(0.4) {
            let which = self.rng.random_range(0..self.harms.len());
            deeds.push(Deed::Harm(&self.harms[which]));
        }
        for _ in 0..self.rng.random_range(0..4) {
            let number = self.rng.random_range(0..SERVICES);
            match self.rng.random_range(0..100) {
                0..35 => self.put_service(number, &mut deeds),
                35..45 => self.delete_service(number, &mut deeds),
                45..52 => {
                    self.delete_service(number, &mut deeds);
                    self.put_service(number, &mut deeds);
                }
                52..65 => deeds.extend(slice_names(number).map(Deed::Delete)),
                _ => self.put_slices(number, &mut deeds),
            }
        }
        deeds
    }

    fn put_service(&mut self, number: u8, deeds: &mut Vec<Deed>) {
        let (kind, object) = service(&mut self.rng, number);
        let known = &mut self.kinds[usize::from(number)];
        // The API refuses to take a cluster IP away or to give one later.
        if known.is_some_and(|known| known != kind) {
            deeds.push(Deed::Delete(named(&object)));
        }
        *known = Some(kind);
        deeds.push(Deed::Put(object));
    }

    fn delete_service(&mut self, number: u8, deeds: &mut Vec<Deed>) {
        let (_, object) = service(&mut self.rng, number);
        self.kinds[usize::from(number)] = None;
        deeds.push(Deed::Delete(named(&object)));
    }

    fn put_slices(&mut self, number: u8, deeds: &mut Vec<Deed>) {
        let written = slices(&mut self.rng, number);
        let absent = slice_names(number).filter(|name| {
            written
                .iter()
                .all(|it| it["metadata"]["name"] != name["metadata"]["name"])
        });
        let absent: Vec<Deed> = absent.map(Deed::Delete).collect();
        deeds.extend(written.into_iter().map(Deed::Put));
        deeds.extend(absent);
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
