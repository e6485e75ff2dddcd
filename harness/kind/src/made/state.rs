//! What a kept cluster is like before its first case, and whether it is so again before the next one: rules, sets, routes, kernel
//! settings, tracked connections and stopped processes of every node, and the names of the API's objects. What differs is named, and the cluster is made
//! anew.
//!
//! Lines are compared as a set, without counters. What comes and goes by itself is left out: [`STATE`], [`Kinds`].

mod calicos;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use chainbreak_engine::evidence::is_to_be_ready;
use futures::future::{try_join, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::{Deserialize, Serialize};

use crate::{
    error::KindError,
    made::{config::PODS, leftovers, objects::Kinds, spec::Spec},
    shared::nodes::{Node, Nodes},
    tool::Tool,
    wait,
};

/// Where it is kept: with the cluster, on n1.
pub(super) const FILE: &str = "/kind/chainbreak-state.json";
/// What a tracked connection's line begins with.
const CONNECTION: &str = "conntrack: ";
/// So long a cluster that is tidied as it should be takes to be as it was.
const SOON: Duration = Duration::from_secs(3);
/// So long one takes that was tidied again: kube-proxy removes what is left of services that are gone.
const WITHIN: Duration = Duration::from_secs(10);
/// What a new cluster may take to do nothing any more.
const SETTLED: Duration = Duration::from_secs(60);
/// So long it has done nothing then.
const STILL: Duration = Duration::from_secs(3);
/// What reading a node's state may take.
const READ: Duration = Duration::from_secs(60);
/// How many differences are named.
const NAMED: usize = 10;

/// Prints a node's state. `$1` and `$2` are the networks of pods: their connections are those that a case leaves. Those to the API are the
/// cluster's own. Settings of interfaces that come and go with pods are left out, and those that count or are drawn by chance; and of
/// equal rules it is said how many there are.
const STATE: &str = r#"
    for f in iptables ip6tables; do for b in legacy nft; do
        $f-$b-save 2>/dev/null | awk -v of=$f-$b '
            /^#/ || /^COMMIT/ { next }
            /^\*/ { table = substr($0, 2); next }
            { sub(/ \[[0-9]+:[0-9]+\]$/, "") }
            /^:[A-Z]+ ACCEPT$/ || /^:KUBE-[A-Z]+-CANARY/ || /^:KUBE-IPTABLES-HINT/ { next }
            { n = ++seen[table $0]; print of " " table ": " $0 (n > 1 ? " (" n ")" : "") }'
    done; done
    nft -s list ruleset 2>/dev/null | sed -n 's/^\(table .*\) {/nft: \1/p'
    ipset list -name 2>/dev/null | sed 's/^/ipset: /'
    for v in 4 6; do
        ip -$v rule show | sed "s/^/ip -$v rule: /"
        ip -$v route show table all | grep -v -e ' dev veth' -e ' proto ra ' -e ^fe80:: -e ^multicast -e ^ff00:: |
            sed -e 's/ expires [0-9]*sec//' -e "s/^/ip -$v route: /" -e 's/ *$//'
    done
    awk '{ print $5 }' /proc/self/mountinfo | grep -v -e ^/var/lib/ -e ^/run/ | sed 's/^/mount: /'
    ip -o link show eth0 | sed -e 's/^[0-9]*: //' -e 's/^/link: /'
    for it in $(grep -ls '^State:.T' /proc/[0-9]*/status); do sed -n 's/^Name:./stopped: /p' $it; done
    grep -lszx '[h]eld' /proc/[0-9]*/cmdline | sed 's/.*/held: commands/'
    tc qdisc show dev eth0 2>/dev/null | sed 's/^/qdisc: /'
    sysctl -a -r '^net\.' 2>/dev/null | grep -v -e '\.\(conf\|neigh\)\.\(veth\|cali\|vxlan\|tunl\|bpf\)' -e _count -e fastopen_key -e stable_secret \
        -e nf_conntrack_max -e nf_conntrack_buckets -e nf_conntrack_expect_max | sed 's/^/sysctl: /'
    for pods in $1 $2; do
        case $pods in *:*) v6='-f ipv6' ;; *) v6= ;; esac
        conntrack -L $v6 -s $pods 2>/dev/null | grep -v -e 'dst=10\.96\.0\.1 ' -e ' dport=6443 ' |
            sed -e 's/^\([a-z0-9]*\) .*\(src=[^ ]* dst=[^ ]*\) .*src=.*/conntrack: \1 \2/' | sort -u
    done
    exit 0"#;

/// All of it: lines, by whose they are.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State(BTreeMap<String, BTreeSet<String>>);

impl State {
    /// As it is now.
    async fn now(client: &Client, nodes: &Nodes) -> Result<Self, KindError> {
        let of_nodes = nodes.0.iter().map(async |node| {
            let argv = ["sh", "-c", STATE, "sh", PODS.0, PODS.1];
            let said = node.run_within(READ, &argv).await?;
            let lines = said.lines().map(str::to_owned);
            Ok((node.name.to_string(), lines.collect()))
        });
        let (of_nodes, names) = try_join(try_join_all(of_nodes), names(client)).await?;
        let mut all: BTreeMap<_, _> = of_nodes.into_iter().collect();
        all.insert("the API".to_owned(), names);
        Ok(Self(all))
    }

    /// Keeps it with the cluster, as soon as that has settled: kube-proxy, where it has one, may just begin, and pods of its own may just
    /// have ended.
    pub(super) async fn keep(client: &Client, nodes: &Nodes, spec: &Spec) -> Result<(), KindError> {
        if let Err(error) = own_pods(client).await {
            // It is kept without what they will have, and is made anew one day.
            tracing::debug!(%error, "a pod of the cluster's own has not begun");
        }
        // Where Felix may delete them nobody waits for its rules.
        let proxy = spec.proxy.as_ref().filter(|_| spec.is_foreseen());
        leftovers::scrub(nodes, spec.is_foreseen()).await?;
        // It removes what is gone not sooner than that.
        let pause = proxy.map_or(STILL, |it| STILL.max(it.min_sync_period * 2));
        let last = Mutex::new((Self::default(), Instant::now()));
        let look = || async {
            let now = Self::now(client, nodes).await;
            let now = now.map_err(|error| error.to_string())?;
            if proxy.is_some() && !now.has_rules(nodes) {
                return Err("kube-proxy has not written its rules on every node".to_owned());
            }
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let changes = last.0.differences(&now, spec.is_foreseen());
            if !changes.is_empty() {
                *last = (now, Instant::now());
                return Err(named(&changes));
            }
            if last.1.elapsed() >= pause {
                Ok(now)
            } else {
                Err("it has not been still for long enough".to_owned())
            }
        };
        let what = "the cluster has settled";
        let state = wait::until(what, SETTLED, look, wait::nothing).await?;
        leftovers::keep(nodes).await?;
        let text = serde_json::to_string(&state).expect("a state has string keys");
        let write = first(nodes)?.argv(["sh", "-c", "cat > \"$1\"", "sh", FILE]);
        Tool::new(READ, write)
            .reading(text)
            .output()
            .await
            .map(drop)
    }

    /// Whether all is as it was when it was kept, as soon as that is so. What is not so soon is tidied again: kube-proxy may have written while
    /// rules were set back, and a jump that it missed is there twice then.
    pub(super) async fn back(
        client: &Client,
        nodes: &Nodes,
        spec: &Spec,
        tidy: impl Future<Output = Result<(), KindError>>,
    ) -> Result<Back, KindError> {
        // One that an earlier chainbreak has made, or whose run was killed before it was fit for a case.
        let kept = first(nodes)?.run(&["cat", FILE]).await;
        let kept = kept
            .ok()
            .and_then(|text| serde_json::from_str::<Self>(&text).ok());
        let Some(kept) = kept else {
            return Ok(Back::Not(vec!["nobody noted how it was".to_owned()]));
        };
        let others = || async {
            let now = Self::now(client, nodes).await?;
            Ok(kept.differences(&now, spec.is_foreseen()))
        };
        came_back(others, tidy).await
    }

    /// Whether kube-proxy's are on every node, in whichever mode.
    fn has_rules(&self, nodes: &Nodes) -> bool {
        let is_rule = |line: &String| {
            line.contains(":KUBE-SERVICES")
                || (line.starts_with("nft: ") && line.contains("kube-proxy"))
        };
        let of = |node: &Node| self.0.get(node.name.as_str());
        let mut all = nodes.0.iter().map(of);
        all.all(|lines| lines.is_some_and(|lines| lines.iter().any(is_rule)))
    }

    /// A line each; without what a real Calico keeps as it goes, where not all is foreseen.
    fn differences(&self, now: &Self, is_foreseen: bool) -> Vec<String> {
        let mut differences = Vec::new();
        let empty = BTreeSet::new();
        let all: BTreeSet<&String> = self.0.keys().chain(now.0.keys()).collect();
        let counts = |line: &&String| is_foreseen || !calicos::is_its(line);
        for whose in all {
            let [before, now] = [self, now].map(|it| it.0.get(whose).unwrap_or(&empty));
            // Connections end by themselves: those of the name server are not there for ever.
            let gone = before.difference(now).filter(counts);
            let gone = gone.filter(|line| !line.starts_with(CONNECTION));
            differences.extend(gone.map(|line| format!("{whose} no longer has {line}")));
            let new = now.difference(before).filter(counts);
            differences.extend(new.map(|line| format!("{whose} still has {line}")));
        }
        differences
    }
}

/// What became of a kept cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// It is as it was.
    Soon,
    /// It is, since it was tidied again; what was otherwise until then.
    Tidied(Vec<String>),
    /// It is not: what is otherwise, and behind it what was until it was tidied again.
    Not(Vec<String>),
}

/// Looks until nothing is otherwise, and tidies once in between.
async fn came_back<F>(
    others: impl Fn() -> F,
    tidy: impl Future<Output = Result<(), KindError>>,
) -> Result<Back, KindError>
where
    F: Future<Output = Result<Vec<String>, KindError>>,
{
    let differences = until_none(SOON, &others).await?;
    if differences.is_empty() {
        return Ok(Back::Soon);
    }
    if let Err(error) = tidy.await {
        // A new one lacks nothing of what cannot be tidied here.
        let why = std::iter::once(error.to_string());
        return Ok(Back::Not(why.chain(differences).collect()));
    }
    let mut still = until_none(WITHIN, &others).await?;
    if still.is_empty() {
        return Ok(Back::Tidied(differences));
    }
    let before = differences.into_iter().filter(|it| !still.contains(it));
    let before: Vec<String> = before.collect();
    still.extend(before);
    Ok(Back::Not(still))
}

/// What is otherwise after that time; nothing as soon as nothing is.
async fn until_none<F>(within: Duration, others: &impl Fn() -> F) -> Result<Vec<String>, KindError>
where
    F: Future<Output = Result<Vec<String>, KindError>>,
{
    let look = || async {
        match others().await {
            Ok(others) if !others.is_empty() => Err(named(&others)),
            looked => Ok(looked),
        }
    };
    let what = "the cluster is as before its first case";
    match wait::until(what, within, look, wait::nothing).await {
        Ok(looked) => looked,
        // The last look may have been cut short: this one is not.
        Err(_late) => others().await,
    }
}

/// The first of them, for people.
pub(super) fn named(differences: &[String]) -> String {
    let mut named: Vec<&str> = differences.iter().take(NAMED).map(String::as_str).collect();
    let more = format!("and {} more", differences.len().saturating_sub(NAMED));
    if differences.len() > NAMED {
        named.push(&more);
    }
    named.join("; ")
}

fn first(nodes: &Nodes) -> Result<&Node, KindError> {
    let lost = || KindError::Unable("the cluster has no node".to_owned());
    nodes.0.first().ok_or_else(lost)
}

/// Waits until the cluster's own pods are ready, such as Calico's kube-controllers: their interfaces, and what Felix writes for them, are its own.
async fn own_pods(client: &Client) -> Result<(), KindError> {
    let pods = Api::<Pod>::all(client.clone());
    let look = || async {
        let listed = pods.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| error.to_string())?;
        match listed.iter().find(|pod| is_to_be_ready(pod)) {
            Some(pod) => Err(format!("{} is not ready", pod.name_any())),
            None => Ok(()),
        }
    };
    let what = "the cluster's own pods are ready";
    wait::until(what, SETTLED, look, wait::nothing).await
}

async fn names(client: &Client) -> Result<BTreeSet<String>, KindError> {
    Kinds::served(client).await?.names(client).await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn state(lines: &[(&str, &[&str])]) -> State {
        let whose = lines.iter().map(|(whose, lines)| {
            let lines = lines.iter().map(|&line| line.to_owned());
            ((*whose).to_owned(), lines.collect())
        });
        State(whose.collect())
    }

    #[test]
    fn what_is_left_and_what_is_gone_is_named_with_its_place() {
        let before = state(&[
            (
                "n1",
                &[
                    "sysctl: a = 1",
                    "ip -4 route: default",
                    "conntrack: udp ended",
                ],
            ),
            ("the API", &["Namespace default"]),
        ]);
        let now = state(&[
            (
                "n1",
                &[
                    "sysctl: a = 2",
                    "ip -4 route: default",
                    "conntrack: udp new",
                ],
            ),
            ("the API", &["Namespace default", "Namespace test"]),
        ]);
        assert_eq!(before.differences(&before, true), [""; 0]);
        assert_eq!(
            before.differences(&now, true),
            [
                "n1 no longer has sysctl: a = 1",
                "n1 still has conntrack: udp new",
                "n1 still has sysctl: a = 2",
                "the API still has Namespace test",
            ]
        );
    }

    #[test]
    fn what_a_real_calico_keeps_is_no_difference_where_it_is_there() {
        let before = state(&[("n1", &["ipset: cali40this-host"])]);
        let now = state(&[("n1", &["ipset: mine", "ipset: cali40other"])]);
        assert_eq!(
            before.differences(&now, false),
            ["n1 still has ipset: mine"]
        );
        assert_eq!(before.differences(&now, true).len(), 3);
    }

    /// What becomes of a cluster in which a rule goes when it was tidied, and a setting is so long another one; and how often it was tidied.
    async fn tidied(rule: bool, setting: bool, refused: bool) -> (Back, u32) {
        let tidied = Cell::new(0);
        let others = || async {
            let rule = (rule && tidied.get() == 0).then_some("a rule more");
            let all = rule.into_iter().chain(setting.then_some("a setting"));
            Ok(all.map(str::to_owned).collect())
        };
        let tidy = async {
            tidied.set(tidied.get() + 1);
            if refused {
                return Err(KindError::Unable("a mount is busy".to_owned()));
            }
            Ok(())
        };
        let back = came_back(others, tidy).await.unwrap();
        (back, tidied.get())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_otherwise_is_tidied_once_more_and_named() {
        let named = |all: &[&str]| all.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        assert_eq!(tidied(false, false, false).await, (Back::Soon, 0));
        let rule = named(&["a rule more"]);
        assert_eq!(tidied(true, false, false).await, (Back::Tidied(rule), 1));
        let both = named(&["a setting", "a rule more"]);
        assert_eq!(tidied(true, true, false).await, (Back::Not(both), 1));
        let refused = named(&["a mount is busy", "a rule more"]);
        assert_eq!(tidied(true, false, true).await, (Back::Not(refused), 1));
    }

    #[test]
    fn of_many_differences_ten_are_named_and_the_others_counted() {
        let all: Vec<String> = (1..=12).map(|number| number.to_string()).collect();
        assert_eq!(named(&all), "1; 2; 3; 4; 5; 6; 7; 8; 9; 10; and 2 more");
        assert_eq!(named(&all[..2]), "1; 2");
    }
}
