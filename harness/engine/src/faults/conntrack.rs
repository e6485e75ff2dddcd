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
    cluster::{Cluster, Command, Debt, Place, Process},
    infra_error::InfraError,
};

/// The settings that tell a node's table.
pub(super) const TABLE: [&str; 3] = [
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
];

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
        let debt = Debt {
            text: format!("delete the entries of {NETWORK} from conntrack on {at}"),
            at: at.clone(),
            command: Command::Probe,
            input: line(&Errand::EmptyConntrack).map_err(trouble)?,
        };
        let owed = self.owe(&debt).await?;
        let (filler, filled) = Filler::start(self.cluster, at, fill)
            .await
            .map_err(trouble)?;
        self.undo.push(Undo {
            text: debt.text.clone(),
            how: How::EmptyConntrack(filler, debt),
            owed,
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
            let text = self.run(at, &["cat", &sysctl::path(name)]).await?;
            let number = text.trim().parse();
            number.map_err(|error| InfraError::new(format!("read {name} of {at}"), error))
        };
        let [count, max, timeout] = TABLE;
        Ok(Table {
            count: read(count).await?,
            max: read(max).await?,
            timeout: read(timeout).await?,
        })
    }
}

/// Who fills a table, and keeps it full.
pub(super) struct Filler {
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

    /// Ends it. What it made is there after that.
    pub(super) async fn end(&mut self) -> Result<(), String> {
        drop(self.stdin.take());
        let over = self.process.wait().await;
        over.map(drop).map_err(|error| error.to_string())
    }
}

fn line(errand: &Errand) -> Result<String, String> {
    let line = serde_json::to_string(errand).map_err(|error| error.to_string())?;
    Ok(line + "\n")
}
