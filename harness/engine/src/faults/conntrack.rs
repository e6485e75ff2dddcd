//! A conntrack table that is full of connections that nobody has.
//!
//! Entries are established and assured: the kernel drops none of them early to make room, as it does with
//! connections that were never answered. They live as long as the node's established connections do, so
//! that a shorter timeout there is a shorter life here.

use std::fmt::Write;

use chainbreak_model::{case::Entries, names::NodeName};
use tokio::{io::AsyncWriteExt, process::ChildStdin, time::Instant};

use super::{
    Injection, command,
    rules::TOOL,
    sysctl,
    undo::{How, Undo},
};
use crate::{cluster::Place, output::ended, trouble::Trouble};

/// Whose connections they are: the network that benchmarks have for themselves (RFC 2544), so nobody's here.
const NOBODYS: &str = "198.18.0.0/15";
/// So many writers share the work.
const WRITERS: u32 = 2;
/// Entries a piece of a writer's input.
const PIECE: u32 = 512;
/// Addresses and ports that entries can have: 16 bits of an address, 14 of a port.
const DISTINCT: u32 = 1 << 30;
/// What `conntrack` says when the table is full.
const FULL: &str = "not enough memory";

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
            text: format!("delete the entries of {NOBODYS} from conntrack on {at}"),
            how: How::Command {
                who: TOOL,
                at: at.clone(),
                argv: ["sh", "-c", DELETE].map(str::to_owned).to_vec(),
                input: String::new(),
            },
        });
        let begin = Instant::now();
        let writers = (0..WRITERS).map(|writer| self.write(at, writer, wanted, before.timeout));
        let written: Vec<Result<(), String>> = futures::future::join_all(writers).await;
        let took = begin.elapsed();
        let after = self.table(at).await?;
        // A table that is full refuses the rest.
        let failed = written.into_iter().filter_map(Result::err);
        if let Some(why) = failed.into_iter().find(|why| !why.contains(FULL)) {
            return Err(Trouble::new(format!("fill conntrack of {at}"), why));
        }
        self.say(format!(
            "fill conntrack of {at} from {} to {} of {} entries in {took:.1?}, each for {} s",
            before.count, after.count, after.max, before.timeout
        ));
        Ok(())
    }

    /// One writer's share.
    async fn write(
        &self,
        at: &Place,
        writer: u32,
        wanted: u32,
        timeout: u32,
    ) -> Result<(), String> {
        let process = self
            .cluster
            .exec(at, &command(&["conntrack", "-R", "-"]))
            .await;
        let mut process = process.map_err(|error| error.to_string())?;
        let stdin = process.stdin.take().ok_or("it cannot be fed")?;
        let feed = feed(stdin, self.seed, (writer, wanted), timeout);
        let ((), ended) = tokio::join!(feed, ended(process, ""));
        ended.map(drop)
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

/// Deletes our entries. That there is none any more is as well, and conntrack's only other failure.
const DELETE: &str = "conntrack -D -s 198.18.0.0/15 2>&1 >/dev/null | grep 'flow entries have been deleted' >/dev/null";

/// Writes every [`WRITERS`]th entry, until all are written or nobody reads any more.
async fn feed(mut stdin: ChildStdin, seed: u64, (writer, wanted): (u32, u32), timeout: u32) {
    let mut numbers = (writer..wanted).step_by(WRITERS as usize).peekable();
    while numbers.peek().is_some() {
        let piece = numbers.by_ref().take(PIECE as usize);
        let piece = piece.fold(String::new(), |mut piece, number| {
            entry(&mut piece, seed, number, timeout);
            piece
        });
        if stdin.write_all(piece.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// An entry, as `conntrack -R` reads it. Different numbers are different connections.
fn entry(to: &mut String, seed: u64, number: u32, timeout: u32) {
    // An odd factor permutes the numbers, and the seed turns them round.
    let turned = u64::from(number)
        .wrapping_mul(0x9e37_79b1)
        .wrapping_add(seed.wrapping_mul(0x85eb_ca6b));
    let bits = u32::try_from(turned % u64::from(DISTINCT)).unwrap_or(0);
    let (host, port) = (bits >> 14, 1024 + (bits & 0x3fff));
    let (high, low) = (host >> 8, host & 0xff);
    let line = writeln!(
        to,
        "-A -t {timeout} -u SEEN_REPLY,ASSURED -s 198.18.{high}.{low} -d 198.19.{high}.{low} \
         -p tcp --sport {port} --dport 80 --state ESTABLISHED"
    );
    line.expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_entries_are_the_same_and_the_seed_chooses_them() {
        let of = |seed| {
            let line = |number| {
                let mut line = String::new();
                entry(&mut line, seed, number, 60);
                line
            };
            (0..5000).map(line).collect::<BTreeSet<String>>()
        };
        assert_eq!(of(1).len(), 5000);
        assert_eq!(of(1), of(1));
        assert!(of(1).is_disjoint(&of(2)));
        let first = of(1).into_iter().next().unwrap();
        assert!(
            first.starts_with("-A -t 60 -u SEEN_REPLY,ASSURED -s 198.18."),
            "{first}"
        );
    }
}
