//! Bringing one table in line: read if need be, write, and again until it holds (table.go, `Apply`).

use std::time::Duration;

use rand_chacha::ChaCha8Rng;

use super::{
    Event,
    load::Incompatible,
    log::{Line, go_duration},
    patterns::Id,
    plan::{Input, Plan},
    rule::Chain,
    table::Table,
    timers::Timers,
};
use crate::step::{Io, Output, Severity};

/// Felix panics: its process ends with these words.
#[derive(Debug)]
pub(super) struct Panicked(pub(super) String);

/// The commands of one family and backend.
#[derive(Debug, Clone)]
pub(super) struct Tools {
    /// `iptables-legacy-save` and the like.
    pub(super) save: String,
    /// `iptables-legacy-restore` with its flags.
    pub(super) restore: Vec<String>,
}

/// A table with its timers and commands.
#[derive(Debug)]
pub(super) struct Synced {
    pub(super) table: Table,
    pub(super) timers: Timers,
    pub(super) tools: Tools,
    /// Stands in for Go's random order of map keys.
    pub(super) order: ChaCha8Rng,
}

impl Synced {
    /// Applies what is due; says how long until the next apply is needed.
    pub(super) async fn apply(&mut self, io: &Io<Event>) -> Result<Option<Duration>, Panicked> {
        let began = io.now();
        if let Some(reason) = self.timers.due(began) {
            self.table.invalidate(reason);
        }
        let mut retries = 10;
        let mut backoff = Duration::from_millis(1);
        loop {
            if !self.table.in_sync {
                self.read(io).await?;
            }
            let Err(error) = self.write(io).await else {
                break;
            };
            if retries == 0 {
                return Err(self.give_up(io, &error).await);
            }
            retries -= 1;
            let will_retry = Line::warning(
                "felix/table.go 1063",
                "Failed to program iptables, will retry",
            );
            self.say(io, will_retry.with("error", &error));
            io.at(io.now() + backoff).await;
            backoff *= 2;
            self.say(
                io,
                Line::warning("felix/table.go 1066", "Retrying...").with("error", &error),
            );
        }
        if retries < 10 {
            self.say(
                io,
                Line::warning("felix/table.go 1082", "Succeeded after retry."),
            );
        }
        let took = io.now().saturating_sub(began);
        if self.timers.measures && took > Duration::from_secs(1) {
            let line = Line::info("felix/table.go 1011", "Updating iptables took >1s")
                .with("applyTime", go_duration(took))
                .text("reasonForApply", self.table.reason);
            say(io, line);
        }
        Ok(self.timers.next(began))
    }

    /// Reads the table; a save that keeps failing ends the process.
    async fn read(&mut self, io: &Io<Event>) -> Result<(), Panicked> {
        let save = self.tools.save.clone();
        let mut pause = Duration::from_millis(100);
        self.timers.reading(io.now());
        for last in [false, false, false, true] {
            let Err(error) = self.try_read(io).await else {
                return Ok(());
            };
            let failed = Line::warning("felix/table.go 809", format!("{save} command failed"));
            self.say(io, failed.with("error", error).text("stderr", ""));
            if last {
                break;
            }
            io.at(io.now() + pause).await;
            pause *= 2;
        }
        let message = format!("{save} command failed after retries");
        self.say(
            io,
            Line::new(Severity::Fatal, "felix/table.go 815", message.clone()),
        );
        Err(Panicked(message))
    }

    async fn try_read(&mut self, io: &Io<Event>) -> Result<(), String> {
        let output = self.save(io).await;
        self.timers.saved(output.took);
        if output.exit != 0 {
            let error = exit_error(output.exit);
            say(
                io,
                Line::warning("felix/table.go 871", "iptables save failed").with("error", &error),
            );
            return Err(error);
        }
        let loaded = self.table.load(&output.stdout);
        self.drain_log(io);
        loaded.map_err(|_incompatible: Incompatible| Incompatible::TEXT.to_owned())
    }

    /// Writes what is dirty. After a failure nothing is believed of the table any more.
    async fn write(&mut self, io: &Io<Event>) -> Result<(), String> {
        let plan = self.table.plan(&mut self.order);
        if !plan.input.is_empty() {
            self.restore(io, &plan)
                .await
                .map_err(|error| format!("writing out buffer: {error}"))?;
            self.timers.wrote(io.now());
        }
        self.timers.settle();
        self.table.commit(plan);
        Ok(())
    }

    async fn restore(&mut self, io: &Io<Event>, plan: &Plan) -> Result<(), String> {
        let output = self.run_restore(io, plan.input.clone()).await;
        self.timers.restored(output.took);
        if output.exit == 0 {
            return Ok(());
        }
        let error = exit_error(output.exit);
        let line = Line::warning(
            "felix/table.go 1440",
            "Failed to execute ip(6)tables-restore command",
        )
        .with("error", &error)
        .text("errorOutput", &output.stderr)
        .text("input", &plan.input)
        .text("output", &output.stdout);
        self.say(io, line);
        self.table.in_sync = false;
        Err(error)
    }

    async fn run_restore(&self, io: &Io<Event>, input: String) -> Output {
        let argv: Vec<&str> = self.tools.restore.iter().map(String::as_str).collect();
        io.run(&argv, input).await
    }

    /// Inserts rules at the top of a kernel chain before the table was ever synced, unless they are
    /// there. The first sync puts everything in its place, so a failure is only said.
    pub(super) async fn insert_early(&mut self, io: &Io<Event>, rules: Chain) {
        let save = self.save(io).await;
        let present = self.table.ids_in(&save.stdout, &rules.name);
        self.drain_log(io);
        if rules
            .ids
            .iter()
            .any(|id| present.contains(&Id::Ours(id.clone())))
        {
            return;
        }
        let chain = &rules.name;
        let mut input = Input::new(self.table.name);
        for index in 0..rules.rules.len() {
            input.line(&rules.line(index, &format!("-I {chain} {}", index + 1)));
        }
        let output = self.run_restore(io, input.finish()).await;
        if output.exit != 0 {
            let message = format!(
                "Failed inserting some early rules to filter {chain}, some flows may get temporarily disrupted."
            );
            let error = format!("writing out buffer: {}", exit_error(output.exit));
            say(
                io,
                Line::warning("felix/int_dataplane.go 1594", message).with("error", error),
            );
        }
    }

    async fn save(&self, io: &Io<Event>) -> Output {
        io.run(&[&self.tools.save, "-t", self.table.name], String::new())
            .await
    }

    async fn give_up(&self, io: &Io<Event>, error: &str) -> Panicked {
        let fail =
            |severity, site, message: &str| Line::new(severity, site, message).with("error", error);
        let message = "Failed to program iptables, loading diags before panic.";
        self.say(io, fail(Severity::Error, "felix/table.go 1070", message));
        let state = self.save(io).await.stdout;
        let line = Line::new(
            Severity::Error,
            "felix/table.go 1076",
            "Current state of iptables",
        );
        self.say(io, line.text("iptablesState", &state));
        let message = "Failed to program iptables, giving up after retries";
        self.say(io, fail(Severity::Fatal, "felix/table.go 1078", message));
        Panicked(message.to_owned())
    }

    /// Writes a line with the fields that say which table it is.
    fn say(&self, io: &Io<Event>, line: Line) {
        say(io, self.table.about_this(line));
    }

    /// Writes what the table has to say.
    pub(super) fn drain_log(&mut self, io: &Io<Event>) {
        self.table.log.drain(..).for_each(|line| say(io, line));
    }
}

/// Writes a line.
pub(super) fn say(io: &Io<Event>, line: Line) {
    let line = line.build();
    io.log(line.severity, line.site, line.text);
}

/// Go's words for how a command ended.
fn exit_error(exit: i32) -> String {
    match exit {
        137 => "signal: killed".to_owned(),
        143 => "signal: terminated".to_owned(),
        code => format!("exit status {code}"),
    }
}
