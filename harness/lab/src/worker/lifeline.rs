//! The worker's standard input is its lifeline: lines are orders, the end means that the parent died.

use std::io::BufRead;

use tokio::sync::mpsc;

use crate::error::LabError;

/// Exit status of a worker whose parent died. Nobody is left to read it, but a debugger.
const ORPHANED: i32 = 9;

/// Orders of the parent.
#[derive(Debug)]
pub struct Lifeline {
    /// The first line.
    pub first: String,
    /// All further lines.
    pub lines: mpsc::UnboundedReceiver<String>,
}

impl Lifeline {
    /// Waits for the first line, then hands the rest to a thread of its own. When the input ends,
    /// that thread ends the process at once, whatever else is going on, and with it the world.
    pub(super) fn grasp() -> Result<Self, LabError> {
        let mut first = String::new();
        let read = std::io::stdin().lock().read_line(&mut first);
        let what = match read {
            Ok(0) => Some("it is closed".to_owned()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(what) = what {
            return Err(LabError::Order { what });
        }
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("lifeline".to_owned())
            .spawn(move || hold(&sender))
            .map_err(LabError::isolate("start the lifeline's thread"))?;
        Ok(Self { first, lines })
    }
}

fn hold(orders: &mpsc::UnboundedSender<String>) {
    for line in std::io::stdin().lock().lines() {
        match line {
            // Nobody may be listening for orders any more; the end of the input still counts.
            Ok(line) => drop(orders.send(line)),
            Err(_) => break,
        }
    }
    #[expect(
        clippy::exit,
        reason = "the parent died: the world must die whatever state it is in"
    )]
    std::process::exit(ORPHANED)
}
