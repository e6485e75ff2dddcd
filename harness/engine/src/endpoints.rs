//! The endpoints of the Services that traffic goes to, as the API has them: against them it shows what an agent's rules and maps of them are worth.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::{case::Case, event::EventKind};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;

use crate::{infra_error::InfraError, log::EventLog};

/// The Services of the case's traffic.
pub(crate) fn services(case: &Case) -> BTreeSet<(String, String)> {
    let asked = case.traffic.values().filter_map(|it| it.to.service());
    asked
        .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
        .collect()
}

/// The endpoints of Services that are ready, as the API has said last: of each, `namespace/name`, as far as they are known.
pub(crate) type Ready = BTreeMap<String, BTreeSet<String>>;

/// Tells the endpoints of a Service whenever they change, and that they are not known while a watch that failed is begun again.
pub(crate) async fn follow(
    client: Client,
    (namespace, name): (String, String),
    all: watch::Sender<Ready>,
    log: EventLog,
) -> InfraError {
    let slices: Api<EndpointSlice> = Api::namespaced(client, &namespace);
    let own = watcher::Config::default().labels(&format!("kubernetes.io/service-name={name}"));
    let mut events = watcher(slices, own).default_backoff().boxed();
    let mut known = Known::default();
    let service = format!("{namespace}/{name}");
    loop {
        let (ready, draining) = match events.try_next().await {
            Ok(Some(event)) => match known.take(event) {
                Some(addresses) => (Some(addresses.ready), addresses.draining),
                None => continue,
            },
            Ok(None) => return std::future::pending().await,
            Err(error) => {
                tracing::debug!(%error, service, "watch of EndpointSlices failed");
                if known.told.take().is_none() {
                    continue;
                }
                (None, BTreeSet::new())
            }
        };
        all.send_modify(|all| {
            match &ready {
                Some(ready) => all.insert(service.clone(), ready.clone()),
                None => all.remove(&service),
            };
        });
        log.append(EventKind::Endpoints {
            service: service.clone(),
            ready,
            draining,
        });
    }
}

/// The addresses of a Service, or of one of its slices.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Addresses {
    ready: BTreeSet<String>,
    /// They end, and serve still.
    draining: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Known {
    slices: BTreeMap<String, Addresses>,
    told: Option<Addresses>,
}

impl Known {
    /// The addresses, if they are news.
    fn take(&mut self, event: watcher::Event<EndpointSlice>) -> Option<Addresses> {
        let is_whole = match event {
            watcher::Event::Init => {
                self.slices.clear();
                false
            }
            watcher::Event::InitApply(slice) => {
                self.hold(&slice);
                false
            }
            watcher::Event::InitDone => true,
            watcher::Event::Apply(slice) => {
                self.hold(&slice);
                true
            }
            watcher::Event::Delete(slice) => self.slices.remove(&slice.name_any()).is_some(),
        };
        let mut now = Addresses::default();
        for slice in self.slices.values() {
            now.ready.extend(slice.ready.iter().cloned());
            now.draining.extend(slice.draining.iter().cloned());
        }
        let is_news = is_whole && self.told.as_ref() != Some(&now);
        is_news.then(|| {
            self.told = Some(now.clone());
            now
        })
    }

    fn hold(&mut self, slice: &EndpointSlice) {
        let ready = ready(slice).map(str::to_owned).collect();
        let draining = draining(slice).map(str::to_owned).collect();
        let addresses = Addresses { ready, draining };
        self.slices.insert(slice.name_any(), addresses);
    }
}

/// The addresses of a slice that are ready.
pub(crate) fn ready(slice: &EndpointSlice) -> impl Iterator<Item = &str> {
    of(slice, |conditions| conditions.ready.unwrap_or(true))
}

/// The addresses of a slice that end and serve still.
fn draining(slice: &EndpointSlice) -> impl Iterator<Item = &str> {
    of(slice, |conditions| {
        conditions.terminating == Some(true) && conditions.serving == Some(true)
    })
}

fn of(slice: &EndpointSlice, are: fn(&EndpointConditions) -> bool) -> impl Iterator<Item = &str> {
    let unsaid = EndpointConditions::default();
    let endpoints = slice.endpoints.iter().filter(move |endpoint| {
        let conditions = endpoint.conditions.as_ref();
        are(conditions.unwrap_or(&unsaid))
    });
    endpoints.flat_map(|endpoint| endpoint.addresses.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use watcher::Event;

    use super::*;

    fn slice(name: &str, addresses: &[(&str, bool)]) -> EndpointSlice {
        let endpoint = |(address, ready): &(&str, bool)| json!({ "addresses": [address], "conditions": { "ready": ready } });
        let endpoints: Vec<_> = addresses.iter().map(endpoint).collect();
        let slice = json!({
            "metadata": { "name": name }, "addressType": "IPv4", "endpoints": endpoints,
        });
        serde_json::from_value(slice).expect("it is one")
    }

    fn addresses(these: &[&str]) -> Addresses {
        Addresses {
            ready: these.iter().map(|&it| it.to_owned()).collect(),
            draining: BTreeSet::new(),
        }
    }

    #[test]
    fn what_ends_and_serves_still_is_told_beside_what_is_ready() {
        let endpoints = json!([
            { "addresses": ["10.20.1.2"], "conditions": { "ready": false, "serving": true, "terminating": true } },
            { "addresses": ["10.20.1.3"], "conditions": { "ready": false, "serving": false, "terminating": true } },
        ]);
        let slice =
            json!({ "metadata": { "name": "a" }, "addressType": "IPv4", "endpoints": endpoints });
        let mut known = Known::default();
        known.take(Event::Init);
        known.take(Event::InitApply(
            serde_json::from_value(slice).expect("it is one"),
        ));
        let told = known.take(Event::InitDone).expect("it is news");
        assert!(told.ready.is_empty());
        assert_eq!(Vec::from_iter(told.draining), ["10.20.1.2"]);
    }

    #[test]
    fn ready_addresses_of_all_slices_are_told_once_each_time_they_change() {
        let mut known = Known::default();
        assert_eq!(known.take(Event::Init), None);
        let first = slice("a", &[("10.20.1.2", true), ("10.20.1.3", false)]);
        assert_eq!(known.take(Event::InitApply(first)), None);
        let one = Some(addresses(&["10.20.1.2"]));
        assert_eq!(known.take(Event::InitDone), one);
        let same = slice("a", &[("10.20.1.2", true)]);
        assert_eq!(known.take(Event::Apply(same)), None);
        let second = slice("b", &[("10.20.2.2", true)]);
        let both = Some(addresses(&["10.20.1.2", "10.20.2.2"]));
        assert_eq!(known.take(Event::Apply(second.clone())), both);
        assert_eq!(known.take(Event::Delete(second)), one);
    }

    #[test]
    fn a_list_that_lacks_a_slice_takes_it_away() {
        let mut known = Known::default();
        known.take(Event::Init);
        known.take(Event::InitApply(slice("a", &[("10.20.1.2", true)])));
        known.take(Event::InitDone);
        known.take(Event::Init);
        assert_eq!(known.take(Event::InitDone), Some(addresses(&[])));
    }
}
