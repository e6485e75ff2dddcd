//! What agents have written on a node since the case's cluster was raised.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use chainbreak_model::{
    case::{Case, Dataplane, ProxyMode},
    names::NodeName,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    time::{MissedTickBehavior, interval},
};

use super::{IPVS, wanted::tellings};
use crate::{
    cluster::{Cluster, Command, Place},
    infra_error::InfraError,
    log::EventLog,
    output::output,
};

/// Distance of two looks at a node's rules.
const LOOK: Duration = Duration::from_millis(500);
/// The same where nobody tells of writes.
const UNTOLD: Duration = Duration::from_millis(100);
/// The same where Felix may delete what kube-proxy has just written, and kube-proxy may not write it again for an hour.
const OFTEN: Duration = Duration::from_millis(30);
/// Whether Felix's rules are in a table of its own, also beside a kube-proxy in iptables mode.
const NFTABLES_MODE: &str = "nftablesMode";
/// Stands after what one look shows.
const LOOKED: &str = "# looked";

/// How far looks are apart where nobody tells of writes. In somebody's cluster Felix is as it is there.
fn apart(cluster: &dyn Cluster, case: &Case) -> Duration {
    let felix = case.cluster.felix.get(Dataplane::FIELD);
    if cluster.namespaces().is_some() || felix.is_some_and(|bpf| *bpf == true) {
        OFTEN
    } else {
        UNTOLD
    }
}

/// What looks whenever it reads a line, and shows what is otherwise than at its last look: to pass on the same again and again takes half of a
/// processor while pods start. Comments, which have the time in them, and chains, which are counted, say nothing (what nft
/// counts is shown again).
fn watching(looks: &[Command]) -> Command {
    let looks = looks.iter().enumerate().map(|(at, look)| match look {
        Command::Argv(argv) => {
            let look = argv.join(" ");
            format!(
                "now=$({look} | grep -v '^[#:]'); \
                 [ \"$now\" = \"$was{at}\" ] || {{ was{at}=$now; printf '%s\\n' \"$now\"; }};"
            )
        }
        Command::Probe => String::new(),
    });
    let looks = looks.collect::<String>();
    let script = format!("while read -r _; do {looks} echo '{LOOKED}'; done");
    Command::Argv(["sh", "-c", &script].map(str::to_owned).to_vec())
}

/// What waits on a node for its agents' rules, where nobody tells of writes.
pub(crate) fn watch(case: &Case) -> Command {
    watching(&looks(case))
}

/// What shows the rules of a node's agents. The ruleset is there also while kube-proxy's table is not.
fn looks(case: &Case) -> Vec<Command> {
    let mode = case.cluster.kube_proxy.as_ref().map(|it| it.mode);
    let words = |words: &[&str]| Command::Argv(words.iter().map(|&it| it.to_owned()).collect());
    let families = case.cluster.ip_families.iter();
    let mut looks: Vec<Command> = families
        .map(|family| words(&[&format!("{}-save", family.iptables()), "-t", "nat"]))
        .collect();
    let by_nft = case.cluster.felix.get(NFTABLES_MODE);
    let by_nft = by_nft.is_some_and(|mode| mode == "Enabled");
    if by_nft || mode == Some(ProxyMode::Nftables) {
        looks.push(words(&["nft", "list", "ruleset"]));
    }
    if mode == Some(ProxyMode::Ipvs) {
        looks.push(words(&IPVS));
    }
    looks
}

/// What was ever in a node's nat table, or in kube-proxy's own. Once is enough: somebody may be deleting what kube-proxy
/// writes, which is what the case is about.
pub(super) struct Written {
    pub(super) node: NodeName,
    looks: Vec<Command>,
    /// How far they are apart where nobody tells of writes.
    apart: Duration,
    seen: RefCell<BTreeSet<String>>,
}

impl Written {
    /// Nothing yet.
    pub(super) fn on(node: NodeName, cluster: &dyn Cluster, case: &Case) -> Self {
        Self {
            node,
            looks: looks(case),
            apart: apart(cluster, case),
            seen: RefCell::default(),
        }
    }

    /// Takes in every recorded write, and looks from time to time for writes that no recorder sees.
    pub(super) async fn collect(
        &self,
        cluster: &dyn Cluster,
        log: &EventLog,
    ) -> Result<(), InfraError> {
        if cluster.recording().is_none() {
            return self.watch(cluster).await;
        }
        let place = Place::Node(self.node.clone());
        let mut writes = log.writes();
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                write = writes.recv() => {
                    // Writes that were missed are seen at the next look, or are gone already.
                    if let Ok(write) = write && write.concerns(&self.node, &["nat"]) {
                        self.take(write.committed());
                    }
                }
                _ = ticks.tick() => for look in &self.looks {
                    self.take(&output(cluster, &place, look).await?);
                },
            }
        }
    }

    /// Looks again and again through one process on the node: starting one for each look would take longer than rules may be
    /// there. It looks when it reads a line, and ends with its input.
    async fn watch(&self, cluster: &dyn Cluster) -> Result<(), InfraError> {
        let place = Place::Node(self.node.clone());
        let trouble = |why: &dyn std::fmt::Display| InfraError::new(format!("watch {place}"), why);
        let process = cluster.exec(&place, &watching(&self.looks)).await;
        let mut process = process.map_err(|error| trouble(&error))?;
        let (Some(mut stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(trouble(&"its input and output are not piped"));
        };
        let mut lines = BufReader::new(stdout).lines();
        let mut ticks = interval(self.apart);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let asked = stdin.write_all(b"\n").await;
            asked.map_err(|error| trouble(&error))?;
            loop {
                let line = lines.next_line().await.map_err(|error| trouble(&error))?;
                match line.ok_or_else(|| trouble(&"the process ended"))? {
                    line if line == LOOKED => break,
                    line => self.take(&line),
                }
            }
        }
    }

    fn take(&self, rules: &str) {
        self.seen
            .borrow_mut()
            .extend(rules.lines().flat_map(tellings));
    }

    pub(super) fn lacks_none_of(&self, wanted: &BTreeSet<String>) -> Result<(), String> {
        let seen = self.seen.borrow();
        wanted
            .iter()
            .find(|text| !seen.contains(*text))
            .map_or(Ok(()), |missing| {
                Err(format!("no rule with `{missing}` was seen"))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Process;

    #[tokio::test]
    async fn a_watch_shows_what_is_otherwise_than_at_its_last_look_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let looks = ["nat", "table"].map(|name| Command::Argv(vec!["cat".to_owned(), file(name)]));
        let Command::Argv(argv) = watching(&looks) else {
            panic!("a shell's words");
        };
        let (program, arguments) = argv.split_first().unwrap();
        let mut process = tokio::process::Command::new(program);
        let mut process = Process::spawn(process.args(arguments)).unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut shown = async || {
            let stdin = process.stdin.as_mut().unwrap();
            stdin.write_all(b"\n").await.unwrap();
            let mut shown = Vec::new();
            loop {
                match lines.next_line().await.unwrap().unwrap() {
                    line if line == LOOKED => return shown.join("|"),
                    line => shown.push(line),
                }
            }
        };
        let write = |name: &str, text: &str| std::fs::write(file(name), text).unwrap();
        write(
            "nat",
            "# at ten\n*nat\n:OUTPUT ACCEPT [1:60]\n-A OUTPUT -j \"a\\tb\"\n",
        );
        assert_eq!(shown().await, "*nat|-A OUTPUT -j \"a\\tb\"");
        write(
            "nat",
            "# at eleven\n*nat\n:OUTPUT ACCEPT [2:120]\n-A OUTPUT -j \"a\\tb\"\n",
        );
        assert_eq!(shown().await, "", "the same but for time and counters");
        write("table", "table ip kube-proxy {\n\tchain services {\n");
        assert_eq!(shown().await, "table ip kube-proxy {|\tchain services {");
        write("nat", "*nat\n");
        assert_eq!(shown().await, "*nat");
    }

    #[test]
    fn looks_are_close_where_felix_may_delete_what_is_written() {
        let (_, ours) = crate::fake::Fake::default().cluster();
        assert_eq!(apart(ours.as_ref(), &case("")), UNTOLD);
        assert_eq!(apart(ours.as_ref(), &case("bpfEnabled: false")), UNTOLD);
        assert_eq!(apart(ours.as_ref(), &case("bpfEnabled: true")), OFTEN);
    }

    /// v3.32.1 has its jumps there, in eBPF mode too.
    #[test]
    fn felixs_own_table_is_looked_at_also_beside_a_kube_proxy_in_iptables_mode() {
        let lists_nft = |felix: &str| {
            let nft = ["nft", "list", "ruleset"].map(str::to_owned).to_vec();
            looks(&case(felix)).contains(&Command::Argv(nft))
        };
        assert!(lists_nft("nftablesMode: Enabled"));
        assert!(!lists_nft("nftablesMode: Disabled"));
        assert!(!lists_nft(""));
    }

    /// One whose FelixConfiguration says that.
    fn case(felix: &str) -> Case {
        let text = format!(
            "
name: faked
about: whose rules
cluster:
  nodes: 1
  kube-proxy: {{ version: '1.32' }}
  calico: {{ version: v3.32.1 }}
  felix: {{ {felix} }}
timeline: [settle: 1s]
promises: {{ it: {{ has-rule: {{ table: nat, chain: PREROUTING, jump: KUBE-SERVICES }} }} }}
variants: {{ only: {{ expect: healthy }} }}
"
        );
        crate::fake::of(&text, "")
    }
}
