//! The endpoints of the Services that traffic goes to, as the API has them: against them it shows what an agent's rules and maps of them are worth.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::{case::Case, event::EventKind};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};

use crate::{infra_error::InfraError, log::EventLog};

/// The Services of the case's traffic.
pub(crate) fn services(case: &Case) -> BTreeSet<(String, String)> {
    let asked = case.traffic.values().filter_map(|it| it.to.service());
    asked
        .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
        .collect()
}

/// Tells the endpoints of a Service whenever they change. A watch that fails is begun again.
pub(crate) async fn follow(
    client: Client,
    (namespace, name): (String, String),
    log: EventLog,
) -> InfraError {
    let slices: Api<EndpointSlice> = Api::namespaced(client, &namespace);
    let own = watcher::Config::default().labels(&format!("kubernetes.io/service-name={name}"));
    let mut events = watcher(slices, own).default_backoff().boxed();
    let mut known = Known::default();
    let service = format!("{namespace}/{name}");
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                if let Some(ready) = known.take(event) {
                    let service = service.clone();
                    log.append(EventKind::Endpoints { service, ready });
                }
            }
            Ok(None) => return std::future::pending().await,
            Err(error) => tracing::debug!(%error, service, "watch of EndpointSlices failed"),
        }
    }
}

#[derive(Debug, Default)]
struct Known {
    slices: BTreeMap<String, BTreeSet<String>>,
    told: Option<BTreeSet<String>>,
}

impl Known {
    /// The addresses that are ready, if that is news.
    fn take(&mut self, event: watcher::Event<EndpointSlice>) -> Option<BTreeSet<String>> {
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
        let now: BTreeSet<String> = self.slices.values().flatten().cloned().collect();
        let is_news = is_whole && self.told.as_ref() != Some(&now);
        is_news.then(|| {
            self.told = Some(now.clone());
            now
        })
    }

    fn hold(&mut self, slice: &EndpointSlice) {
        let ready = ready(slice).map(str::to_owned).collect();
        self.slices.insert(slice.name_any(), ready);
    }
}

/// The addresses of a slice that are ready.
pub(crate) fn ready(slice: &EndpointSlice) -> impl Iterator<Item = &str> {
    let ready = slice.endpoints.iter().filter(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|it| it.ready).unwrap_or(true)
    });
    ready.flat_map(|endpoint| endpoint.addresses.iter().map(String::as_str))
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

    fn addresses(these: &[&str]) -> BTreeSet<String> {
        these.iter().map(|&it| it.to_owned()).collect()
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
