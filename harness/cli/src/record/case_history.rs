//! The history of a case that runs: in memory until it is judged, and on the disk where it is recorded.

use chainbreak_model::event::Event;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::disk::{Disk, Job};
use crate::live::CaseLive;

/// The events of a case so far.
#[derive(Debug, Default)]
pub(crate) struct CaseHistory<'a> {
    pub(crate) events: Vec<Event>,
    pub(super) recorded: Option<CaseFile<'a>>,
}

/// Where they go to besides.
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
pub(crate) struct Room<'a>(Option<mpsc::Permit<'a, Job>>);

impl<'a> CaseHistory<'a> {
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

    /// Takes over an event as its worker wrote it: the same text goes to the disk.
    pub(crate) async fn raw(&mut self, room: Room<'_>, text: &RawValue) -> anyhow::Result<&Event> {
        let event: Event = serde_json::from_str(text.get())?;
        if let (Some(file), Room(Some(room))) = (&mut self.recorded, room) {
            room.send(Job::Event(file.number, format!("{text}\n").into_bytes()));
            if let Some(id) = &file.told_as {
                let told = format!("{{\"event\":{{\"case\":{id},\"event\":{text}}}}}\n");
                file.disk.write(Job::Tell(told)).await;
            }
            file.live.see(&event);
        }
        self.events.push(event);
        Ok(self.events.last().expect("it was pushed just now"))
    }

    /// Adds an event of the parent's own.
    pub(crate) async fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        let text = serde_json::value::to_raw_value(event)?;
        let room = self.room().await;
        self.raw(room, &text).await.map(drop)
    }
}
