//! The gate before every agent's command: a fault or a test delays commands there, or holds them.
//!
//! A command passes the bars that match it one after the other, in the order in which they were set up;
//! a bar set up while it waits at another does not concern it. Without a matching bar it passes at
//! once. A bar is gone when it is lifted, or with its guard, and whoever waits at it goes on.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_model::names::NodeName;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use crate::cluster::{Delay, Holding, SignalError};

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
    pub fn delay(&self, which: Matching, by: Duration) {
        self.set_up(which, Stop::Delay(by));
    }

    /// Ends such a delay, if there is one.
    pub fn lift(&self, which: &Matching, by: Duration) {
        let mut bars = self.bars();
        let is_it = |bar: &Arc<Bar>| {
            bar.which == *which && matches!(bar.stop, Stop::Delay(delay) if delay == by)
        };
        if let Some(at) = bars.iter().position(is_it) {
            bars.remove(at).lifted.send_replace(true);
        }
    }

    /// From now on the matching commands wait until they are released.
    pub fn hold(&self, which: Matching) -> Held {
        let (arrivals, waiting) = mpsc::unbounded_channel();
        let guard = Guard {
            gate: self.clone(),
            bar: self.set_up(which, Stop::Hold(arrivals)),
        };
        Held { guard, waiting }
    }

    fn set_up(&self, which: Matching, stop: Stop) -> Arc<Bar> {
        let lifted = watch::Sender::new(false);
        let bar = Arc::new(Bar {
            which,
            lifted,
            stop,
        });
        self.bars().push(Arc::clone(&bar));
        bar
    }

    fn bars(&self) -> MutexGuard<'_, Vec<Arc<Bar>>> {
        self.bars.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Holding for Gate {
    async fn hold_back(&self, delay: &Delay) -> Result<(), SignalError> {
        self.delay(Matching::of(delay), delay.by);
        Ok(())
    }

    async fn let_go(&self, delay: &Delay) -> Result<(), SignalError> {
        self.lift(&Matching::of(delay), delay.by);
        Ok(())
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
    /// The commands that a delay is about.
    fn of(delay: &Delay) -> Self {
        Self {
            who: Some(delay.agent.to_string()),
            node: None,
            program: Some(delay.program.clone()),
        }
    }

    fn covers(&self, who: &str, node: &NodeName, argv: &[String]) -> bool {
        let path = argv.first().map_or("", String::as_str);
        self.who.as_ref().is_none_or(|wanted| wanted == who)
            && self.node.as_ref().is_none_or(|wanted| wanted == node)
            && self
                .program
                .as_ref()
                .is_none_or(|wanted| is_called(wanted, path))
    }
}

/// A program's name without its folder.
pub fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a program is the one of that name, of whichever front end it is: `iptables-restore` is `/usr/sbin/iptables-nft-restore`, too.
pub fn is_called(wanted: &str, path: &str) -> bool {
    let called = base_name(path);
    wanted == called || wanted == any_backend(called)
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
