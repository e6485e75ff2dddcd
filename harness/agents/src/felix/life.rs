//! One life of the process: start, the main loop, and the two ways it ends (`felix/daemon/daemon.go` and
//! `felix/dataplane/linux/int_dataplane.go`).

use std::{pin::pin, time::Duration};

use futures::future::{Either, select, try_join_all};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{
    Config, Event, Family, InsertMode,
    apply::{Panicked, Synced, say},
    detect::Iptables,
    kube_nft::KubeNft,
    log::Line,
    params::Params,
    renderer::Renderer,
    rule::Chain,
    sets::{self, Sets},
    static_bpf::early_rules,
    table::Table,
    throttle::Throttle,
    timers::Timers,
    world::World,
};
use crate::step::{Io, Severity};

/// Felix exits this long after it decided to, so that it does not restart in a tight loop.
const BEFORE_EXIT: Duration = Duration::from_secs(2);
const TABLES: [&str; 4] = ["mangle", "nat", "raw", "filter"];

/// Runs Felix until its process would exit, and returns why: `config changed`, `encapsulation changed`,
/// or `panic: …`. A new life begins with nothing but what the kernel holds.
pub async fn run(io: Io<Event>, config: Config) -> String {
    let line = Line::info("felix/daemon.go 146", "Felix starting up");
    say(&io, line.text("version", &config.version.to_string()));
    let mut world = World::default();
    let params = configuration(&io, &config, &mut world).await;
    let ended = match Life::start(&io, &config, params, world).await {
        Ok(mut life) => life.go_on().await,
        Err(panicked) => Err(panicked),
    };
    ended.unwrap_or_else(|Panicked(message)| format!("panic: {message}"))
}

/// Waits for a configuration that Felix can start with.
async fn configuration(io: &Io<Event>, config: &Config, world: &mut World) -> Params {
    say(
        io,
        Line::info("felix/daemon.go 173", "Loading configuration..."),
    );
    loop {
        let event = io.event().await;
        let is_config = matches!(event, Event::Config(_));
        world.take(event);
        let Some(spec) = world.spec.as_ref().filter(|_| is_config) else {
            continue;
        };
        let mut log = Vec::new();
        let params = Params::resolve(spec, config, &mut log);
        for line in log {
            say(io, line);
        }
        if let Ok(params) = params {
            return params;
        }
        let message = "Failed to parse/validate configuration from datastore.";
        say(
            io,
            Line::new(Severity::Error, "felix/daemon.go 262", message),
        );
    }
}

/// One family's tables and sets.
struct Stack {
    renderer: Renderer,
    tables: Vec<Synced>,
    sets: Sets,
}

struct Life {
    io: Io<Event>,
    config: Config,
    params: Params,
    world: World,
    stacks: Vec<Stack>,
    kube_nft: Vec<KubeNft>,
    throttle: Throttle,
    throttled: bool,
    /// Whether something was told since the last pass, or a timer ran out.
    needs_sync: bool,
    resched: Option<Duration>,
    applied_once: bool,
    exit: Option<(Duration, &'static str)>,
}

impl Life {
    async fn start(
        io: &Io<Event>,
        config: &Config,
        params: Params,
        world: World,
    ) -> Result<Self, Panicked> {
        let ipv6 = params.is("Ipv6Support");
        let iptables = Iptables::detect(io, &params, ipv6).await?;
        let families: &[Family] = if ipv6 {
            &[Family::V4, Family::V6]
        } else {
            &[Family::V4]
        };
        let bpf = params.is("BPFEnabled");
        let cleanup = bpf && params.is("BPFKubeProxyIptablesCleanupEnabled");
        if cleanup {
            let layer = config.version.cleanup_layer();
            let message =
                format!("BPF enabled, configuring {layer} layer to clean up kube-proxy's rules.");
            say(io, Line::info("felix/int_dataplane.go 431", message));
        }
        let mut stacks = Vec::new();
        for &family in families {
            let Some(mut renderer) = Renderer::new(config, &params, family) else {
                let message = "Not enough mark bits available.";
                say(
                    io,
                    Line::new(Severity::Fatal, "felix/driver.go 119", message),
                );
                return Err(Panicked(message.to_owned()));
            };
            renderer.random_fully = iptables.modern;
            renderer.vxlan = world.vxlan();
            let table = |name| synced(io, config, &params, &iptables, name, family, cleanup);
            stacks.push(Stack {
                renderer,
                tables: TABLES.map(table).into(),
                sets: Sets::new(),
            });
        }
        let nft = cleanup && config.version.deletes_nft_tables();
        let refresh = params.time("NftablesRefreshInterval");
        let kube_nft = families
            .iter()
            .filter(|_| nft)
            .map(|&family| KubeNft::new(family, refresh));
        let mut life = Self {
            io: io.clone(),
            config: config.clone(),
            kube_nft: kube_nft.collect(),
            params,
            world,
            stacks,
            throttle: Throttle::new(io.now()),
            throttled: false,
            needs_sync: true,
            resched: None,
            applied_once: false,
            exit: None,
        };
        if bpf && config.version.inserts_early_rules() {
            life.insert_early_rules().await;
        }
        Ok(life)
    }

    /// Marks flows that Linux conntrack knows, before anything else is known.
    async fn insert_early_rules(&mut self) {
        for stack in &mut self.stacks {
            let rules = early_rules();
            let filter = stack.tables.last_mut().expect("filter is the last table");
            for chain in ["FORWARD", "OUTPUT"] {
                filter
                    .insert_early(&self.io, Chain::new(chain, rules.clone()))
                    .await;
            }
        }
    }

    /// The main loop.
    async fn go_on(&mut self) -> Result<String, Panicked> {
        loop {
            while let Some(event) = self.io.try_event() {
                self.take(event);
            }
            let now = self.io.now();
            if let Some((_, reason)) = self.exit.filter(|(at, _)| now >= *at) {
                let message = format!("Exiting for {}", reason.replace(" changed", " change"));
                say(
                    &self.io,
                    Line::info("felix/daemon.go 842", message).with("rc", 129),
                );
                return Ok(reason.to_owned());
            }
            if self.resched.is_some_and(|at| now >= at) {
                self.resched = None;
                self.needs_sync = true;
            }
            if self.may_apply(now) {
                self.apply().await?;
                continue;
            }
            let waiting = self.needs_sync && self.world.in_sync;
            let pass = waiting.then(|| self.throttle.next());
            let exit = self.exit.map(|(at, _)| at);
            let wake = [self.resched, pass, exit].into_iter().flatten().min();
            if let Some(event) = next_event(&self.io, wake).await {
                self.take(event);
            }
        }
    }

    fn take(&mut self, event: Event) {
        self.needs_sync = true;
        let was_in_sync = self.world.in_sync;
        let is_config = matches!(event, Event::Config(_));
        self.world.take(event);
        if is_config {
            self.reconfigure();
        }
        if self.world.in_sync && !was_in_sync {
            say(
                &self.io,
                Line::info("felix/daemon.go 1243", "Datastore now in sync."),
            );
            for stack in &mut self.stacks {
                stack.renderer.vxlan = self.world.vxlan();
            }
        } else if was_in_sync
            && self
                .stacks
                .iter()
                .any(|stack| stack.renderer.vxlan != self.world.vxlan())
        {
            let message = "IPIP and/or VXLAN encapsulation changed, need to restart.";
            self.shut_down(
                Some(Line::warning("felix/daemon.go 1258", message)),
                "encapsulation changed",
            );
        }
    }

    /// Felix takes nearly every change of its configuration by starting anew.
    fn reconfigure(&mut self) {
        let Some(spec) = &self.world.spec else {
            return;
        };
        let Ok(params) = Params::resolve(spec, &self.config, &mut Vec::new()) else {
            let message = "Bug: failed to apply configuration update.";
            let line = Line::new(Severity::Error, "felix/daemon.go 1331", message);
            self.shut_down(Some(line), "config update failed");
            return;
        };
        let (lines, restart) = self.params.changes(&params);
        for line in lines {
            say(&self.io, line);
        }
        self.params = params;
        if restart {
            self.shut_down(None, "config changed");
        }
    }

    /// Decides to exit, once.
    fn shut_down(&mut self, why: Option<Line>, reason: &'static str) {
        if self.exit.is_some() {
            return;
        }
        let lines = [
            Line::warning("felix/daemon.go 754", "Felix is shutting down").text("reason", reason),
            Line::info(
                "felix/daemon.go 809",
                "Sleeping to avoid tight restart loop.",
            )
            .text("reason", reason),
        ];
        why.into_iter()
            .chain(lines)
            .for_each(|line| say(&self.io, line));
        self.exit = Some((self.io.now() + BEFORE_EXIT, reason));
    }

    fn may_apply(&mut self, now: Duration) -> bool {
        if !(self.needs_sync && self.world.in_sync) {
            return false;
        }
        let admitted = self.throttle.admit(now);
        if admitted == self.throttled {
            self.throttled = !admitted;
            let state = if admitted {
                "no longer throttled"
            } else {
                "throttled"
            };
            say(
                &self.io,
                Line::info(
                    "felix/int_dataplane.go 1867",
                    format!("Dataplane updates {state}"),
                ),
            );
        }
        admitted
    }

    /// One pass through all tables, side by side.
    async fn apply(&mut self) -> Result<(), Panicked> {
        self.needs_sync = false;
        for stack in &mut self.stacks {
            let family = stack.renderer.family;
            let sets = sets::needed(family, &self.world.pools, &self.world.nodes);
            if sets != stack.sets && sets::write(&self.io, family, &sets).await {
                stack.sets = sets;
            }
            for synced in &mut stack.tables {
                synced
                    .table
                    .set(self.world.layout(synced.table.name, &stack.renderer));
                synced.drain_log(&self.io);
            }
        }
        // `try_join_all` polls all of fewer than thirty-one futures each time, when it can count them;
        // these are at most eight, in a `Vec`.
        let io = &self.io;
        let tables = self.stacks.iter_mut().flat_map(|stack| &mut stack.tables);
        let applies: Vec<_> = tables.map(|synced| synced.apply(io)).collect();
        let mut next = try_join_all(applies).await?;
        for table in &mut self.kube_nft {
            next.push(table.apply(io).await);
        }
        self.resched = next
            .into_iter()
            .flatten()
            .min()
            .map(|wait| self.io.now() + wait);
        if !std::mem::replace(&mut self.applied_once, true) {
            let line = Line::info(
                "felix/int_dataplane.go 1857",
                "Completed first update to dataplane.",
            );
            say(
                &self.io,
                line.with("secsSinceStart", self.io.now().as_secs_f64()),
            );
        }
        Ok(())
    }
}

fn synced(
    io: &Io<Event>,
    config: &Config,
    params: &Params,
    iptables: &Iptables,
    name: &'static str,
    family: Family,
    cleanup: bool,
) -> Synced {
    let insert_mode = match params.word("ChainInsertMode") {
        "append" => InsertMode::Append,
        _ => InsertMode::Insert,
    };
    let refresh = params.time("IptablesRefreshInterval");
    let post_write = params.time("IptablesPostWriteCheckIntervalSecs");
    let measures = config.version.measures_commands();
    let mut order = ChaCha8Rng::seed_from_u64(config.seed);
    order.set_stream(name.bytes().fold(u64::from(family.number()), |sum, byte| {
        sum * 31 + u64::from(byte)
    }));
    let mut synced = Synced {
        table: Table::new(name, family, iptables.backend, insert_mode, cleanup),
        timers: Timers::new(io.now(), refresh, post_write, measures),
        tools: iptables.tools(family, params),
        order,
    };
    synced.drain_log(io);
    synced
}

/// The next event, or nothing when the time comes first.
async fn next_event(io: &Io<Event>, wake: Option<Duration>) -> Option<Event> {
    let Some(wake) = wake else {
        return Some(io.event().await);
    };
    match select(pin!(io.event()), pin!(io.at(wake))).await {
        Either::Left((event, _)) => Some(event),
        Either::Right(_) => None,
    }
}
