//! A real kube-proxy alone in random worlds: what happened, and what stood in the kernel after each round, is kept
//! for those who have no real one (`harness/recordings`).
//!
//! `CHAINBREAK_RECORD_TO` is the folder of the recordings, `CHAINBREAK_WORLDS` how many worlds are lived through
//! (90). What the folder has of that release, mode and binary takes part in the choice of what is kept.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use chainbreak_recordings::{
    IptablesBackend as KeptBackend, Operation as Kept, Outcome, Round, Setup, Spelling, Standing,
    World,
    choose::{Candidate, choose},
    file::{self, Header, Recording},
    logs::{self, Sites},
    replay,
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    compare::{Rules, as_recorded, standing},
    generate,
    marks::{FIRST_MARK, Settle, marker},
    number,
    outcome::Trouble,
    pair::{Launcher, Pair, Players, SETTLE_MS, SYNC_PERIOD_MS, parsed},
    real, real_version,
    sequence::{Harm, Operation, Sequence},
    stage::{Families, IptablesBackend, Stage},
    support::{self, User},
};

/// How many worlds of a release and mode are kept at least.
const ENOUGH: usize = 60;
/// How many live at once.
const AT_ONCE: usize = 2;

#[tokio::test]
#[ignore = "records a real kube-proxy: make record"]
async fn a_real_kube_proxy_is_recorded() {
    support::require_packages();
    let folder = env::var_os("CHAINBREAK_RECORD_TO").map(PathBuf::from);
    let folder = folder.expect("CHAINBREAK_RECORD_TO is a folder: `make record` sets it");
    let program = real();
    let header = Header {
        version: real_version(),
        sha256: sha256(&program),
        mode: as_recorded(Stage::asked(IptablesBackend::Legacy).mode),
    };
    let mut worlds = known(&folder, &header);
    let launcher = Launcher::new(User::Myself, Some(&program));
    let first = number("CHAINBREAK_SEED", 0);
    let seeds = first..first + number("CHAINBREAK_WORLDS", 90);
    let lives = seeds.filter(|seed| !worlds.contains_key(seed)).map(|seed| {
        let launcher = &launcher;
        async move { (seed, confirmed(launcher, seed).await) }
    });
    let lives: Vec<_> = stream::iter(lives)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    for (seed, life) in lives {
        match life {
            Ok(world) => drop(worlds.insert(seed, world)),
            Err(trouble) => println!("seed {seed} is left out: {}", trouble.0),
        }
    }
    let kept = kept(&header, worlds.into_values().collect());
    let (count, path) = (kept.len(), folder.join(file::name(&header)));
    let recording = Recording {
        header,
        worlds: kept,
    };
    file::write(&path, &recording).expect("it is written");
    let size = fs::metadata(&path).expect("it is there").len();
    println!("{}: {count} worlds, {size} bytes", path.display());
    assert!(count > 0, "not a single world could be recorded");
}

fn sha256(program: &Path) -> String {
    let bytes = fs::read(program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    data_encoding::HEXLOWER.encode(&Sha256::digest(&bytes))
}

/// The worlds that are kept already, of the same binary.
fn known(folder: &Path, header: &Header) -> BTreeMap<u64, World> {
    let known = file::read(&folder.join(file::name(header)));
    let known = known.ok().filter(|it| it.header == *header);
    let worlds = known.into_iter().flat_map(|it| it.worlds);
    worlds.map(|it| (it.setup.seed, it)).collect()
}

/// Those that show most of the model, whether or not it agrees with them.
fn kept(header: &Header, worlds: Vec<World>) -> Vec<World> {
    let mut spelling = Spelling::default();
    let candidates = worlds.iter().map(|world| {
        let outcome = replay(header, world, &mut spelling);
        let Outcome { difference, shown } = outcome.expect("the release is modelled");
        if let Some(difference) = difference {
            println!("seed {}: {difference}", world.setup.seed);
        }
        let cidrs = world.setup.cluster_cidrs.iter();
        let families: Vec<&str> = cidrs
            .map(|it| if it.addr().is_ipv4() { "4" } else { "6" })
            .collect();
        Candidate {
            shown,
            families: families.concat(),
        }
    });
    let candidates: Vec<Candidate> = candidates.collect();
    let chosen = choose(&candidates, ENOUGH);
    let worlds = worlds.into_iter().enumerate();
    let worlds = worlds.filter(|(number, _)| chosen.contains(number));
    worlds.map(|(_, world)| world).collect()
}

/// Families take turns.
fn stage(sequence: &Sequence, seed: u64) -> Stage {
    let families = match seed % 3 {
        0 => Families::V4,
        1 => Families::V6,
        _ => Families::Dual,
    };
    Stage {
        families,
        ..sequence.stage
    }
}

/// Whether it never got to the end of a round.
fn is_stuck(world: &World) -> bool {
    world.rounds.iter().any(|round| round.stuck)
}

/// A world in which the real one got stuck is lived through again: a machine that is slow is nobody's behaviour.
async fn confirmed(launcher: &Launcher, seed: u64) -> Result<World, Trouble> {
    let world = recorded(launcher, seed).await?;
    if !is_stuck(&world) {
        return Ok(world);
    }
    let again = recorded(launcher, seed).await?;
    if is_stuck(&again) && again.rounds.len() != world.rounds.len() {
        return Err(Trouble("it gets stuck now here, now there".to_owned()));
    }
    Ok(again)
}

/// Lets the real one live through the sequence of a seed.
async fn recorded(launcher: &Launcher, seed: u64) -> Result<World, Trouble> {
    let stage = stage(&generate::sequence(seed), seed);
    let sequence = generate::on(stage, seed);
    let players = Players {
        left: json!("real"),
        right: json!("nobody"),
        sites: Sites::Files,
    };
    let mut recorder = Recorder {
        pair: launcher.raise(stage, seed, &players).await,
        stage,
        standing: Standing::default(),
    };
    let setup = recorder.setup(seed).await?;
    let mut rounds = Vec::new();
    let mut without_zone = 0;
    for (number, operations) in sequence.rounds.iter().enumerate() {
        let round = recorder.round(number, operations).await?;
        let stuck = round.stuck;
        rounds.push(round);
        if number == 0 {
            without_zone = recorder.pair.complaints_of_no_zone().await?;
        }
        if stuck {
            break;
        }
    }
    // Before the first round is over it may only hear of it late.
    if recorder.pair.complaints_of_no_zone().await? > without_zone {
        return Err(Trouble("it did not hear of its zone".to_owned()));
    }
    let [log]: [Vec<String>; 1] = parsed(recorder.pair.ask(json!("logs")).await?)?;
    Ok(World {
        setup,
        rounds,
        said: logs::kinds(&log, Sites::Files),
    })
}

/// Who writes down what happens.
struct Recorder {
    pair: Pair,
    stage: Stage,
    /// What stood in the kernel last.
    standing: Standing,
}

impl Recorder {
    async fn setup(&mut self, seed: u64) -> Result<Setup, Trouble> {
        let mut told = self.pair.ask(json!("told")).await?;
        let mut part = |name: &str| told[name].take();
        Ok(Setup {
            seed,
            backend: match self.stage.backend {
                IptablesBackend::Legacy => KeptBackend::Legacy,
                IptablesBackend::Nft => KeptBackend::Nft,
            },
            cluster_cidrs: parsed(part("cluster-cidrs"))?,
            service_cidrs: parsed(part("service-cidrs"))?,
            sync_period_ms: SYNC_PERIOD_MS,
            node: part("node"),
        })
    }

    async fn round(&mut self, number: usize, operations: &[Operation]) -> Result<Round, Trouble> {
        let mut settle = Settle::default();
        let mut kept = Vec::new();
        for operation in operations {
            kept.push(match operation {
                Operation::Put(object) => self.put(object).await?,
                Operation::Delete(object) => self.delete(object).await?,
                Operation::Harm(harm) => self.harm(harm, &mut settle).await?,
            });
        }
        let mark = FIRST_MARK + number;
        for object in marker(self.stage, mark) {
            kept.push(self.put(&object).await?);
        }
        if number == 0 {
            self.pair.ask(json!("start")).await?;
        }
        settle.marked(self.stage, mark);
        let stuck = !self.settle(&settle).await?;
        if !stuck {
            self.pair.still().await?;
            self.settle(&Settle::default()).await?;
        }
        let before = std::mem::take(&mut self.standing);
        self.standing = self.look().await?;
        Ok(Round {
            operations: kept,
            after: self.standing.since(&before),
            stuck,
        })
    }

    async fn put(&mut self, object: &Value) -> Result<Kept, Trouble> {
        let mut object = self.pair.ask(json!({ "put": object })).await?;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, _| {
                ["name", "namespace", "labels", "annotations"].contains(&key.as_str())
            });
        }
        Ok(Kept::Put(object))
    }

    async fn delete(&mut self, object: &Value) -> Result<Kept, Trouble> {
        self.pair.ask(json!({ "delete": object })).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Ok(Kept::Delete {
            kind: text(&object["kind"]),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
        })
    }

    /// What it left is looked at while the real one stands still; then it may react.
    async fn harm(&mut self, harm: &Harm, settle: &mut Settle) -> Result<Kept, Trouble> {
        self.pair.still().await?;
        let script = self.stage.script(harm.script);
        let [left]: [Rules; 1] = parsed(self.pair.ask(json!({ "harm": script })).await?)?;
        let left = self.standing_of(&left)?;
        let before = std::mem::replace(&mut self.standing, left);
        if let Some(text) = harm.noticed_by {
            self.pair.notices += self.stage.families.all().len();
            settle.said(self.stage, text, self.pair.notices);
            if !self.settle(settle).await? {
                return Err(Trouble(format!("{:?} is not noticed", harm.what)));
            }
        }
        Ok(Kept::Harm {
            what: harm.what.to_owned(),
            after: self.standing.since(&before),
            noticed_by: harm.noticed_by.map(str::to_owned),
        })
    }

    /// Whether everything waited for came.
    async fn settle(&mut self, what: &Settle) -> Result<bool, Trouble> {
        let settle = json!({ "settle": [what.marks, what.said, SETTLE_MS] });
        let answer = self.pair.ask(settle).await?;
        Ok(answer.get("unsettled").is_none())
    }

    async fn look(&mut self) -> Result<Standing, Trouble> {
        let answer = self.pair.ask(json!({ "settle": [[], [], 0] })).await?;
        let rules = match answer.get("unsettled") {
            Some(rules) => rules.clone(),
            None => answer,
        };
        let [rules]: [Rules; 1] = parsed(rules)?;
        self.standing_of(&rules)
    }

    fn standing_of(&self, rules: &Rules) -> Result<Standing, Trouble> {
        let standing = standing(self.stage.mode, rules);
        standing.map_err(|error| Trouble(error.to_string()))
    }
}
