//! A real kube-proxy and the model of its release, side by side: for random worlds and whatever happens
//! to them both end with the same rules and say the same kinds of line.
//!
//! `CHAINBREAK_REAL_KUBE_PROXY` names the binary and `CHAINBREAK_REAL_VERSION` its release (1.20.2 when it
//! is not set). `CHAINBREAK_SEED` is the first seed, `CHAINBREAK_WORLDS` how many are tried: a difference
//! is shown with the seed that repeats it, shrunk to the smallest world that shows it. `CHAINBREAK_MODE` is
//! `iptables` or `nftables`, `CHAINBREAK_IP_FAMILY` `IPv4`, `IPv6` or `dual`.

#![expect(
    clippy::print_stdout,
    reason = "a difference is shown with the world that has it"
)]

mod balance;
mod compare;
mod families;
mod flows;
mod generate;
mod harms;
mod large;
mod marks;
mod outcome;
mod pair;
mod record;
mod sequence;
mod services;
mod shrink;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod timing;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env,
    path::PathBuf,
    time::{Duration, Instant},
};

use chainbreak_recordings::logs::Sites;
use futures::{StreamExt, stream};
use serde_json::json;

use self::{
    outcome::{Difference, Life},
    pair::{Launcher, Players, REAL},
    sequence::Sequence,
    shrink::shrink,
    support::User,
};

/// How many worlds live at once: each has two kube-proxies.
const AT_ONCE: usize = 2;
/// How many differing worlds are shown before the rest is left alone.
const SHOWN: usize = 1;
/// A kind of line that is said by chance, and by both as often, comes in so many worlds on one side only once in 256 times.
const OFTEN: u64 = 8;
/// For how long a difference is made smaller. One that only chance shows never gets small.
const SHRINKING: Duration = Duration::from_secs(120);

#[tokio::test]
#[ignore = "needs a real kube-proxy: make test-real"]
async fn a_real_kube_proxy_and_its_model_end_every_world_alike() {
    let launcher = Launcher::new(User::Myself, Some(&real()));
    no_differences(
        &launcher,
        &real_and_model(),
        number("CHAINBREAK_WORLDS", 200),
    )
    .await;
}

#[tokio::test]
#[ignore = "needs a real kube-proxy: make test-real"]
async fn an_ordinary_users_real_kube_proxy_and_its_model_end_every_world_alike() {
    let launcher = Launcher::new(User::Ordinary, Some(&real()));
    no_differences(
        &launcher,
        &real_and_model(),
        number("CHAINBREAK_WORLDS", 20),
    )
    .await;
}

/// The control: a model that somebody broke is found out, and what shows it is one service with one
/// endpoint.
#[tokio::test]
async fn a_broken_model_is_found_out_and_shown_in_the_smallest_world() {
    support::require_packages();
    let launcher = Launcher::new(User::Myself, None);
    let players = Players {
        left: json!({ "model": "1.20.2" }),
        right: json!({ "broken": { "version": "1.20.2", "find": " --reap", "replace": "" } }),
        sites: Sites::Lines,
    };
    // It is found out by the first world with an affinity, one of every few.
    for seed in 0..50 {
        let sequence = generate::sequence(seed);
        let life = launcher
            .run(&sequence, seed, &players)
            .await
            .expect("it is lived through");
        let Some(difference) = life.difference else {
            continue;
        };
        let (smallest, difference) = smallest(&launcher, &players, seed, &difference).await;
        assert!(difference.to_string().contains("--reap"), "{difference}");
        let text = smallest.to_string();
        assert_eq!(smallest.operations(), 2, "{text}");
        assert_eq!(text.matches("ClientIP").count(), 1, "{text}");
        assert_eq!(text.matches("addresses").count(), 1, "{text}");
        for useless in ["externalIPs", "externalTrafficPolicy", "harm", "delete"] {
            assert!(!text.contains(useless), "{text}");
        }
        return;
    }
    panic!("nobody found out that it is broken");
}

fn real_and_model() -> Players {
    let version = real_version();
    let sites = if version == "1.20.2" {
        Sites::Lines
    } else {
        Sites::Files
    };
    Players {
        left: json!("real"),
        right: json!({ "model": version }),
        sites,
    }
}

/// The real kube-proxy, or a failure that says what is missing: a test without it would prove nothing.
fn real() -> PathBuf {
    let path = env::var_os(REAL).map(PathBuf::from);
    path.unwrap_or_else(|| {
        panic!("{REAL} is not set: `make test-real` builds a kube-proxy and sets it")
    })
}

fn real_version() -> String {
    env::var("CHAINBREAK_REAL_VERSION").unwrap_or_else(|_unset| "1.20.2".to_owned())
}

fn number(variable: &str, default: u64) -> u64 {
    let value = env::var(variable).ok();
    value.map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|error| panic!("{variable}: {error}"))
    })
}

async fn no_differences(launcher: &Launcher, players: &Players, worlds: u64) {
    support::require_packages();
    let first = number("CHAINBREAK_SEED", 0);
    let lives = stream::iter(first..first + worlds).map(|seed| async move {
        let sequence = generate::sequence(seed);
        (seed, launcher.run(&sequence, seed, players).await)
    });
    let mut lives = lives.buffer_unordered(AT_ONCE);
    let mut differing = Vec::new();
    let mut said = [BTreeMap::new(), BTreeMap::new()];
    while let Some((seed, outcome)) = lives.next().await {
        let life = outcome.unwrap_or_else(|trouble| panic!("seed {seed}: {}", trouble.0));
        for (worlds, kinds) in said.iter_mut().zip(life.kinds) {
            for kind in kinds {
                *worlds.entry(kind).or_default() += 1;
            }
        }
        if let Some(difference) = life.difference {
            println!("seed {seed}: {difference}");
            differing.push((seed, difference));
        }
    }
    drop(lives);
    for (seed, difference) in differing.iter().take(SHOWN) {
        let (smallest, difference) = smallest(launcher, players, *seed, difference).await;
        println!("CHAINBREAK_SEED={seed}, shrunk:\n{smallest}{difference}");
    }
    let seeds: Vec<u64> = differing.iter().map(|(seed, _)| *seed).collect();
    let count = seeds.len();
    assert!(
        seeds.is_empty(),
        "{count} of {worlds} worlds end differently: seeds {seeds:?}"
    );
    let only_one = said_by_one(&said);
    assert!(only_one.is_empty(), "only one of them says: {only_one:#?}");
}

/// The kinds of lines that one of the two says in [`OFTEN`] worlds or more, and the other in none. `said` holds in how
/// many worlds each says what.
fn said_by_one([left, right]: &[BTreeMap<String, u64>; 2]) -> Vec<String> {
    let missing = |of: &BTreeMap<String, u64>, other: &BTreeMap<String, u64>, side: char| {
        let often = of.iter().filter(|(_, worlds)| **worlds >= OFTEN);
        let missing = often.filter(|(kind, _)| !other.contains_key(*kind));
        missing
            .map(|(kind, worlds)| format!("  {side} {kind} (in {worlds} worlds)"))
            .collect::<Vec<String>>()
    };
    [missing(left, right, '<'), missing(right, left, '>')].concat()
}

#[test]
fn a_line_that_one_says_often_and_the_other_never_is_a_difference() {
    let said = |worlds: u64| BTreeMap::from([("I proxier.go] Deleting".to_owned(), worlds)]);
    let none = BTreeMap::new();
    assert_eq!(
        said_by_one(&[none.clone(), said(OFTEN)]),
        ["  > I proxier.go] Deleting (in 8 worlds)"]
    );
    assert!(said_by_one(&[said(OFTEN - 1), none]).is_empty());
    assert!(said_by_one(&[said(OFTEN), said(1)]).is_empty());
}

/// The smallest world that differs in the same way, and how it does.
async fn smallest(
    launcher: &Launcher,
    players: &Players,
    seed: u64,
    difference: &Difference,
) -> (Sequence, Difference) {
    let shown = RefCell::new(difference.clone());
    let deadline = Instant::now() + SHRINKING;
    let smallest = shrink(generate::sequence(seed), async |candidate| {
        if Instant::now() > deadline {
            return false;
        }
        match launcher.run(candidate, seed, players).await {
            Ok(Life {
                difference: Some(found),
                ..
            }) if found.is_like(difference) => {
                shown.replace(found);
                true
            }
            _ => false,
        }
    });
    (smallest.await, shown.into_inner())
}
