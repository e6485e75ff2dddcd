//! The gate before every agent's command: a fault or a test delays commands there, or holds them.
//!
//! A command passes the bars that match it one after the other, in the order in which they were set up;
//! a bar set up while it waits at another does not concern it. Without a matching bar it passes at
//! once. A bar is gone with its guard, and whoever waits at it goes on.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chainbreak_model::names::NodeName;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

/// Which commands; what is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matching {
    /// Whose: an agent's name, or a pod's for a script.
    pub who: Option<String>,
    /// Where.
    pub node: Option<NodeName>,
    /// The program's name without its folder: `iptables-restore` is that of both iptables backends,
    /// `iptables-nft-restore` only where it was called so.
    pub program: Option<String>,
}

/// A command that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Who wants to run it.
    pub who: String,
    /// Where.
    pub node: NodeName,
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// One cluster's gate. Cheap to clone; all clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    bars: Arc<Mutex<Vec<Arc<Bar>>>>,
}

#[derive(Debug)]
struct Bar {
    which: Matching,
    lifted: watch::Sender<bool>,
    stop: Stop,
}

#[derive(Debug)]
enum Stop {
    Delay(Duration),
    Hold(mpsc::UnboundedSender<Waiting>),
}

impl Gate {
    /// To be awaited before a command runs.
    pub async fn pass(&self, who: &str, node: &NodeName, argv: &[String]) {
        let bars: Vec<Arc<Bar>> = {
            let all = self.bars();
            let concerns = |bar: &&Arc<Bar>| bar.which.covers(who, node, argv);
            all.iter().filter(concerns).cloned().collect()
        };
        for bar in bars {
            bar.pass(who, node, argv).await;
        }
    }

    /// From now on the matching commands start so much later. Two delays of one command add up.
    pub fn delay(&self, which: Matching, by: Duration) -> Delayed {
        Delayed(self.set_up(which, Stop::Delay(by)))
    }

    /// From now on the matching commands wait until they are released.
    pub fn hold(&self, which: Matching) -> Held {
        let (arrivals, waiting) = mpsc::unbounded_channel();
        Held {
            guard: self.set_up(which, Stop::Hold(arrivals)),
            waiting,
        }
    }

    fn set_up(&self, which: Matching, stop: Stop) -> Guard {
        let lifted = watch::Sender::new(false);
        let bar = Arc::new(Bar {
            which,
            lifted,
            stop,
        });
        self.bars().push(Arc::clone(&bar));
        Guard {
            gate: self.clone(),
            bar,
        }
    }

    fn bars(&self) -> MutexGuard<'_, Vec<Arc<Bar>>> {
        self.bars.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bar {
    async fn pass(&self, who: &str, node: &NodeName, argv: &[String]) {
        let mut lifted = self.lifted.subscribe();
        let gone = lifted.wait_for(|lifted| *lifted);
        match &self.stop {
            // Either the time is over or the bar is gone.
            Stop::Delay(by) => drop(timeout(*by, gone).await),
            Stop::Hold(arrivals) => {
                // The guard that hears of it may just be going, and the bar with it.
                drop(arrivals.send(Waiting {
                    who: who.to_owned(),
                    node: node.clone(),
                    argv: argv.to_vec(),
                }));
                drop(gone.await);
            }
        }
    }
}

impl Matching {
    fn covers(&self, who: &str, node: &NodeName, argv: &[String]) -> bool {
        let called = argv.first().map_or("", |program| base_name(program));
        let is_called = |wanted: &String| *wanted == called || *wanted == any_backend(called);
        self.who.as_ref().is_none_or(|wanted| wanted == who)
            && self.node.as_ref().is_none_or(|wanted| wanted == node)
            && self.program.as_ref().is_none_or(is_called)
    }
}

/// A program's name without its folder.
pub fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// `iptables-restore` for `iptables-legacy-restore` and `iptables-nft-restore`.
fn any_backend(name: &str) -> String {
    name.replacen("-legacy", "", 1).replacen("-nft", "", 1)
}

#[derive(Debug)]
struct Guard {
    gate: Gate,
    bar: Arc<Bar>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.gate.bars().retain(|bar| !Arc::ptr_eq(bar, &self.bar));
        self.bar.lifted.send_replace(true);
    }
}

/// A delay that lasts until this is dropped. Commands that wait then start at once.
#[derive(Debug)]
#[must_use = "dropping it ends the delay"]
pub struct Delayed(#[expect(dead_code, reason = "it is kept for its end")] Guard);

/// Commands that are held until this is released or dropped.
#[derive(Debug)]
#[must_use = "dropping it releases the commands"]
pub struct Held {
    guard: Guard,
    waiting: mpsc::UnboundedReceiver<Waiting>,
}

impl Held {
    /// The next command that came to wait, each once, in order of arrival. One whose process was killed
    /// meanwhile is told of all the same.
    pub async fn waiting(&mut self) -> Waiting {
        let next = self.waiting.recv().await;
        next.expect("the bar, which the guard keeps, has the sending end")
    }

    /// Lets all go on that wait, and all that come.
    pub fn release(self) {
        drop(self.guard);
    }
}
