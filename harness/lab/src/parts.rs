//! The lab's own tasks. None of them fails unseen: a part that panics, or ends while its world still
//! lives, makes the case inconclusive at once, whatever the product did.

use std::{any::Any, panic::AssertUnwindSafe};

use chainbreak_engine::log::EventLog;
use chainbreak_model::event::EventKind;
use futures::FutureExt;

/// Runs a part that lasts as long as its world: only dropping it ends it in order.
pub(crate) async fn lasting(name: &'static str, log: EventLog, part: impl Future<Output = ()>) {
    if guarded(name, &log, part).await {
        trouble(&log, format!("the lab's {name} ended before its world"));
    }
}

/// Runs a part that may end. Whether it ended by itself, not by a panic.
pub(crate) async fn guarded(name: &str, log: &EventLog, part: impl Future<Output = ()>) -> bool {
    // What a panicking part may have left half done is the world's, which is not trusted from then on.
    let ended = AssertUnwindSafe(part).catch_unwind().await;
    if let Err(panic) = &ended {
        let text = format!("the lab's {name} panicked: {}", words(panic.as_ref()));
        trouble(log, text);
    }
    ended.is_ok()
}

fn trouble(log: &EventLog, text: String) {
    log.append(EventKind::Trouble { text });
}

/// What `panic!` was given.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without words")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn troubles(run: impl AsyncFnOnce(EventLog)) -> Vec<String> {
        let (log, mut events) = EventLog::new();
        run(log).await;
        let mut said = Vec::new();
        while let Ok(event) = events.try_recv() {
            match event.what {
                EventKind::Trouble { text } => said.push(text),
                other => panic!("{other:?} is no trouble"),
            }
        }
        said
    }

    #[tokio::test]
    async fn a_part_that_panics_is_trouble_with_its_words() {
        let said = troubles(async |log| {
            guarded("pod a", &log, async { panic!("no {}", "place") }).await;
        });
        assert_eq!(said.await, ["the lab's pod a panicked: no place"]);
        let said = troubles(|log| lasting("kubelet", log, async { panic!("no place") }));
        assert_eq!(said.await, ["the lab's kubelet panicked: no place"]);
    }

    #[tokio::test]
    async fn a_part_that_may_end_does_so_silently_and_a_lasting_one_does_not() {
        let said = troubles(async |log| {
            guarded("pod a", &log, async {}).await;
        });
        assert_eq!(said.await, Vec::<String>::new());
        let said = troubles(|log| lasting("kubelet", log, async {}));
        assert_eq!(said.await, ["the lab's kubelet ended before its world"]);
    }
}
