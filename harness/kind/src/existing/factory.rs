//! Somebody's cluster, as a program offers it.

use std::{path::Path, time::Duration};

use async_trait::async_trait;
use chainbreak_engine::backend::{
    Backend, BackendError, BackendFactory, BackendOption, Cleaning, Finding, Given, Ground, Takes,
    Wanted,
};
use jiff::Timestamp;

use super::{Existing, InExisting, run_namespace};
use crate::{hash::short, name::PREFIX};

const KUBECONFIG: &str = "kubeconfig";
const CONTEXT: &str = "context";
const NODE_IMAGE: &str = "node-image";
const ALLOW_DISRUPTION: &str = "allow-disruption";
/// Nobody gives it: it is settled for each run.
const RUN: &str = "run";

const OPTIONS: [BackendOption; 4] = [
    BackendOption {
        name: KUBECONFIG,
        takes: Takes::Path("FILE"),
        wanted: Wanted::Always,
        help: "How the cluster is reached",
    },
    BackendOption {
        name: CONTEXT,
        takes: Takes::Text("NAME"),
        wanted: Wanted::Freely,
        help: "Which context of the kubeconfig [default: its current one]",
    },
    BackendOption {
        name: NODE_IMAGE,
        takes: Takes::Text("IMAGE"),
        wanted: Wanted::Freely,
        help: "What the pods on the nodes run, instead of the pinned image: it needs a shell and nsenter",
    },
    BackendOption {
        name: ALLOW_DISRUPTION,
        takes: Takes::Text("CLUSTER"),
        wanted: Wanted::Freely,
        help: "Let cases change what concerns all of the cluster: its name, as the kubeconfig has it",
    },
];

/// Where to look for what runs have left.
const OF_CLEANING: [BackendOption; 2] = [
    BackendOption {
        name: KUBECONFIG,
        takes: Takes::Path("FILE"),
        wanted: Wanted::Freely,
        help: "Also what runs of `--backend cluster` left in this cluster",
    },
    BackendOption {
        name: CONTEXT,
        takes: Takes::Text("NAME"),
        wanted: Wanted::With(KUBECONFIG),
        help: "Which context of the kubeconfig [default: its current one]",
    },
];

impl Existing {
    fn of(given: &Given) -> Self {
        let text = |name| given.get(name).map(str::to_owned);
        Self {
            kubeconfig: given.get(KUBECONFIG).unwrap_or_default().into(),
            context: text(CONTEXT),
            node_image: text(NODE_IMAGE),
            allow_disruption: text(ALLOW_DISRUPTION),
            run: text(RUN).unwrap_or_default(),
        }
    }
}

/// The backend `cluster`.
#[derive(Debug)]
pub struct ClusterFactory;

impl ClusterFactory {
    /// Whether the kubeconfig's user may use its cluster, `disturbing` it or not; the reason says which rights are missing.
    pub async fn finding(kubeconfig: &Path, context: Option<&str>, disturbing: bool) -> Finding {
        let existing = Existing {
            kubeconfig: kubeconfig.to_owned(),
            context: context.map(str::to_owned),
            node_image: None,
            allow_disruption: disturbing.then(String::new),
            run: String::new(),
        };
        let usable = existing.usable().await;
        Finding {
            name: "cluster".to_owned(),
            found: usable.map(drop).map_err(|error| error.to_string()),
        }
    }
}

#[async_trait]
impl BackendFactory for ClusterFactory {
    fn name(&self) -> &'static str {
        "cluster"
    }

    fn about(&self) -> &'static str {
        "A cluster that is there: namespaces in it, and a privileged pod on each node"
    }

    fn options(&self) -> (&'static str, &'static [BackendOption]) {
        ("Options of --backend cluster", &OPTIONS)
    }

    fn ground(&self) -> Ground {
        Ground::Real
    }

    /// A real cluster is one for all.
    fn jobs(&self) -> usize {
        1
    }

    /// The pods on the nodes may have to pull their image, and half of it is for runs that have to be waited for.
    fn ready_within(&self) -> Duration {
        Duration::from_secs(10 * 60)
    }

    fn grace(&self) -> Duration {
        Duration::from_secs(150)
    }

    /// Nobody else's namespaces are called like the run's.
    fn settle(&self, mut given: Given) -> Given {
        let now = Timestamp::now().as_nanosecond();
        let machine = run_namespace::machine();
        let one = format!("{machine} {} {now}", std::process::id());
        given.set(RUN, &format!("{PREFIX}{}", short(&one)));
        given
    }

    fn open(&self, given: &Given) -> Box<dyn Backend> {
        Box::new(InExisting::new(Existing::of(given)))
    }

    /// The cluster has it, or not: a plan asks there.
    async fn doctor(&self) -> Vec<Finding> {
        Vec::new()
    }

    fn cleaning(&self) -> Option<&dyn Cleaning> {
        Some(self)
    }
}

#[async_trait]
impl Cleaning for ClusterFactory {
    fn options(&self) -> &'static [BackendOption] {
        &OF_CLEANING
    }

    /// What runs that are gone have left in the cluster that is named is removed; what is others' is named.
    async fn clean(
        &self,
        given: &Given,
        say: &mut (dyn FnMut(String) + Send),
    ) -> Result<bool, BackendError> {
        if !given.is_on(KUBECONFIG) {
            return Ok(false);
        }
        let cluster = Existing::of(given);
        let target = cluster.target()?;
        let client = target.client().await?;
        target.version(&client).await?;
        let leftovers = run_namespace::leftovers(&client).await?;
        let mut stays = None;
        for leftover in &leftovers {
            let run = &leftover.run;
            let enter = || cluster.kubectl(&target, run);
            let said = match leftover.alive {
                Some(true) => format!("{run} is in use by a run on this machine"),
                Some(false) => match run_namespace::remove(&client, leftover, enter()).await {
                    Ok(true) => format!("removed {run}, which no run uses, from the cluster"),
                    Ok(false) => format!("{run} is being removed by another process"),
                    Err(error) => {
                        let said = format!(
                            "{run} stays: {error}\n`kubectl delete namespaces -l chainbreak.dev/run={run}` gives up what is noted there"
                        );
                        stays = stays.or(Some(error));
                        said
                    }
                },
                None => format!(
                    "{run} is of another machine: `chainbreak clean` removes it there, or \
                     `kubectl delete namespaces -l chainbreak.dev/run={run}`"
                ),
            };
            say(said);
        }
        match stays {
            Some(error) => Err(error.into()),
            None => Ok(!leftovers.is_empty()),
        }
    }
}
