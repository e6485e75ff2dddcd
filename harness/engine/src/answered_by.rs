//! Who answers for Services where a real Felix is in eBPF mode from the beginning: its programs, or the kernel's rules as without them. Told
//! by a request that was answered: programs translate a Service's address before the kernel tracks the connection, or when it is made,
//! so the kernel's conntrack has nothing of it that leads from that address to another one.

use std::{net::SocketAddr, time::Duration};

use chainbreak_model::{
    case::{AgentSource, Case, Dataplane, Destination, IpFamily, Origin, Programs, Traffic},
    event::EventKind,
    names::{AgentName, TrafficName},
};
use chainbreak_netfilter::conntrack;
use chainbreak_probe::wire::{Connections, Protocol};
use futures::future::try_join_all;
use tokio::{sync::watch, time::Instant};

use crate::{
    cluster::{Cluster, Command, Place, nodes},
    infra_error::InfraError,
    log::EventLog,
    output::output,
    traffic::Flow,
    wait,
};

/// Felix's programs, in a sentence.
const PROGRAMS: &str = "Felix's eBPF programs";
/// What kube-proxy writes, in a sentence.
const RULES: &str = "the kernel's rules, not Felix's eBPF programs";
/// An answer is so old at most: of one that was reset conntrack forgets the connection after ten seconds.
const FRESH: Duration = Duration::from_secs(5);

/// When, and from where, the last request was made that was answered; nothing where the last one was not.
pub(crate) type Answered = Option<(Instant, SocketAddr)>;

/// Says of each traffic to a Service that is answered by whom. Where the case is about programs that work, pods' new connections are to be
/// answered by them before the deadline: a pod's interface may get its program after the pod was ready.
pub(crate) async fn tell(
    cluster: &dyn Cluster,
    case: &Case,
    flows: &[Flow],
    deadline: Instant,
    log: &EventLog,
) -> Result<(), InfraError> {
    let listings = listings(case);
    if listings.is_empty() {
        return Ok(());
    }
    for flow in flows {
        let traffic = case.traffic.get(flow.name());
        let Some(traffic) = traffic.filter(|it| asks_a_service(it)) else {
            continue;
        };
        let asked = Asked {
            listings: &listings,
            name: flow.name(),
            to: flow.target(),
            answered: flow.answered(),
        };
        let by = if is_for_programs(case, traffic) {
            asked.by_programs(cluster, deadline).await?;
            Some(PROGRAMS)
        } else {
            // It informs, and nothing hangs on it.
            asked.by(cluster).await.unwrap_or_default()
        };
        if let Some(by) = by {
            log.append(EventKind::Fact {
                name: format!("{} is answered by", asked.name),
                value: by.to_owned(),
            });
        }
    }
    Ok(())
}

/// Whether a Felix that is no model is told to be in eBPF mode from the beginning.
fn begins_with_programs(case: &Case) -> bool {
    let felix = case.cluster.source(AgentName::Felix);
    felix.is_some_and(|source| *source != AgentSource::Model)
        && Dataplane::of(&case.cluster) == Some(Dataplane::Bpf)
}

/// What lists the connections by which it is told, on every node; nothing where it is not told.
pub(crate) fn listings(case: &Case) -> Vec<Command> {
    if !begins_with_programs(case) || !case.traffic.values().any(asks_a_service) {
        return Vec::new();
    }
    let families = case.cluster.ip_families.iter();
    let listings = families.map(|family| {
        let family = match family {
            IpFamily::V4 => "ipv4",
            IpFamily::V6 => "ipv6",
        };
        let words = ["conntrack", "-L", "-f", family, "-p", "tcp"];
        Command::Argv(words.map(str::to_owned).to_vec())
    });
    listings.collect()
}

/// Whether somebody in the cluster asks a Service's own address over TCP.
fn asks_a_service(traffic: &Traffic) -> bool {
    matches!(traffic.to, Destination::Service { .. })
        && traffic.protocol == Protocol::Tcp
        && !matches!(traffic.from, Origin::Host(_))
}

/// Whether nothing but programs should answer it. What a node asks goes through kube-proxy's rules first where programs do not translate
/// when a connection is made, and a kept connection may be older than they are.
fn is_for_programs(case: &Case, traffic: &Traffic) -> bool {
    case.programs() == Some(Programs::Work)
        && begins_with_programs(case)
        && asks_a_service(traffic)
        && traffic.connections == Connections::New
        && matches!(traffic.from, Origin::Pod { .. })
}

/// What a traffic asks, and when it was answered.
struct Asked<'a> {
    listings: &'a [Command],
    name: &'a TrafficName,
    to: SocketAddr,
    answered: &'a watch::Receiver<Answered>,
}

impl Asked<'_> {
    /// Waits until they answer.
    async fn by_programs(
        &self,
        cluster: &dyn Cluster,
        deadline: Instant,
    ) -> Result<(), InfraError> {
        let what = format!("{PROGRAMS} answer {}", self.name);
        let look = async || match self.by(cluster).await {
            Ok(Some(PROGRAMS)) => Ok(()),
            Ok(Some(by)) => Err(format!("it is answered by {by}")),
            Ok(None) => Err("its last request was not answered".to_owned()),
            Err(trouble) => Err(trouble.to_string()),
        };
        wait::until(&what, deadline, look).await
    }

    /// Who translated the address of its last request, if that was answered just now.
    async fn by(&self, cluster: &dyn Cluster) -> Result<Option<&'static str>, InfraError> {
        let Some((at, from)) = *self.answered.borrow() else {
            return Ok(None);
        };
        let listed = nodes(cluster).into_iter().map(async |node| {
            let place = Place::Node(node);
            let listed = self.listings.iter().map(|it| output(cluster, &place, it));
            try_join_all(listed).await
        });
        let listed = try_join_all(listed).await?.concat();
        if at.elapsed() >= FRESH {
            return Ok(None);
        }
        let mut tracked = listed.iter().flat_map(|it| conntrack::flows(it));
        let is_translated = tracked.any(|it| is_translated(&it, from, self.to));
        Ok(Some(if is_translated { RULES } else { PROGRAMS }))
    }
}

/// Whether it is the connection of these ends, and leads to another.
fn is_translated(flow: &conntrack::Flow, from: SocketAddr, to: SocketAddr) -> bool {
    let original = flow.original;
    let asked = (to.ip(), Some(to.port()));
    (original.src, original.sport) == (from.ip(), Some(from.port()))
        && (original.dst, original.dport) == asked
        && flow.backend() != asked
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fake::{self, Commands, Fake};

    const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: { name: a }
spec: { nodeName: n1, containers: [{ name: a, image: busybox, command: [sleep, infinity] }] }
---
apiVersion: v1
kind: Pod
metadata: { name: b, labels: { app: web } }
spec: { nodeName: n2, containers: [{ name: b, image: nginx, ports: [{ containerPort: 80 }, { containerPort: 53, protocol: UDP }] }] }
---
apiVersion: v1
kind: Namespace
metadata: { name: test }
---
apiVersion: v1
kind: Service
metadata: { namespace: test, name: web }
spec: { selector: { app: web }, ports: [{ name: http, port: 80 }, { name: dns, port: 53, protocol: UDP }] }
";
    const SERVICE: &str = "10.96.0.80:80";
    const CLIENT: &str = "10.20.1.2:40000";
    const TRANSLATED: &str = "tcp 6 117 TIME_WAIT src=10.20.1.2 dst=10.96.0.80 sport=40000 dport=80 \
        src=10.20.1.3 dst=10.20.1.2 sport=80 dport=40000 [ASSURED] mark=0 use=1";

    fn tracked(lines: &str) -> Arc<dyn Cluster> {
        let fake = Fake {
            commands: Commands::Shell(format!("echo '{lines}'"), Duration::ZERO),
            ..Fake::default()
        };
        fake.cluster().1
    }

    /// What comes at once: no machine takes so long for it.
    const LONG: Duration = Duration::from_secs(20);
    /// What never comes. It is looked for once at least, which takes a process.
    const SHORT: Duration = Duration::from_secs(2);

    async fn by(
        lines: &str,
        answered: Answered,
        within: Duration,
    ) -> (Option<&'static str>, Result<(), String>) {
        let cluster = tracked(lines);
        let (_last, answered) = watch::channel(answered);
        let asked = Asked {
            listings: &[Command::Argv(vec!["conntrack".to_owned()])],
            name: &"in-pod".into(),
            to: SERVICE.parse().expect("an address"),
            answered: &answered,
        };
        let by = asked.by(cluster.as_ref()).await.expect("it is listed");
        let until = Instant::now() + within;
        let waited = asked.by_programs(cluster.as_ref(), until).await;
        (by, waited.map_err(|trouble| trouble.to_string()))
    }

    fn client() -> SocketAddr {
        CLIENT.parse().expect("an address")
    }

    #[tokio::test]
    async fn what_conntrack_translated_was_answered_by_rules_and_programs_are_waited_for_in_vain() {
        let (by, waited) = by(TRANSLATED, Some((Instant::now(), client())), SHORT).await;
        assert_eq!(by, Some(RULES));
        let why = waited.expect_err("programs never answer");
        assert!(
            why.contains("Felix's eBPF programs answer in-pod") && why.contains(RULES),
            "{why}"
        );
    }

    #[tokio::test]
    async fn what_conntrack_has_not_or_did_not_translate_was_answered_by_programs() {
        let other_port = TRANSLATED.replace("40000", "40001");
        let other_service = TRANSLATED.replace("10.96.0.80", "10.96.0.81");
        let as_asked = TRANSLATED.replace("src=10.20.1.3", "src=10.96.0.80");
        for lines in ["", &other_port, &other_service, &as_asked] {
            let (by, waited) = by(lines, Some((Instant::now(), client())), LONG).await;
            assert_eq!(by, Some(PROGRAMS), "{lines}");
            waited.expect("nothing is to be waited for");
        }
    }

    #[tokio::test]
    async fn of_what_was_not_answered_just_now_nothing_is_said_and_programs_are_waited_for() {
        let long_ago = Instant::now().checked_sub(FRESH).expect("a clock");
        let stale = Some((long_ago, client()));
        for answered in [None, stale] {
            let (by, waited) = by("", answered, SHORT).await;
            assert_eq!(by, None);
            waited.expect_err("nothing is known");
        }
    }

    #[test]
    fn pods_new_connections_to_services_are_held_to_programs_that_work_and_no_others() {
        let text = |felix: &str| {
            format!(
                "
name: faked
about: who answers
cluster:
  nodes: 2
  kube-proxy: {{ version: '1.32' }}
  calico: {{ version: v3.32.1, programs: work }}
  felix: {{ {felix} }}
traffic:
  in-pod: {{ from: pod/a, to: service/test/web, port: 80, every: 50ms }}
  kept: {{ from: pod/a, to: service/test/web, port: 80, connections: kept, every: 50ms }}
  udp: {{ from: pod/a, to: service/test/web, port: 53, protocol: udp, every: 50ms }}
  to-a-pod: {{ from: pod/a, to: pod/default/b, port: 80, every: 50ms }}
  on-a-node: {{ from: node/n1, to: service/test/web, port: 80, every: 50ms }}
manifests: [pods.yaml]
timeline: [settle: 1s]
promises: {{ it: {{ available: {{ traffic: in-pod, at-least: 99% }} }} }}
variants: {{ only: {{ expect: healthy }} }}
"
            )
        };
        let (asking, held) = (["in-pod", "kept", "on-a-node"], ["in-pod"]);
        for (felix, source, asking, held) in [
            (
                "bpfEnabled: true",
                AgentSource::Cluster,
                &asking[..],
                &held[..],
            ),
            ("bpfEnabled: false", AgentSource::Cluster, &asking, &[]),
            ("bpfEnabled: true", AgentSource::Model, &asking, &[]),
        ] {
            let mut case = fake::of(&text(felix), PODS);
            let calico = case.cluster.calico.as_mut().expect("there is one");
            calico.source = source;
            let of = |is: &dyn Fn(&Traffic) -> bool| {
                let all = case.traffic.iter().filter(|(_, it)| is(it));
                all.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
            };
            assert_eq!(of(&asks_a_service), asking);
            assert_eq!(of(&|it| is_for_programs(&case, it)), held, "{felix}");
        }
    }
}
