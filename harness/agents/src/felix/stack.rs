//! One family's tables, with the IP sets that their rules match.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{
    Config, Event, Family, InsertMode,
    apply::{Panicked, Synced, say},
    detect::Iptables,
    log::Line,
    params::Params,
    renderer::Renderer,
    rule::Chain,
    sets::{self, Sets},
    static_bpf::early_rules,
    table::Table,
    timers::Timers,
    world::World,
};
use crate::step::{Io, Severity};

const TABLES: [&str; 4] = ["mangle", "nat", "raw", "filter"];

/// One family's tables and sets.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) renderer: Renderer,
    pub(super) tables: Vec<Synced>,
    /// As last written.
    sets: Sets,
}

impl Stack {
    /// Tables of which nothing is known yet. Felix panics when it has no mark bits to work with.
    pub(super) fn new(
        io: &Io<Event>,
        config: &Config,
        params: &Params,
        iptables: &Iptables,
        family: Family,
        vxlan: bool,
    ) -> Result<Self, Panicked> {
        let mut renderer = Renderer::new(config, params, family).map_err(|too_few| {
            say(
                io,
                Line::new(Severity::Fatal, "felix/driver.go 119", too_few.0),
            );
            Panicked(too_few.0.to_owned())
        })?;
        renderer.random_fully = iptables.modern;
        renderer.vxlan = vxlan;
        let table = |name| synced(io, config, params, iptables, name, family);
        Ok(Self {
            renderer,
            tables: TABLES.map(table).into(),
            sets: Sets::new(),
        })
    }

    /// Marks flows that Linux conntrack knows, before anything else is known.
    pub(super) async fn insert_early(&mut self, io: &Io<Event>) {
        let filter = self.tables.last_mut().expect("filter is the last table");
        for chain in ["FORWARD", "OUTPUT"] {
            filter
                .insert_early(io, Chain::new(chain, early_rules()))
                .await;
        }
    }

    /// Tells the tables what they shall hold, and writes the sets that takes: a set must be there
    /// before the first rule that matches it.
    pub(super) async fn prepare(&mut self, io: &Io<Event>, world: &World) {
        let family = self.renderer.family;
        let sets = sets::needed(&self.renderer, &world.pools, &world.nodes);
        if sets != self.sets && sets::write(io, family, &sets).await {
            self.sets = sets;
        }
        for synced in &mut self.tables {
            synced
                .table
                .set(world.layout(synced.table.name, &self.renderer));
            synced.drain_log(io);
        }
    }
}

fn synced(
    io: &Io<Event>,
    config: &Config,
    params: &Params,
    iptables: &Iptables,
    name: &'static str,
    family: Family,
) -> Synced {
    let insert_mode = match params.word("ChainInsertMode") {
        "append" => InsertMode::Append,
        _ => InsertMode::Insert,
    };
    let cleanup = params.is("BPFEnabled") && params.is("BPFKubeProxyIptablesCleanupEnabled");
    let refresh = params.time("IptablesRefreshInterval");
    let post_write = params.time("IptablesPostWriteCheckIntervalSecs");
    let measures = config.version.measures_commands();
    let mut order = ChaCha8Rng::seed_from_u64(config.seed);
    // A stream of its own for each table, whatever order the tables are applied in.
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
