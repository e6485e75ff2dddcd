//! The history of a case that runs: judged event by event, and kept on the disk where it is recorded.

use chainbreak_model::{
    Judge,
    case::Case,
    event::{Event, EventKind, Phase},
    verdict::Verdict,
};
use serde_json::value::RawValue;

use super::disk::{self, Disk, Job};
use crate::live::CaseLive;

/// What the events of a case come to so far. They themselves are not in memory.
#[derive(Debug)]
pub(crate) struct CaseHistory<'a> {
    judge: Judge<'a>,
    others: Vec<Judge<'a>>,
    pub(super) recorded: Option<CaseFile<'a>>,
}

/// Where its events go to.
#[derive(Debug)]
pub(super) struct CaseFile<'a> {
    pub(super) disk: &'a Disk,
    /// Which case of the run it is.
    pub(super) number: usize,
    /// Its id as JSON, where events are told on standard output as well.
    pub(super) told_as: Option<String>,
    pub(super) live: CaseLive,
}

/// Room for an event.
pub(crate) struct Room<'a>(Option<disk::Room<'a>>);

impl<'a> CaseHistory<'a> {
    /// Of a case that is not recorded.
    pub(crate) fn of(case: &'a Case) -> Self {
        Self {
            judge: Judge::new(case),
            others: Vec::new(),
            recorded: None,
        }
    }

    /// The same, judged also by what others of the same events expect.
    pub(crate) fn judged_by(mut self, others: impl IntoIterator<Item = &'a Case>) -> Self {
        self.others = others.into_iter().map(Judge::new).collect();
        self
    }

    /// The same, recorded.
    pub(super) fn recorded(mut self, file: CaseFile<'a>) -> Self {
        self.recorded = Some(file);
        self
    }

    /// What the events so far come to.
    pub(crate) fn verdict(&self) -> Verdict {
        self.judge.verdict()
    }

    /// Says something of the case to whoever watches the run.
    pub(crate) fn tell(&self, text: &str) {
        if let Some(file) = &self.recorded {
            file.live.tell(text);
        }
    }

    /// What they come to by what the others expect, in their order.
    pub(crate) fn other_verdicts(&self) -> impl Iterator<Item = Verdict> {
        self.others.iter().map(Judge::verdict)
    }

    /// Waits until an event can be taken over.
    pub(crate) fn room(&self) -> impl Future<Output = Room<'a>> + use<'a> {
        let disk = self.recorded.as_ref().map(|file| file.disk);
        async move {
            Room(match disk {
                Some(disk) => Some(disk.room().await),
                None => None,
            })
        }
    }

    /// Takes over an event as its worker wrote it: the same text goes to the disk. The phase that it says was reached.
    pub(crate) async fn raw(
        &mut self,
        room: Room<'_>,
        text: &RawValue,
    ) -> anyhow::Result<Option<Phase>> {
        let event: Event = serde_json::from_str(text.get())?;
        if let (Some(file), Room(Some(room))) = (&mut self.recorded, room) {
            room.send(Job::Event(file.number, format!("{text}\n").into_bytes()));
            if let Some(id) = &file.told_as {
                let told = format!("{{\"event\":{{\"case\":{id},\"event\":{text}}}}}\n");
                file.disk.write(Job::Tell(told)).await;
            }
            file.live.see(&event);
        }
        self.see(&event);
        Ok(match event.what {
            EventKind::Phase(phase) => Some(phase),
            _ => None,
        })
    }

    /// Adds an event of the parent's own.
    pub(crate) async fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        let text = serde_json::value::to_raw_value(event)?;
        let room = self.room().await;
        self.raw(room, &text).await.map(drop)
    }

    /// Adds what ended the case, right after its last event. It is in no file.
    pub(crate) fn ended_by(&mut self, error: &anyhow::Error) {
        let at_us = self.judge.last_us();
        let text = crate::in_full(error);
        let what = EventKind::Trouble { text };
        self.see(&Event { at_us, what });
    }

    fn see(&mut self, event: &Event) {
        self.judge.see(event);
        self.others.iter_mut().for_each(|judge| judge.see(event));
    }
}
