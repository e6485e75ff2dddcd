//! What nodes route by: their addresses, routes of all tables, rules, and the settings that decide what becomes of a packet.

use std::time::Duration;

use chainbreak_model::{event::EventKind, names::NodeName};
use futures::future::join_all;
use tokio::time::timeout;

use crate::{
    cluster::{Cluster, Command, Place, nodes},
    log::EventLog,
    output::output,
};

/// Prints it in few processes, as it is asked in each case: settings with the files that have them.
const SCRIPT: &str = "
printf 'address show\nroute show table all\nrule show\n' | ip -batch -
cd /proc/sys && grep -s . net/ipv4/ip_forward net/ipv[46]/conf/*/forwarding \
    net/ipv4/conf/*/rp_filter net/ipv4/conf/*/accept_local net/ipv4/conf/*/route_localnet net/ipv4/conf/*/src_valid_mark \
    net/netfilter/nf_conntrack_tcp_loose net/netfilter/nf_conntrack_tcp_be_liberal
# A setting that is not there is none.
:
";
/// A node with more routes is none of a test's.
const MOST: usize = 1 << 20;
/// A node that does not answer says nothing.
const WITHIN: Duration = Duration::from_secs(5);

/// Says it of every node that can be asked.
pub(crate) async fn tell(cluster: &dyn Cluster, log: &EventLog) {
    let asked = nodes(cluster).into_iter().map(|node| of(cluster, node));
    for (node, text) in join_all(asked).await.into_iter().flatten() {
        log.append(EventKind::Network { node, text });
    }
}

/// What says it.
pub(crate) fn command() -> Command {
    Command::Argv(["sh", "-c", SCRIPT].map(str::to_owned).to_vec())
}

async fn of(cluster: &dyn Cluster, node: NodeName) -> Option<(NodeName, String)> {
    let place = Place::Node(node.clone());
    let asked = timeout(WITHIN, output(cluster, &place, &command())).await;
    let text = as_sysctl(&asked.ok()?.ok()?);
    (!text.is_empty() && text.len() <= MOST).then_some((node, text))
}

/// Settings as `sysctl` prints them, each with its name instead of its file.
fn as_sysctl(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(':') {
        Some((file, value)) if file.starts_with("net/") => {
            format!("{} = {value}\n", file.replace('/', "."))
        }
        _ => format!("{line}\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_their_names_and_all_else_is_as_it_was() {
        let printed = "0:\tfrom all lookup local\ndefault via fd00::1 dev eth0\nnet/ipv4/conf/eth0/rp_filter:2\n";
        let told = "0:\tfrom all lookup local\ndefault via fd00::1 dev eth0\nnet.ipv4.conf.eth0.rp_filter = 2\n";
        assert_eq!(as_sysctl(printed), told);
    }
}
