//! A run as it is recorded: plan, verdicts and end in `run.jsonl`, the events of each case in a file of its own. Of a
//! case that is over, nothing but its plan and its verdict stays in memory.

mod case_history;
mod disk;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::Arc,
};

use chainbreak_engine::run::Artifact;
use chainbreak_model::{
    case::Case,
    plan::Planned,
    verdict::{CaseVerdict, Verdict},
};
use chainbreak_report::{Ended, Header, Line, Run, Skipped, summary::comes_to};
use indexmap::IndexMap;
use jiff::Timestamp;
use tokio::sync::{oneshot, watch};

pub(crate) use self::case_history::{CaseHistory, Room};
use self::{
    case_history::CaseFile,
    disk::{Disk, Job},
};
use crate::{live::Live, reports};

/// A run that is being recorded.
pub(crate) struct Record {
    folder: PathBuf,
    disk: Disk,
    run: RefCell<Run>,
    echo: bool,
}

/// A run that was recorded.
pub(crate) struct Recorded {
    /// What reports are made of.
    pub(crate) run: Run,
    /// Where it is. It has no reports yet.
    pub(crate) folder: PathBuf,
    /// What could not be written, where something could not. The run ended there.
    pub(crate) unwritten: Option<String>,
}

impl Record {
    /// Begins in an empty folder; with `echo` everything is told on standard output as well, events among the rest.
    pub(crate) async fn begin(folder: &Path, header: Header, echo: bool) -> anyhow::Result<Self> {
        let disk = Disk::begin(folder.join("run.jsonl"))?;
        let record = Self {
            folder: folder.to_owned(),
            disk,
            run: RefCell::new(Run::new(header.clone())),
            echo,
        };
        for job in record.twice(serde_json::to_string(&header)?) {
            record.disk.write(job).await;
        }
        Ok(record)
    }

    /// More cases are planned: those with their numbers that are to run, in the order of the plan.
    pub(crate) async fn plan(
        &self,
        planned: Vec<Planned>,
    ) -> anyhow::Result<Vec<(usize, Arc<Case>)>> {
        let before = self.run.borrow().cases.len();
        for plan in planned {
            let line = match plan {
                Planned::Run(case) => Line::Planned(case),
                Planned::Skip(skipped) => {
                    let reason = skipped.reason();
                    Line::Skipped(Skipped {
                        id: skipped.id,
                        reason,
                    })
                }
            };
            self.line(line).await?;
        }
        let run = self.run.borrow();
        let cases = run.cases.values().enumerate().skip(before);
        let cases = cases.map(|(number, recorded)| (number, Arc::clone(&recorded.case)));
        Ok(cases.collect())
    }

    /// A planned case is not run after all.
    pub(crate) async fn skip(&self, id: String, reason: String) -> anyhow::Result<()> {
        self.line(Line::Skipped(Skipped { id, reason })).await
    }

    /// A case begins.
    pub(crate) async fn case<'a>(
        &'a self,
        number: usize,
        case: &'a Case,
        live: &Live,
    ) -> anyhow::Result<CaseRecord<'a>> {
        let id = case.id();
        let path = reports::events_path(&id);
        let file = self.folder.join(&path);
        let line = Line::History {
            case: id.clone(),
            path,
        };
        // A file is there before the run names it.
        self.disk.write(Job::Open(number, file)).await;
        // Whoever reads standard output gets the events there.
        let text = serde_json::to_string(&line)? + "\n";
        self.disk.write(Job::Run(text.into_bytes())).await;
        self.add(line)?;
        let recorded = CaseFile {
            disk: &self.disk,
            number,
            told_as: self.echo.then(|| serde_json::to_string(&id)).transpose()?,
            live: live.case(case),
        };
        Ok(CaseRecord {
            record: self,
            id,
            history: CaseHistory::of(case).recorded(recorded),
        })
    }

    /// Whether nothing more can be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.disk.failed().borrow().is_some()
    }

    /// What could not be written, as soon as that is known.
    pub(crate) fn failed(&self) -> watch::Receiver<Option<String>> {
        self.disk.failed()
    }

    /// The run is over.
    pub(crate) async fn end(self, ended: Ended) -> anyhow::Result<Recorded> {
        self.line(Line::Finished(Timestamp::now())).await?;
        self.line(Line::Ended(ended)).await?;
        Ok(Recorded {
            run: self.run.into_inner(),
            folder: self.folder,
            unwritten: self.disk.end(),
        })
    }

    async fn line(&self, line: Line) -> anyhow::Result<()> {
        self.write(&line).await?;
        self.add(line)
    }

    async fn write(&self, line: &Line) -> anyhow::Result<()> {
        for job in self.twice(serde_json::to_string(line)?) {
            self.disk.write(job).await;
        }
        Ok(())
    }

    fn add(&self, line: Line) -> anyhow::Result<()> {
        let mut run = self.run.borrow_mut();
        run.add(line, &self.folder).map_err(anyhow::Error::msg)
    }

    /// For the file, and for whoever reads along.
    fn twice(&self, mut text: String) -> impl Iterator<Item = Job> {
        text.push('\n');
        let told = self.echo.then(|| Job::Tell(text.clone()));
        std::iter::once(Job::Run(text.into_bytes())).chain(told)
    }
}

/// A case that is being recorded.
pub(crate) struct CaseRecord<'a> {
    record: &'a Record,
    id: String,
    pub(crate) history: CaseHistory<'a>,
}

impl CaseRecord<'_> {
    /// The case is over: it is judged, and what is to be kept of it is. What it came to.
    pub(crate) async fn end(self, artifacts: Vec<Artifact>) -> anyhow::Result<CaseVerdict> {
        let Self {
            record,
            id,
            history,
        } = self;
        let mut verdict = history.verdict();
        let is_whole = match &history.recorded {
            Some(file) => {
                let (close, closed) = oneshot::channel();
                record.disk.write(Job::Close(file.number, close)).await;
                // A disk that takes no more ends the run with the verdicts so far.
                closed.await.is_ok()
            }
            None => false,
        };
        if is_whole && verdict.case == CaseVerdict::AsExpected {
            verdict.case = record.comes_to(&id).await;
        }
        let came_to = verdict.case;
        if let Some(file) = history.recorded {
            file.live.end(came_to);
        }
        if came_to != CaseVerdict::AsExpected {
            let logs = if is_whole {
                record.logs(&id)
            } else {
                Vec::new()
            };
            for artifact in artifacts.into_iter().chain(logs) {
                record.artifact(&id, artifact).await?;
            }
        }
        record.judged(id, verdict).await?;
        Ok(came_to)
    }
}

impl Record {
    /// What a case comes to that is as expected by its promises, of which the file has all events: is it because of whom its
    /// scenario says?
    async fn comes_to(&self, id: &str) -> CaseVerdict {
        let recorded = self.run.borrow().cases.get(id).cloned();
        let Some(recorded) = recorded.filter(|it| it.case.by.is_some()) else {
            return CaseVerdict::AsExpected;
        };
        // It takes a while, and others run meanwhile.
        let found = tokio::task::spawn_blocking(move || comes_to(&recorded)).await;
        found.unwrap_or_else(|error| {
            crate::complain(&format!("who is behind {id} could not be found: {error}"));
            CaseVerdict::Inconclusive
        })
    }

    async fn judged(&self, case: String, verdict: Verdict) -> anyhow::Result<()> {
        // Reports judge again: of a run of thousands, what each case came to is enough here.
        let brief = Verdict {
            promises: IndexMap::new(),
            trouble: Vec::new(),
            ..verdict
        };
        let judged = |verdict| Line::Judged {
            case: case.clone(),
            verdict: Box::new(verdict),
        };
        self.write(&judged(verdict)).await?;
        self.add(judged(brief))
    }

    /// The agents' logs of a case whose file has all its events. Its verdict does not hang on them.
    fn logs(&self, id: &str) -> Vec<Artifact> {
        let events = reports::events_path(id);
        reports::logs(&self.folder, Path::new(&events)).unwrap_or_else(|error| {
            crate::complain(&format!(
                "no logs of {id} are kept: {}",
                crate::in_full(&error)
            ));
            Vec::new()
        })
    }

    /// Keeps a file for a case that did not come out as expected.
    async fn artifact(&self, id: &str, artifact: Artifact) -> anyhow::Result<()> {
        let path = format!("{}/{}", reports::folder_name(id), artifact.name);
        let file = self.folder.join(&path);
        self.disk.write(Job::Whole(file, artifact.text)).await;
        let case = id.to_owned();
        self.line(Line::Artifact { case, path }).await
    }
}
