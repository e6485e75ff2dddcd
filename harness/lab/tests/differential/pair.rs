//! Two kube-proxies in one world, which live through a sequence there.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use chainbreak_lab::worker::{Worker, WorldOptions, spawn_worker};
use chainbreak_recordings::logs::{self, Sites};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::{
    compare::{Rules, differences},
    marks::{FIRST_MARK, Settle, marker},
    outcome::{Difference, Life, Trouble},
    sequence::{Harm, Operation, Sequence},
    stage::Stage,
    support::User,
};

/// The worker of a pair.
const PROGRAM: &str = env!("CARGO_BIN_EXE_chainbreak-lab-pair");
/// Names the binary of the real kube-proxy, for us and for the worker.
pub(crate) const REAL: &str = "CHAINBREAK_REAL_KUBE_PROXY";
/// A sync takes a tenth of a second, a loaded machine some times that.
const PATIENCE: Duration = Duration::from_secs(30);
/// A round that takes longer than this is a difference: one of the two does not get there.
pub(crate) const SETTLE_MS: u64 = 12_000;
/// Without a sync for so long, nothing is left that would begin one but a timer.
const STILL_MS: u64 = 150;
/// `--iptables-sync-period`: how soon a dead canary is seen and a failed sync repeated.
pub(crate) const SYNC_PERIOD_MS: u64 = 1000;
/// How often a world is lived through at most in which the real one does not hear of its zone.
const LIVES: usize = 3;
/// Said in a sync that leaves zone hints alone, although every node here has a zone. From 1.34.0 on a kube-proxy may never hear of its own
/// (docs/findings.md).
const NO_ZONE: &str = "zone topology hints for service since node is missing label";

/// Who plays on the two sides.
#[derive(Debug, Clone)]
pub(crate) struct Players {
    /// The one to be believed.
    pub(crate) left: Value,
    /// The model.
    pub(crate) right: Value,
    /// Whether the model says from which line of the source each log line comes, as it does for 1.20.2:
    /// of other releases it knows one patch at most.
    pub(crate) sites: Sites,
}

/// What starts pairs, as whichever user.
#[derive(Debug)]
pub(crate) struct Launcher {
    program: PathBuf,
    _folder: Option<TempDir>,
}

impl Launcher {
    /// `real` is what [`REAL`] names, where the players need it.
    pub(crate) fn new(user: User, real: Option<&Path>) -> Self {
        let told: Vec<_> = real.map(|real| (REAL, real)).into_iter().collect();
        let (program, folder) = user.program(PROGRAM, &told);
        Self {
            program,
            _folder: folder,
        }
    }

    /// Both places, and nobody plays yet.
    pub(crate) async fn raise(&self, stage: Stage, seed: u64, players: &Players) -> Pair {
        let worker =
            spawn_worker(&self.program, &WorldOptions::default()).expect("a worker starts");
        let mut pair = Pair {
            worker,
            stage,
            notices: 0,
            stuck: false,
        };
        let mut setup = stage.setup();
        let rest = json!({
            "sync-period-ms": SYNC_PERIOD_MS, "seed": seed,
            "left": players.left, "right": players.right,
        });
        setup
            .as_object_mut()
            .zip(rest.as_object())
            .into_iter()
            .for_each(|(setup, rest)| setup.extend(rest.clone()));
        let raised = pair.send(&setup).await;
        assert_eq!(raised, Ok(json!({ "raised": true })));
        pair
    }

    /// Lets both players live through the sequence, until they part.
    pub(crate) async fn run(
        &self,
        sequence: &Sequence,
        seed: u64,
        players: &Players,
    ) -> Result<Life, Trouble> {
        let mut life = self.live(sequence, seed, players).await?;
        for _ in 1..LIVES {
            if !life.without_zone {
                break;
            }
            println!("seed {seed}: the real one did not hear of its zone, and lives again");
            life = self.live(sequence, seed, players).await?;
        }
        Ok(life)
    }

    async fn live(
        &self,
        sequence: &Sequence,
        seed: u64,
        players: &Players,
    ) -> Result<Life, Trouble> {
        let mut pair = self.raise(sequence.stage, seed, players).await;
        for (number, round) in sequence.rounds.iter().enumerate() {
            if let Some(what) = pair.round(number, round).await? {
                let rules = Difference::Rules {
                    round: number,
                    what,
                };
                return Ok(Life {
                    difference: Some(rules),
                    kinds: pair.kinds(players.sites).await?,
                    without_zone: pair.complaints_of_no_zone().await? > 0,
                });
            }
            if pair.stuck {
                break;
            }
        }
        let kinds = pair.kinds(players.sites).await?;
        let mut what = logs::differences(&kinds);
        what.retain(|line| !logs::is_by_chance(line, &kinds));
        let difference = (!what.is_empty()).then_some(Difference::Logs { what });
        Ok(Life {
            difference,
            kinds,
            without_zone: false,
        })
    }
}

/// Two places and whoever plays there.
pub(crate) struct Pair {
    worker: Worker,
    stage: Stage,
    pub(crate) notices: usize,
    /// Both fail to write what is asked for, and in the same way, such as a chain that has to go and is
    /// in use (issue 132516). Nothing will move them.
    stuck: bool,
}

impl Pair {
    async fn round(
        &mut self,
        number: usize,
        operations: &[Operation],
    ) -> Result<Option<Vec<String>>, Trouble> {
        let mut settle = Settle::default();
        for operation in operations {
            match operation {
                Operation::Put(object) => drop(self.ask(json!({ "put": object })).await?),
                Operation::Delete(object) => drop(self.ask(json!({ "delete": object })).await?),
                Operation::Harm(harm) => {
                    if let Some(late) = self.harm(harm, &mut settle).await? {
                        return Ok(Some(late));
                    }
                }
            }
        }
        let mark = FIRST_MARK + number;
        for object in marker(self.stage, mark) {
            self.ask(json!({ "put": object })).await?;
        }
        if number == 0 {
            self.ask(json!("start")).await?;
        }
        settle.marked(self.stage, mark);
        let found = match self.settle(&settle).await? {
            Settled::Both([left, right]) => differences(self.stage.mode, &left, &right),
            Settled::Late(what) => what,
        };
        Ok((!found.is_empty()).then_some(found))
    }

    /// Harms both while both stand still, and waits until it is noticed, if somebody notices it.
    async fn harm(
        &mut self,
        harm: &Harm,
        settle: &mut Settle,
    ) -> Result<Option<Vec<String>>, Trouble> {
        self.still().await?;
        let script = self.stage.script(harm.script);
        self.ask(json!({ "sh": script })).await?;
        let Some(text) = harm.noticed_by else {
            return Ok(None);
        };
        self.notices += self.stage.families.all().len();
        settle.said(self.stage, text, self.notices);
        // Whatever follows would be healed by another sync.
        Ok(self.settle(settle).await?.left())
    }

    /// Waits until neither does anything: a harm that met a sync of one of them would be another harm to the other.
    pub(crate) async fn still(&mut self) -> Result<(), Trouble> {
        let still = self.ask(json!({ "still": [STILL_MS, SETTLE_MS] })).await?;
        match still["still"].as_bool() {
            Some(true) => Ok(()),
            _ if self.stuck => Ok(()),
            _ => Err(Trouble("they never stand still".to_owned())),
        }
    }

    /// How often the left one said that its node has no zone.
    pub(crate) async fn complaints_of_no_zone(&mut self) -> Result<usize, Trouble> {
        let logs: Vec<Vec<String>> = parsed(self.ask(json!("logs")).await?)?;
        let lines = logs.first().into_iter().flatten();
        Ok(lines.filter(|line| line.contains(NO_ZONE)).count())
    }

    /// What kinds of line each has said.
    pub(crate) async fn kinds(&mut self, sites: Sites) -> Result<[BTreeSet<String>; 2], Trouble> {
        let logs: [Vec<String>; 2] = parsed(self.ask(json!("logs")).await?)?;
        Ok(logs.map(|log| logs::kinds(&log, sites)))
    }

    async fn settle(&mut self, what: &Settle) -> Result<Settled, Trouble> {
        let answer = self
            .ask(json!({ "settle": [what.marks, what.said, SETTLE_MS] }))
            .await?;
        let Some(saves) = answer.get("unsettled") else {
            return Ok(Settled::Both(parsed(answer)?));
        };
        let saves: [Rules; 2] = parsed(saves.clone())?;
        let [left, right] = [&saves[0], &saves[1]].map(|rules| what.lacking(rules));
        let differences = differences(self.stage.mode, &saves[0], &saves[1]);
        if left == right && differences.is_empty() {
            self.stuck = true;
            return Ok(Settled::Both(saves));
        }
        let syncs = &answer["syncs"];
        let late = format!("not settled: left lacks {left:?}, right lacks {right:?}; {syncs}");
        let late = std::iter::once(late).chain(differences).collect();
        Ok(Settled::Late(late))
    }

    /// Starts both kube-proxies and waits until they have written their first rules.
    pub(crate) async fn start(&mut self) -> Result<(), Trouble> {
        match self.round(0, &[]).await? {
            None => Ok(()),
            Some(what) => Err(Trouble(what.join("\n"))),
        }
    }

    /// Puts objects, and waits until both have written rules from them.
    pub(crate) async fn put(&mut self, number: usize, objects: &[Value]) -> Result<(), Trouble> {
        let operations: Vec<Operation> = objects.iter().cloned().map(Operation::Put).collect();
        match self.round(number, &operations).await? {
            None => Ok(()),
            Some(what) => Err(Trouble(what.join("\n"))),
        }
    }

    /// What a script writes in each place.
    pub(crate) async fn sh(&mut self, script: &str) -> Result<[String; 2], Trouble> {
        let done: [Value; 2] = parsed(self.ask(json!({ "sh": script })).await?)?;
        Ok(done.map(|done| done["stdout"].as_str().unwrap_or_default().to_owned()))
    }

    /// How many milliseconds each takes until its rules show the marker of that round, from when it is
    /// put and the script run; `None` when it takes longer than `most`.
    pub(crate) async fn race(
        &mut self,
        number: usize,
        script: &str,
        most: Duration,
    ) -> Result<[Option<f64>; 2], Trouble> {
        let mark = FIRST_MARK + number;
        let objects = marker(self.stage, mark);
        let mut settle = Settle::default();
        settle.marked(self.stage, mark);
        let race = json!({ "race": [objects, script, settle.marks, most.as_millis()] });
        parsed(self.ask(race).await?)
    }

    /// Waits until both have said a text so often.
    pub(crate) async fn heard(&mut self, text: &'static str, times: usize) -> Result<(), Trouble> {
        let settle = Settle {
            said: vec![(text, times)],
            ..Settle::default()
        };
        match self.settle(&settle).await? {
            Settled::Both(_) if !self.stuck => Ok(()),
            _ => Err(Trouble(format!("{text:?} is not said {times} times"))),
        }
    }

    /// Does something with an object.
    pub(crate) async fn ask(&mut self, what: Value) -> Result<Value, Trouble> {
        self.send(&what)
            .await
            .map_err(|error| Trouble(format!("{what}: {error}")))
    }

    async fn send(&mut self, what: &Value) -> Result<Value, String> {
        self.worker.order(&what.to_string()).await.map_err(text)?;
        let line = timeout(PATIENCE, self.worker.lines.next_line())
            .await
            .map_err(text)?;
        let Some(line) = line.map_err(text)? else {
            let status = self.worker.wait().await.map_err(text)?;
            return Err(format!("the worker died: {status}"));
        };
        let answer: Value = serde_json::from_str(&line).map_err(text)?;
        match answer.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(answer),
        }
    }
}

enum Settled {
    Both([Rules; 2]),
    Late(Vec<String>),
}

impl Settled {
    fn left(self) -> Option<Vec<String>> {
        match self {
            Self::Both(_) => None,
            Self::Late(what) => Some(what),
        }
    }
}

pub(crate) fn parsed<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, Trouble> {
    serde_json::from_value(answer).map_err(|error| Trouble(error.to_string()))
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}
