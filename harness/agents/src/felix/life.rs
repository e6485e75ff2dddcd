//! One life of the process: start, the main loop, and the two ways it ends (`felix/daemon/daemon.go` and
//! `felix/dataplane/linux/int_dataplane.go`).

use std::{collections::BTreeMap, pin::pin, time::Duration};

use futures::future::{Either, select, try_join_all};

use super::{
    Config, Event, Family,
    apply::{Panicked, say},
    detect::Iptables,
    kube_nft::KubeNft,
    log::Line,
    params::Params,
    programs::{self, Programs},
    proxy_mode::ProxyMode,
    stack::Stack,
    throttle::Throttle,
    world::World,
};
use crate::step::{Io, Severity};

/// Felix exits this long after it decided to, so that it does not restart in a tight loop.
const BEFORE_EXIT: Duration = Duration::from_secs(2);

/// Runs Felix until its process would exit, and returns why: `config changed`, `encapsulation changed`,
/// or `panic: …`. A new life begins with nothing but what the kernel holds.
pub async fn run(io: Io<Event>, config: Config) -> String {
    io.log_from(early(&config.env));
    let line = Line::info("felix/daemon.go 146", "Felix starting up");
    say(&io, line.text("version", &config.version.to_string()));
    live(&io, &config)
        .await
        .unwrap_or_else(|Panicked(message)| format!("panic: {message}"))
}

async fn live(io: &Io<Event>, config: &Config) -> Result<String, Panicked> {
    let mut world = World::new(config);
    let params = configuration(io, config, &mut world).await;
    Life::start(io, config, params, world).await?.go_on().await
}

/// Waits for a configuration that Felix can start with.
async fn configuration(io: &Io<Event>, config: &Config, world: &mut World) -> Params {
    say(
        io,
        Line::info("felix/daemon.go 173", "Loading configuration..."),
    );
    loop {
        let event = io.event().await;
        if let Event::Unreached(unreached) = &event
            && let Some(line) = unreached.line_at_start()
        {
            say(io, line);
        }
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

/// From which severity on lines are printed until the configuration is known: errors alone, where the environment says nothing
/// (`ConfigureEarlyLogging`, Felix v3.25 to v3.32; v3.28.1 and v3.32.1 print `Successfully loaded configuration.` first).
fn early(env: &BTreeMap<String, String>) -> Severity {
    let names = ["FELIX_EARLYLOGSEVERITYSCREEN", "FELIX_LOGSEVERITYSCREEN"];
    let said = names.iter().find_map(|name| env.get(*name));
    said.map_or(Severity::Error, |word| screen(&word.to_uppercase()))
}

/// From which severity on lines are printed.
fn screen(word: &str) -> Severity {
    match word {
        "WARNING" => Severity::Warning,
        "ERROR" => Severity::Error,
        "FATAL" => Severity::Fatal,
        _ => Severity::Info,
    }
}

/// From now on it logs as its configuration says.
fn loaded(io: &Io<Event>, config: &Config, params: &Params) {
    io.log_from(screen(params.word("LogSeverityScreen")));
    let line = Line::info("felix/daemon.go 391", "Successfully loaded configuration.");
    say(io, line.text("version", &config.version.to_string()));
}

struct Life {
    io: Io<Event>,
    config: Config,
    params: Params,
    world: World,
    stacks: Vec<Stack>,
    kube_nft: Vec<KubeNft>,
    programs: Option<Programs>,
    proxy_mode: ProxyMode,
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
        loaded(io, config, &params);
        let ipv6 = params.is("Ipv6Support");
        let proxy_mode = ProxyMode::detect(io, &params, config.version).await;
        let iptables = Iptables::detect(io, &params, ipv6).await?;
        let mut families = vec![Family::V4];
        families.extend(ipv6.then_some(Family::V6));
        let bpf = params.is("BPFEnabled");
        let cleanup = bpf && params.is("BPFKubeProxyIptablesCleanupEnabled");
        if cleanup {
            let layer = config.version.cleanup_layer();
            let message =
                format!("BPF enabled, configuring {layer} layer to clean up kube-proxy's rules.");
            say(io, Line::info("felix/int_dataplane.go 431", message));
        }
        let stack = |&family| {
            let vxlan = world.vxlan(family);
            Stack::new(io, config, &params, &iptables, family, vxlan)
        };
        let stacks: Result<Vec<Stack>, Panicked> = families.iter().map(stack).collect();
        let refresh = match params.word("NFTablesMode") {
            "Enabled" => params.time("NftablesRefreshInterval"),
            _ => params.time("IptablesRefreshInterval"),
        };
        let programs = match (config.programs, bpf) {
            (true, true) => Some(Programs::attach(io, config, &params).await?),
            (true, false) => {
                programs::remove(io).await?;
                None
            }
            (false, _) => None,
        };
        let nft = cleanup && config.version.deletes_nft_tables();
        let each_time = config.version.reads_nft_tables_each_time();
        let nft = families.iter().filter(|_| nft);
        let mut life = Self {
            io: io.clone(),
            config: config.clone(),
            kube_nft: nft
                .map(|&family| KubeNft::new(family, refresh, each_time))
                .collect(),
            programs,
            proxy_mode,
            params,
            world,
            stacks: stacks?,
            throttle: Throttle::new(io.now()),
            throttled: false,
            needs_sync: true,
            resched: None,
            applied_once: false,
            exit: None,
        };
        if bpf && config.version.inserts_early_rules() {
            for stack in &mut life.stacks {
                stack.insert_early(io).await;
            }
        }
        Ok(life)
    }

    /// The main loop.
    async fn go_on(&mut self) -> Result<String, Panicked> {
        loop {
            while let Some(event) = self.io.try_event() {
                self.take(event);
            }
            let now = self.io.now();
            if let Some((_, reason)) = self.exit.filter(|(at, _)| now >= *at) {
                let line = match reason.strip_suffix(" changed") {
                    Some(what) => {
                        Line::info("felix/daemon.go 842", format!("Exiting for {what} change"))
                            .with("rc", 129)
                    }
                    None => Line::new(Severity::Fatal, "felix/daemon.go 822", "Exiting.")
                        .text("reason", reason),
                };
                say(&self.io, line);
                return Ok(reason.to_owned());
            }
            if self.resched.is_some_and(|at| now >= at) {
                self.resched = None;
                self.needs_sync = true;
            }
            if let Some(line) = self.proxy_mode.look(&self.io).await {
                self.shut_down(Some(line), "config changed");
            }
            if self.sync_programs(now).await? {
                continue;
            }
            if self.may_apply(now) {
                self.apply().await?;
                continue;
            }
            let waiting = self.needs_sync && self.world.in_sync;
            let pass = waiting.then(|| self.throttle.next());
            let exit = self.exit.map(|(at, _)| at);
            let look = self.proxy_mode.due();
            let nat = self.programs_due();
            let wake = [self.resched, pass, exit, look, nat]
                .into_iter()
                .flatten()
                .min();
            if let Some(event) = next_event(&self.io, wake).await {
                self.take(event);
            }
        }
    }

    /// When the programs' map is to be written next.
    fn programs_due(&self) -> Option<Duration> {
        self.programs.as_ref()?.due(&self.world.nat)
    }

    /// Writes the programs' map if it is time. The real one does so beside everything else.
    async fn sync_programs(&mut self, now: Duration) -> Result<bool, Panicked> {
        let is_due = self.programs_due().is_some_and(|at| now >= at);
        if let Some(programs) = self.programs.as_mut().filter(|_| is_due) {
            programs.sync(&self.io, &mut self.world.nat).await?;
        }
        Ok(is_due)
    }

    fn take(&mut self, event: Event) {
        if let Event::Unreached(unreached) = &event {
            return say(&self.io, unreached.line(self.config.version));
        }
        self.needs_sync |= !matches!(event, Event::Proxied(_));
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
                stack.renderer.vxlan = self.world.vxlan(stack.renderer.family);
            }
        } else if was_in_sync
            && self
                .stacks
                .iter()
                .map(|stack| &stack.renderer)
                .any(|it| it.vxlan != self.world.vxlan(it.family))
        {
            let message = "IPIP and/or VXLAN encapsulation changed, need to restart.";
            self.shut_down(
                Some(Line::warning("felix/daemon.go 1258", message)),
                "encapsulation changed",
            );
        }
    }

    /// Felix takes nearly every change of its configuration by restarting.
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
            stack.prepare(&self.io, &self.world).await;
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
