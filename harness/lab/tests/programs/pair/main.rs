//! Two kube-proxies side by side, for the lab's differential tests: each in a place of its own with its own
//! network, `/run` and lock, both for the node `n1`, both watching the same API server.
//!
//! Started with `worker`. The first line of standard input is a [`Setup`], each further line an [`Ask`];
//! every line is answered by one on standard output, an error as `{"error": …}`. Where nobody plays on one side, answers
//! are about the other alone.

mod objects;
mod player;
mod side;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use chainbreak_apiserver::{Server, ServerConfig};
use chainbreak_lab::{
    addresses::API_PORT,
    place::PlaceThread,
    worker::{Lifeline, VERB, WorldOptions, enter},
    world::World,
};
use chainbreak_model::case::{ClusterSpec, IpFamily, IptablesVariant, ProxyMode};
use ipnet::IpNet;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpSocket, time::interval};

use self::{
    objects::Objects,
    player::{Player, Settings},
    side::{LOOK, Mark, Side},
};

/// Names the binary of the real kube-proxy.
const REAL: &str = "CHAINBREAK_REAL_KUBE_PROXY";
/// What a pair is made of.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    /// The iptables backend of both places.
    iptables: IptablesVariant,
    /// `--proxy-mode` of both.
    #[serde(default)]
    mode: ProxyMode,
    /// The families of both, the default first.
    #[serde(default = "ipv4")]
    ip_families: Vec<IpFamily>,
    /// `--iptables-sync-period` of both, in either mode. The shortest interval between syncs is none.
    sync_period_ms: u64,
    /// Orders what chance would order in a model.
    seed: u64,
    /// Who plays on which side.
    left: Player,
    right: Player,
}

/// What a test asks for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ask {
    /// Create or replace an object, its status too.
    Put(Value),
    /// Delete the object of this kind and name, if it is there.
    Delete(Value),
    /// Start both kube-proxies.
    Start,
    /// Run a shell's script in both places.
    Sh(String),
    /// Wait until the rules of both have all these marks, both kube-proxies have said these texts so
    /// often, and both are idle; so many milliseconds at most. Answers with the rules of both, by family:
    /// what `iptables-save` prints, or `nft list table` of kube-proxy's table.
    Settle(Vec<Mark>, Vec<(String, usize)>, u64),
    /// Wait until both stand still: idle for this many milliseconds on end, at most for that many. Answers
    /// with whether they do.
    Still(u64, u64),
    /// Put these objects, run this script in both places, and look for these marks, so many milliseconds
    /// at most. Answers with the milliseconds it took on each side, null for too long.
    Race(Vec<Value>, String, Vec<Mark>, u64),
    /// Run a shell's script in each place while its real kube-proxy is stopped. Answers with the rules that it
    /// left, before anybody could react to it.
    Harm(String),
    /// Answers with what both are told: networks, the node.
    Told,
    /// What both have said so far.
    Logs,
    /// End.
    Stop,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() != Some(VERB) {
        return ExitCode::FAILURE;
    }
    let real = std::env::var_os(REAL).map(PathBuf::from);
    let options = WorldOptions {
        show: real.iter().cloned().collect(),
        ebpf: false,
    };
    let served = enter(&options).map_err(text).and_then(|life| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        runtime.map_err(text)?.block_on(serve(life, real))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&json!({ "error": error }));
            ExitCode::FAILURE
        }
    }
}

async fn serve(mut life: Lifeline, real: Option<PathBuf>) -> Result<(), String> {
    let setup: Setup = serde_json::from_str(&life.first).map_err(text)?;
    // Nothing runs on them.
    let spec = ClusterSpec {
        ip_families: setup.ip_families,
        ..ClusterSpec::new(2, setup.iptables)
    };
    let world = World::raise(&spec).await.map_err(text)?;
    let address = SocketAddr::new(world.plan.api(), API_PORT);
    let server = listen(&world, address)?;
    tokio::spawn(server);
    let families: Vec<IpFamily> = world.families.iter().collect();
    let addresses = world.families.addresses(world.plan.node(1));
    for node in world.nodes().skip(1) {
        take(&node.place, &addresses).await?;
    }
    let places = world.nodes().map(|node| &node.place);
    let players = [setup.left, setup.right];
    let played = places
        .zip(players)
        .filter(|(_, it)| !matches!(it, Player::Nobody));
    let played = played.map(|(place, it)| (Side::new(place, setup.mode, &families), it));
    let (sides, players) = played.unzip();
    let service_cidrs = world.families.services(world.plan.services());
    let node = objects::node(&addresses);
    let mut pair = Pair {
        objects: Objects::new(&format!("http://{address}"))?,
        sides,
        settings: Settings {
            api: format!("http://{address}"),
            mode: setup.mode,
            node: world.families.first(world.plan.node(1)),
            cluster_cidrs: world.families.nets(world.pools.main()),
            sync_period: Duration::from_millis(setup.sync_period_ms),
            seed: setup.seed,
            real,
        },
        players,
        told: json!({ "service-cidrs": service_cidrs, "node": node }),
    };
    pair.objects.put(node).await?;
    say(&json!({ "raised": true }));
    while let Some(line) = life.lines.recv().await {
        let ask = serde_json::from_str(&line).map_err(text)?;
        if matches!(ask, Ask::Stop) {
            break;
        }
        let answered = pair.answer(ask).await;
        say(&answered.unwrap_or_else(|error| json!({ "error": error })));
    }
    Ok(())
}

/// To the API both places are one node, so each has its addresses: health checks listen there.
async fn take(place: &PlaceThread, addresses: &[IpAddr]) -> Result<(), String> {
    for address in addresses {
        let net = IpNet::from(*address).to_string();
        let argv = ["ip", "address", "add", &net, "dev", "lo"];
        let child = place.spawn(&argv, |_| ()).await.map_err(text)?;
        let output = child.wait_with_output().await.map_err(text)?;
        if !output.status.success() {
            return Err(format!(
                "{argv:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
        }
    }
    Ok(())
}

fn ipv4() -> Vec<IpFamily> {
    vec![IpFamily::V4]
}

fn listen(
    world: &World,
    address: SocketAddr,
) -> Result<impl Future<Output = ()> + Send + use<>, String> {
    let socket = TcpSocket::new_v4().map_err(text)?;
    socket.bind(address).map_err(text)?;
    let listener = socket
        .listen(64)
        .and_then(tokio::net::TcpListener::into_std);
    let listener = listener.map_err(text)?;
    let server = Server::new(ServerConfig {
        service_cidrs: world.families.services(world.plan.services()),
        ..ServerConfig::new(Arc::new(Timestamp::now))
    });
    Ok(async move {
        if let Err(error) = server.serve(listener).await {
            say(&json!({ "error": error.to_string() }));
        }
    })
}

struct Pair {
    objects: Objects,
    sides: Vec<Side>,
    settings: Settings,
    players: Vec<Player>,
    told: Value,
}

impl Pair {
    async fn answer(&mut self, ask: Ask) -> Result<Value, String> {
        match ask {
            Ask::Put(object) => self.objects.put(object).await,
            Ask::Delete(object) => self.objects.delete(object).await.map(|()| json!({})),
            Ask::Start => {
                for (side, player) in self.sides.iter_mut().zip(&self.players) {
                    player.start(side, &self.settings).await?;
                }
                Ok(json!({}))
            }
            Ask::Sh(script) => {
                let done =
                    futures::future::try_join_all(self.sides.iter().map(|it| it.sh(&script)));
                Ok(json!(done.await.map_err(text)?))
            }
            Ask::Settle(marks, said, most) => {
                self.settle(&marks, &said, Duration::from_millis(most))
                    .await
            }
            Ask::Still(quiet, most) => {
                let [quiet, most] = [quiet, most].map(Duration::from_millis);
                self.still(quiet, most).await
            }
            Ask::Race(objects, script, marks, most) => {
                let most = Duration::from_millis(most);
                self.race(objects, &script, &marks, most).await
            }
            Ask::Harm(script) => self.harm(&script).await,
            Ask::Told => {
                self.told["cluster-cidrs"] = json!(self.settings.cluster_cidrs);
                Ok(self.told.clone())
            }
            Ask::Logs => Ok(json!(self.sides.iter().map(Side::log).collect::<Vec<_>>())),
            Ask::Stop => Ok(Value::Null),
        }
    }

    async fn harm(&self, script: &str) -> Result<Value, String> {
        let mut left = Vec::new();
        for side in &self.sides {
            let stopped = side.stop()?;
            side.sh(script).await.map_err(text)?;
            left.push(side.save().await.map_err(text)?);
            drop(stopped);
        }
        Ok(json!(left))
    }

    async fn race(
        &self,
        objects: Vec<Value>,
        script: &str,
        marks: &[Mark],
        most: Duration,
    ) -> Result<Value, String> {
        let begin = Instant::now();
        // The harm first: a change that is synced before it would be undone by it, and nobody would notice.
        let done = futures::future::try_join_all(self.sides.iter().map(|it| it.sh(script)));
        done.await.map_err(text)?;
        for object in objects {
            self.objects.put(object).await?;
        }
        let looks = self.sides.iter();
        let looks = looks.map(|side| side.first_look(marks, begin + most));
        let seen = futures::future::try_join_all(looks).await.map_err(text)?;
        let took = seen.into_iter().map(|seen| {
            seen.map(|seen| seen.saturating_duration_since(begin).as_secs_f64() * 1000.0)
        });
        Ok(json!(took.collect::<Vec<_>>()))
    }

    /// How many syncs each has begun and ended.
    fn syncs(&self) -> Vec<(usize, usize)> {
        self.sides.iter().map(Side::syncs).collect()
    }

    async fn still(&self, quiet: Duration, most: Duration) -> Result<Value, String> {
        let begin = Instant::now();
        let mut looks = interval(LOOK);
        let mut since = (self.syncs(), begin);
        loop {
            looks.tick().await;
            let (syncs, now) = (self.syncs(), Instant::now());
            if syncs.iter().any(|(begun, ended)| begun != ended) || syncs != since.0 {
                since = (syncs, now);
            }
            if now - since.1 >= quiet || now - begin >= most {
                return Ok(json!({ "still": now - since.1 >= quiet }));
            }
        }
    }

    async fn settle(
        &self,
        marks: &[Mark],
        said: &[(String, usize)],
        most: Duration,
    ) -> Result<Value, String> {
        let deadline = Instant::now() + most;
        let mut looks = interval(LOOK);
        let (mut before, mut looked) = (None, None);
        loop {
            looks.tick().await;
            let syncs = self.syncs();
            let heard = |side: &Side| said.iter().all(|(text, times)| side.said(text) >= *times);
            let idle = syncs.iter().all(|(begun, ended)| begun == ended);
            // Twice the same in a row is a quiet agent: a queued sync starts microseconds after the last.
            let quiet = idle && before.as_ref() == Some(&syncs) && self.sides.iter().all(heard);
            if let Some(dead) = self.sides.iter().find_map(Side::death) {
                return Err(dead);
            }
            // A sync that has begun will end, on a busy machine later.
            let late = Instant::now() > deadline + if idle { Duration::ZERO } else { most };
            // Reading rules takes more of the machine than all else here, and only a sync changes them.
            if late || quiet && looked.as_ref() != Some(&syncs) {
                let saves = futures::future::try_join_all(self.sides.iter().map(Side::save));
                let saves = saves.await.map_err(text)?;
                if quiet && saves.iter().all(|save| side::has(save, marks)) {
                    return Ok(json!(saves));
                }
                if late {
                    return Ok(json!({ "unsettled": saves, "syncs": syncs }));
                }
                looked = Some(syncs.clone());
            }
            before = Some(syncs);
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[expect(
    clippy::print_stdout,
    reason = "standard output is how a worker answers"
)]
fn say(answer: &Value) {
    println!("{answer}");
}
