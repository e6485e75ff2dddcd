//! A conntrack table that is full of connections that nobody has.
//!
//! Entries are established and assured: the kernel drops none of them early to make room, as it does with
//! connections that were never answered. They live as long as the node's established connections do, so
//! that a shorter timeout there is a shorter life here.

use chainbreak_model::{case::Entries, names::NodeName};
use chainbreak_probe::wire::{
    Errand,
    conntrack::{Fill, NETWORK},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::ChildStdin,
    time::Instant,
};

use super::{
    Injection, sysctl,
    undo::{How, Undo},
};
use crate::{
    cluster::{Cluster, Command, Place, Process},
    infra_error::InfraError,
    output::ended,
};

/// A node's table.
struct Table {
    count: u32,
    max: u32,
    /// Seconds that an established connection is remembered.
    timeout: u32,
}

impl Injection<'_> {
    /// Adds entries on one node or on every one.
    pub(super) async fn fill(
        &mut self,
        node: Option<&NodeName>,
        entries: Entries,
    ) -> Result<(), InfraError> {
        for node in self.nodes(node) {
            self.fill_one(&Place::Node(node), entries).await?;
        }
        Ok(())
    }

    async fn fill_one(&mut self, at: &Place, entries: Entries) -> Result<(), InfraError> {
        let before = self.table(at).await?;
        let room = before.max.saturating_sub(before.count);
        let wanted = match entries {
            Entries::Number(number) => number,
            // More than fit: they take the room of what was there and ends.
            Entries::Full => room + before.max / 64,
        };
        let begin = Instant::now();
        let fill = Fill {
            entries: wanted,
            timeout_s: before.timeout,
            seed: self.seed,
        };
        let trouble = |why| InfraError::new(format!("fill conntrack of {at}"), why);
        let (filler, filled) = Filler::start(self.cluster, at, fill)
            .await
            .map_err(trouble)?;
        self.undo.push(Undo {
            text: format!("delete the entries of {NETWORK} from conntrack on {at}"),
            how: How::EmptyConntrack(filler),
        });
        filled.await.map_err(trouble)?;
        let took = begin.elapsed();
        let after = self.table(at).await?;
        self.say(format!(
            "fill conntrack of {at} from {} to {} of {} entries in {took:.1?}, each for {} s",
            before.count, after.count, after.max, before.timeout
        ));
        Ok(())
    }

    async fn table(&self, at: &Place) -> Result<Table, InfraError> {
        let read = async |name: &str| {
            let name = format!("net.netfilter.nf_conntrack_{name}");
            let text = self.run(at, &["cat", &sysctl::path(&name)]).await?;
            let number = text.trim().parse();
            number.map_err(|error| InfraError::new(format!("read {name} of {at}"), error))
        };
        Ok(Table {
            count: read("count").await?,
            max: read("max").await?,
            timeout: read("tcp_timeout_established").await?,
        })
    }
}

/// Who fills a table, and keeps it full.
pub(super) struct Filler {
    at: Place,
    stdin: Option<ChildStdin>,
    process: Process,
}

impl Filler {
    /// Starts it. The second is over when it has filled the table.
    async fn start(
        cluster: &dyn Cluster,
        at: &Place,
        fill: Fill,
    ) -> Result<(Self, impl Future<Output = Result<(), String>>), String> {
        let process = cluster.exec(at, &Command::Probe).await;
        let mut process = process.map_err(|error| error.to_string())?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let (Some(mut stdin), Some(stdout), Some(mut stderr)) =
            (stdin, stdout, process.stderr.take())
        else {
            return Err("its standard input and output are not piped".to_owned());
        };
        let order = line(&Errand::FillConntrack(fill))?;
        let told = stdin.write_all(order.as_bytes()).await;
        told.map_err(|error| error.to_string())?;
        let filler = Self {
            at: at.clone(),
            stdin: Some(stdin),
            process,
        };
        let filled = async move {
            let said = BufReader::new(stdout).lines().next_line().await;
            if said.map_err(|error| error.to_string())?.is_some() {
                return Ok(());
            }
            let mut why = String::new();
            let read = stderr.read_to_string(&mut why).await;
            read.map_err(|error| error.to_string())?;
            Err(why)
        };
        Ok((filler, filled))
    }

    /// Ends it, and deletes what it made. That nothing of it is left any more is fine.
    pub(super) async fn empty(&mut self, cluster: &dyn Cluster) -> Result<(), String> {
        drop(self.stdin.take());
        let over = self.process.wait().await;
        over.map_err(|error| error.to_string())?;
        let process = cluster.exec(&self.at, &Command::Probe).await;
        let process = process.map_err(|error| error.to_string())?;
        ended(process, &line(&Errand::EmptyConntrack)?).await?;
        Ok(())
    }
}

fn line(errand: &Errand) -> Result<String, String> {
    let line = serde_json::to_string(errand).map_err(|error| error.to_string())?;
    Ok(line + "\n")
}
