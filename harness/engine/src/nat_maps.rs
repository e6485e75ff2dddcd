//! Where a real Felix's eBPF programs lead requests to the Services that traffic goes to, as its maps are read while the case is judged: against the
//! endpoints that the API has, it shows whether a map is blind. A look takes half a second of a processor, so there is one at the beginning, one
//! each time that endpoints have changed, and more only as long as a map knows none of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use chainbreak_model::{case::Case, event::EventKind, names::NodeName};
use chainbreak_netfilter::{
    dumps::{At, Backends, Dumps},
    felix_programs::is_blind,
    names::Protocol,
};
use chainbreak_probe::wire;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    cluster::{Cluster, Command, FelixProgram, Place, nodes},
    endpoints::Ready,
    log::EventLog,
    output::output,
    traffic::Flow,
};

/// What Felix calls the map.
const MAP: &str = "nat";
/// A Felix that hears of a change has written it by then. (Felix v3.28 and v3.32, `bpfKubeProxyMinSyncPeriod`: a second.)
const HEARD: Duration = Duration::from_secs(2);
/// Distance of two looks at a map that is blind.
const LOOK: Duration = Duration::from_secs(3);
/// How long a look at a node may take: nobody's verdict waits for it.
const WITHIN: Duration = Duration::from_secs(5);

/// The addresses of a Service's backends.
type Addresses = BTreeSet<String>;

/// What lists the maps of each family on a node; nothing where nobody looks.
pub(crate) fn commands(case: &Case, felix: Option<&FelixProgram>) -> Vec<Command> {
    let asks = case.traffic.values().any(|it| it.to.service().is_some());
    let felix = felix.filter(|_| asks && case.wants_programs());
    let families = case.cluster.ip_families.iter();
    let lists = felix.map(|felix| families.map(|family| Command::Argv(felix.dump(MAP, *family))));
    lists.into_iter().flatten().collect()
}

/// The maps of a case's nodes.
pub(crate) struct NatMaps {
    cluster: Arc<dyn Cluster>,
    /// What lists them on a node.
    listings: Vec<Command>,
    /// What is asked of each Service, `namespace/name`.
    asked: BTreeMap<String, BTreeSet<At>>,
    ready: watch::Receiver<Ready>,
    /// Of which Services whose map was blind when it was last seen.
    blind: BTreeSet<(NodeName, String)>,
    /// [`HEARD`] and [`LOOK`].
    times: [Duration; 2],
}

impl NatMaps {
    /// Those of a real Felix that is in eBPF mode at some time; nothing where no traffic goes to a Service.
    pub(crate) fn of(
        cluster: &Arc<dyn Cluster>,
        case: &Case,
        flows: &[Flow],
        ready: watch::Receiver<Ready>,
    ) -> Option<Self> {
        let listings = commands(case, cluster.felix_program().as_ref());
        let mut asked = BTreeMap::<_, BTreeSet<At>>::new();
        for flow in flows {
            let traffic = case.traffic.get(flow.name());
            let service = traffic.and_then(|it| it.to.service());
            if let (Some(traffic), Some((namespace, name))) = (traffic, service) {
                let at = at(traffic.protocol, flow.target());
                let service = format!("{namespace}/{name}");
                asked.entry(service).or_default().insert(at);
            }
        }
        (!listings.is_empty()).then(|| Self {
            cluster: Arc::clone(cluster),
            listings,
            asked,
            ready,
            blind: BTreeSet::new(),
            times: [HEARD, LOOK],
        })
    }

    /// Looks whenever there may be something to see, until dropped.
    pub(crate) async fn watch(&mut self, log: &EventLog) {
        let [heard, look] = self.times;
        loop {
            let again = if self.blind.is_empty() {
                Duration::MAX
            } else {
                look
            };
            match timeout(again, self.ready.changed()).await {
                Ok(Ok(())) => sleep_until(Instant::now() + heard).await,
                Ok(Err(_nobody_tells)) => sleep_until(Instant::now() + look).await,
                Err(_elapsed) => {}
            }
            self.look(log).await;
        }
    }

    /// Tells what the map of each node has.
    pub(crate) async fn look(&mut self, log: &EventLog) {
        let ready = self.ready.borrow_and_update().clone();
        for node in nodes(self.cluster.as_ref()) {
            let dumps = timeout(WITHIN, self.dumps(&node)).await.unwrap_or_default();
            for (service, asked) in &self.asked {
                let backends = backends(&dumps, asked);
                let which = (node.clone(), service.clone());
                // One that was blind may be so still where it cannot be read.
                match ready.get(service).zip(backends.as_ref()) {
                    Some((ready, map)) if is_blind(map, ready) => self.blind.insert(which),
                    Some(_) => self.blind.remove(&which),
                    None => false,
                };
                log.append(EventKind::NatMap {
                    node: node.clone(),
                    service: service.clone(),
                    backends,
                });
            }
        }
    }

    /// What a node's map of each family lists; nothing where none is there or no Felix runs.
    async fn dumps(&self, node: &NodeName) -> Dumps {
        let mut dumps = Dumps::default();
        let place = Place::Node(node.clone());
        for listing in &self.listings {
            let listed = output(self.cluster.as_ref(), &place, listing).await;
            let added = listed.ok().map(|text| dumps.add(&text).is_ok());
            if added != Some(true) {
                tracing::debug!(%node, ?listing, "no NAT map");
            }
        }
        dumps
    }
}

fn at(protocol: wire::Protocol, asked: SocketAddr) -> At {
    let protocol = match protocol {
        wire::Protocol::Tcp => Protocol::Tcp,
        wire::Protocol::Udp => Protocol::Udp,
    };
    (asked.ip(), protocol, asked.port())
}

/// Where requests there are led, as far as the map has something there; nothing where it does not say it of all of that.
fn backends(dumps: &Dumps, asked: &BTreeSet<At>) -> Option<Addresses> {
    let found = asked.iter().filter_map(|at| dumps.nat_map().get(at));
    let mut all = None;
    for led in found {
        match led {
            Backends::To(backends) | Backends::Local(backends) => {
                let backends = backends.iter().map(|it| it.ip().to_string());
                all.get_or_insert_with(Addresses::new).extend(backends);
            }
            Backends::Unknown => return None,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use chainbreak_model::{case::IpFamily, event::Event};
    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;
    use crate::fake::{Commands, Fake};

    /// What `calico-node -bpf nat dump` prints of a Service with one backend.
    const LISTED: &str =
        "10.96.0.7 port 80 proto 6 id 1 count 1 local 0\\n\\t1:0\\t 10.20.1.2:80\\n";
    const SERVICE: &str = "test/web";
    const OLD: &str = "10.20.1.2";
    const NEW: &str = "10.20.1.3";

    fn ready(addresses: &[&str]) -> Ready {
        let addresses = addresses.iter().map(|&it| it.to_owned());
        Ready::from([(SERVICE.to_owned(), addresses.collect())])
    }

    /// Maps as a script lists them, for a Service whose endpoints are told there.
    fn maps(script: &str) -> (Arc<Fake>, watch::Sender<Ready>, NatMaps) {
        let commands = Commands::Shell(script.to_owned(), Duration::ZERO);
        let (fake, cluster) = Fake {
            commands,
            ..Fake::default()
        }
        .cluster();
        let (told, endpoints) = watch::channel(ready(&[OLD]));
        let asked = at(wire::Protocol::Tcp, ([10, 96, 0, 7], 80).into());
        let felix = FelixProgram::at("/calico-node".as_ref());
        let maps = NatMaps {
            cluster,
            listings: vec![Command::Argv(felix.dump(MAP, IpFamily::V4))],
            asked: BTreeMap::from([(SERVICE.to_owned(), BTreeSet::from([asked]))]),
            ready: endpoints,
            blind: BTreeSet::new(),
            times: [Duration::from_millis(40), Duration::from_millis(60)],
        };
        (fake, told, maps)
    }

    fn printing(map: &str) -> String {
        format!("printf '{map}'")
    }

    fn seen(events: &mut UnboundedReceiver<Event>) -> Option<Addresses> {
        match events.try_recv().unwrap().what {
            EventKind::NatMap { backends, .. } => backends,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_look_tells_the_backends_of_what_is_asked_and_knows_whether_one_of_them_is_ready() {
        let (_, told, mut maps) = maps(&printing(LISTED));
        let (log, mut events) = EventLog::new();
        for (endpoints, is_blind) in [
            (ready(&[OLD]), false),
            (ready(&[NEW]), true),
            (ready(&[OLD, NEW]), false),
            (ready(&[]), false),
            (Ready::new(), false),
        ] {
            told.send_replace(endpoints.clone());
            maps.look(&log).await;
            assert_eq!(!maps.blind.is_empty(), is_blind, "{endpoints:?}");
            assert_eq!(seen(&mut events), Some([OLD.to_owned()].into()));
        }
    }

    #[tokio::test]
    async fn of_a_map_that_is_not_there_or_not_whole_nothing_is_told() {
        let half = LISTED.replace("count 1", "count 2");
        for listing in ["", &half, &LISTED.replace("port 80", "port 81")] {
            let (_, told, mut maps) = maps(&printing(listing));
            let (log, mut events) = EventLog::new();
            told.send_replace(ready(&[NEW]));
            maps.look(&log).await;
            assert_eq!(seen(&mut events), None, "{listing}");
            assert!(maps.blind.is_empty());
        }
    }

    #[tokio::test]
    async fn a_map_is_looked_at_when_endpoints_have_changed_and_as_long_as_it_may_be_blind() {
        let folder = tempfile::tempdir().unwrap();
        let looks = folder.path().join("looks");
        // The third look fails.
        let script = format!(
            "echo >> {0}; [ $(wc -l < {0}) != 3 ] && {1}",
            looks.display(),
            printing(LISTED)
        );
        let (fake, told, mut maps) = maps(&script);
        let [heard, look] = maps.times;
        let (log, _events) = EventLog::new();
        let began = Instant::now();
        let looked = async |times: usize| {
            while fake.asked().len() < times {
                sleep_until(Instant::now() + Duration::from_millis(5)).await;
            }
            began.elapsed()
        };
        let seen = async {
            told.send_replace(ready(&[NEW]));
            assert!(looked(1).await >= heard);
            assert!(looked(2).await >= heard + look, "it is blind");
            assert!(looked(4).await >= heard + 3 * look, "it may be so still");
            told.send_replace(ready(&[OLD]));
            while !fake.asked().is_empty() {
                let before = fake.asked().len();
                sleep_until(Instant::now() + 30 * look).await;
                if fake.asked().len() == before {
                    return;
                }
            }
        };
        let seen = async {
            tokio::select! {
                () = maps.watch(&log) => {}
                () = seen => {}
            }
        };
        timeout(Duration::from_secs(20), seen)
            .await
            .expect("it is looked at");
        assert!(maps.blind.is_empty(), "it sees, and is left alone");
    }
}
