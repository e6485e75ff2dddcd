//! A real Felix and the model of its release, side by side: whatever happens to a node, both leave the same rules.
//!
//! `CHAINBREAK_REAL_FELIX` names the program, as `--agent felix=` takes it, and `CHAINBREAK_FELIX_VERSION` its release. `CHAINBREAK_SEED` is the
//! first seed and `CHAINBREAK_WORLDS` how many worlds are tried; `CHAINBREAK_MODE` is `iptables` or `bpf`, which takes root. With `CHAINBREAK_RECORD` what the real one left is kept in `corpus`, where it
//! is played again for the model by whoever has no real Felix.

#![expect(
    clippy::print_stdout,
    reason = "a difference is shown with the world that has it"
)]
#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

mod left;
mod play;
mod recording;
mod world;

use std::env;

use self::{
    left::{Left, differences},
    play::{Felix, play},
    recording::Recording,
    world::{Mode, World},
};

/// How many worlds with differences are shown.
const SHOWN: usize = 3;

#[test]
#[ignore = "needs a real Felix: make test-felix FELIX=calico-node FELIX_VERSION=v3.32.1"]
fn a_real_felix_and_its_model_leave_the_same_rules() {
    let real = Felix::Real(given("CHAINBREAK_REAL_FELIX"));
    let version = given("CHAINBREAK_FELIX_VERSION");
    let first = number("CHAINBREAK_SEED", 1);
    let seeds = first..first + number("CHAINBREAK_WORLDS", 20);
    let mode = match env::var("CHAINBREAK_MODE").as_deref() {
        Ok("bpf") => Mode::Bpf,
        Ok("iptables") | Err(_) => Mode::Iptables,
        Ok(other) => panic!("CHAINBREAK_MODE is {other}, and neither iptables nor bpf"),
    };
    let worlds = seeds.map(|seed| World::of(seed, &version, mode));
    let worlds: Vec<World> = worlds.collect();
    let theirs = play(&worlds, &real);
    if env::var_os("CHAINBREAK_RECORD").is_some() {
        assert_eq!(
            mode,
            Mode::Iptables,
            "who plays it again may load no programs"
        );
        let lived = worlds.iter().zip(&theirs);
        Recording::of(version, lived).write();
    }
    no_differences(&worlds, &play(&worlds, &Felix::Model), &theirs);
}

#[test]
fn models_leave_the_rules_that_a_real_felix_of_their_release_left() {
    for recording in Recording::all() {
        let kept = recording.worlds.into_iter();
        let (worlds, theirs): (Vec<_>, Vec<_>) = kept.map(|it| (it.world, it.left)).unzip();
        no_differences(&worlds, &play(&worlds, &Felix::Model), &theirs);
    }
}

/// Of another release's model they are others: what is compared tells releases apart.
#[test]
fn a_model_of_another_release_leaves_other_rules() {
    let recordings = Recording::all();
    let recording = recordings.iter().find(|it| it.version == "v3.32.1");
    let recorded = &recording.expect("one of v3.32.1").worlds[0];
    let older = recorded.world.clone().with_version("v3.30.7");
    let ours = play(&[older], &Felix::Model);
    let differences = differences(&ours[0], &recorded.left);
    let is_dscp = |it: &String| {
        it.starts_with("only the real one: iptables mangle cali-POSTROUTING") && it.contains("dscp")
    };
    assert!(differences.iter().any(is_dscp), "{differences:#?}");
}

fn no_differences(worlds: &[World], ours: &[Left], theirs: &[Left]) {
    let mut differing = Vec::new();
    for ((world, ours), theirs) in worlds.iter().zip(ours).zip(theirs) {
        let differences = differences(ours, theirs);
        if differences.is_empty() {
            continue;
        }
        if differing.len() < SHOWN {
            println!("{world}\n{}", differences.join("\n"));
        }
        differing.push(world.name());
    }
    println!(
        "{} worlds, {} with differences",
        worlds.len(),
        differing.len()
    );
    assert!(differing.is_empty(), "{differing:?}");
}

fn given(name: &str) -> String {
    env::var(name).unwrap_or_else(|_unset| panic!("{name} is not set: `make test-felix` says how"))
}

fn number(name: &str, otherwise: u64) -> u64 {
    let text = env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().unwrap())
}
