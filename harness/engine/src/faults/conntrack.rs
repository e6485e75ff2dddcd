//! A conntrack table that is full of connections that nobody has.
//!
//! Entries are established and assured: the kernel drops none of them early to make room, as it does with
//! connections that were never answered. They live as long as the node's established connections do, so
//! that a shorter timeout there is a shorter life here.

use chainbreak_model::{case::Entries, names::NodeName};
use chainbreak_probe::wire::{
    Errand,
    conntrack::{Fill, NETWORK, Report},
};
use tokio::time::Instant;

use super::{
    Injection, sysctl,
    undo::{How, Undo},
};
use crate::{
    cluster::{Cluster, Command, Place},
    output::ended,
    trouble::Trouble,
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
    ) -> Result<(), Trouble> {
        for node in self.nodes(node) {
            self.fill_one(&Place::Node(node), entries).await?;
        }
        Ok(())
    }

    async fn fill_one(&mut self, at: &Place, entries: Entries) -> Result<(), Trouble> {
        let before = self.table(at).await?;
        let room = before.max.saturating_sub(before.count);
        let wanted = match entries {
            Entries::Number(number) => number,
            // More than fit: what was there and ends meanwhile makes no hole.
            Entries::Full => room + before.max / 64,
        };
        self.undo.push(Undo {
            text: format!("delete the entries of {NETWORK} from conntrack on {at}"),
            how: How::EmptyConntrack(at.clone()),
        });
        let begin = Instant::now();
        let fill = Fill {
            entries: wanted,
            timeout_s: before.timeout,
            seed: self.seed,
        };
        let filled = errand(self.cluster, at, &Errand::FillConntrack(fill)).await;
        filled.map_err(|why| Trouble::new(format!("fill conntrack of {at}"), why))?;
        let took = begin.elapsed();
        let after = self.table(at).await?;
        self.say(format!(
            "fill conntrack of {at} from {} to {} of {} entries in {took:.1?}, each for {} s",
            before.count, after.count, after.max, before.timeout
        ));
        Ok(())
    }

    async fn table(&self, at: &Place) -> Result<Table, Trouble> {
        let read = async |name: &str| {
            let name = format!("net.netfilter.nf_conntrack_{name}");
            let text = self.run(at, &["cat", &sysctl::path(&name)]).await?;
            let number = text.trim().parse();
            number.map_err(|error| Trouble::new(format!("read {name} of {at}"), error))
        };
        Ok(Table {
            count: read("count").await?,
            max: read("max").await?,
            timeout: read("tcp_timeout_established").await?,
        })
    }
}

/// Deletes what filled the table. That nothing of it is left any more is as well.
pub(super) async fn empty(cluster: &dyn Cluster, at: &Place) -> Result<(), String> {
    errand(cluster, at, &Errand::EmptyConntrack).await.map(drop)
}

async fn errand(cluster: &dyn Cluster, at: &Place, errand: &Errand) -> Result<Report, String> {
    let process = cluster.exec(at, &Command::Probe).await;
    let process = process.map_err(|error| error.to_string())?;
    let line = serde_json::to_string(errand).map_err(|error| error.to_string())?;
    let said = ended(process, &(line + "\n")).await?;
    serde_json::from_str(&said).map_err(|error| error.to_string())
}
