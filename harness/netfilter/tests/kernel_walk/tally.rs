//! How many packets came out alike, and what did not.

use std::{env, process::Stdio, thread};

use chainbreak_netfilter::Family;

use crate::{
    compare::{Compared, Kernel, shrunk},
    namespace,
    world::World,
};

/// How many differences are told.
const MOST: usize = 5;
const INSIDE: &str = "CHAINBREAK_WALK_INSIDE";
const SAID: &str = "packets compared";

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    let given = env::var(name).ok();
    given.map_or(otherwise, |it| it.parse().expect("a number"))
}

/// The worlds that are this process's: their seeds.
pub(crate) struct Seeds {
    first: u64,
    count: u64,
    every: u64,
}

impl Seeds {
    /// From the first one on, those of all processes in turn.
    pub(crate) fn each(&self) -> impl Iterator<Item = u64> + use<> {
        let every = usize::try_from(self.every).unwrap();
        (self.first..self.first + self.count).step_by(every)
    }
}

/// Of fewer worlds it is not asked how much was compared.
const MANY: u64 = 20;
/// So many worlds are worth a process of their own.
const A_PROCESS: u64 = 50;

/// Does the work of a test, `otherwise` many worlds or `CHAINBREAK_WORLDS`, in processes of its own that run that test once more, each in a
/// network namespace of its own.
pub(crate) fn inside(test: &str, otherwise: u64, work: fn(&Seeds)) {
    let first = number("CHAINBREAK_SEED", 1);
    let count = number("CHAINBREAK_WORLDS", otherwise);
    if let Ok(place) = env::var(INSIDE) {
        let (number, every) = place.split_once('/').unwrap();
        let (number, every): (u64, u64) = (number.parse().unwrap(), every.parse().unwrap());
        return work(&Seeds {
            first: first + number,
            count: count.saturating_sub(number),
            every,
        });
    }
    let cores = thread::available_parallelism().map_or(1, |it| it.get() as u64);
    let every = cores.min(count / A_PROCESS).max(1);
    let processes: Vec<_> = (0..every)
        .map(|number| {
            let (mut unshare, lock) = namespace::unshare();
            let child = unshare
                .arg(env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture"])
                .env(INSIDE, format!("{number}/{every}"))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("unshare (package util-linux) runs");
            (child, lock)
        })
        .collect();
    let ended = processes.into_iter().map(|(child, lock)| {
        let output = child.wait_with_output().unwrap();
        drop(lock);
        output
    });
    let ended: Vec<_> = ended.collect();
    for output in ended {
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        let is_good = output.status.success() && said.contains(SAID);
        assert!(is_good, "{said}\n{error}");
        println!("{said}");
    }
}

/// What was compared, by family, and what came out otherwise.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    worlds: u64,
    compared: [Compared; 2],
    different: Vec<String>,
    smallest: String,
}

impl Tally {
    /// Compares a world.
    pub(crate) fn compare(&mut self, kernel: &mut Kernel, world: &World, at: &str) {
        self.worlds += 1;
        match kernel.compare(world) {
            Ok(compared) => {
                self.compared[usize::from(world.front.family == Family::V6)] += compared;
            }
            Err(difference) => {
                if self.different.is_empty() {
                    self.smallest = shrunk(kernel, world);
                }
                self.different.push(format!("{at}: {difference}"));
            }
        }
    }

    /// Whether there is enough to look into.
    pub(crate) fn is_over(&self) -> bool {
        self.different.len() >= MOST
    }

    /// Says how much was compared.
    ///
    /// # Panics
    /// Where something came out otherwise; and of many worlds, where the walk left much open, or few packets arrived or were translated.
    pub(crate) fn tell(&self, seeds: &Seeds) {
        println!("{} worlds, {} differ", self.worlds, self.different.len());
        for (family, compared) in ["IPv4", "IPv6"].into_iter().zip(&self.compared) {
            let Compared {
                packets,
                arrived,
                translated,
                open,
            } = compared;
            println!(
                "{family}: {packets} {SAID}, {arrived} arrived, {translated} of them translated, {open} left open"
            );
        }
        let told = self.different.join("\n\n");
        let smallest = &self.smallest;
        assert!(
            self.different.is_empty(),
            "{told}\n\nthe first one shrunk:\n{smallest}"
        );
        let is_enough = |it: &Compared| it.arrived * 5 > it.packets && it.open * 20 < it.packets;
        // The kernel's chances decide over some, and of twenty worlds they decide over half of one family's.
        let translated: u64 = self.compared.iter().map(|it| it.translated).sum();
        let packets: u64 = self.compared.iter().map(|it| it.packets).sum();
        assert!(packets > self.worlds, "{packets} packets");
        let are_few = seeds.count < MANY;
        assert!(
            are_few || (translated * 50 > packets && self.compared.iter().all(is_enough)),
            "too little arrived or was translated, or too much is left open: {:?}",
            self.compared
        );
    }
}
