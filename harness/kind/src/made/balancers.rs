//! Services of type `LoadBalancer` get addresses, by the lab's rule: there is no cloud that would.

use std::pin::pin;

use chainbreak_engine::{load_balancer, log::EventLog};
use chainbreak_model::event::EventKind;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt, reflector,
        watcher::{self, Event, watcher},
    },
};
use serde_json::json;

/// Sees to every service until dropped. What the API refuses is trouble: nobody would ever answer there.
pub(super) async fn run(client: Client, log: EventLog) {
    let (known, writer) = reflector::store();
    let all = Api::<Service>::all(client.clone());
    let seen = watcher(all, watcher::Config::default()).default_backoff();
    let mut seen = pin!(seen.reflect(writer));
    while let Some(event) = seen.next().await {
        // A watch that breaks begins again, and tells all of it then.
        if !matches!(event, Ok(Event::Apply(_) | Event::InitDone)) {
            continue;
        }
        let mut services = known.state();
        services.sort_by_key(|service| (service.namespace(), service.name_any()));
        for service in load_balancer::reconcile(services.iter().map(AsRef::as_ref)) {
            if let Err(error) = write(&client, &service).await {
                let name = service.name_any();
                log.append(EventKind::Trouble {
                    text: format!("could not give the Service {name} an address: {error}"),
                });
            }
        }
    }
}

async fn write(client: &Client, service: &Service) -> Result<(), kube::Error> {
    let namespace = service.namespace().unwrap_or_default();
    let services = Api::<Service>::namespaced(client.clone(), &namespace);
    let status = service.status.as_ref();
    let balancer = status.and_then(|it| it.load_balancer.clone());
    let ingress = balancer.and_then(|it| it.ingress);
    let patch = Patch::Merge(json!({ "status": { "loadBalancer": { "ingress": ingress } } }));
    let name = service.name_any();
    let params = PatchParams::default();
    match services.patch_status(&name, &params, &patch).await {
        // It has gone meanwhile.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::api::PostParams;

    use super::*;
    use crate::{served, wait};

    #[tokio::test]
    async fn a_service_gets_the_address_that_it_asks_for_and_loses_it_with_its_type() {
        let client = served::api();
        let (log, _events) = EventLog::new();
        let balancing = tokio::spawn(run(client.clone(), log));
        let services = Api::<Service>::namespaced(client, "default");
        let service = json!({
            "metadata": { "name": "web" },
            "spec": { "type": "LoadBalancer", "loadBalancerIP": "192.0.2.50", "ports": [{ "port": 80 }] },
        });
        let service = serde_json::from_value(service).unwrap();
        services
            .create(&PostParams::default(), &service)
            .await
            .unwrap();
        let has = async |wanted: Option<&str>| {
            let look = || async {
                let service = services.get("web").await.unwrap();
                let ingress = service.status.and_then(|it| it.load_balancer?.ingress);
                let ip = ingress.and_then(|it| it.first()?.ip.clone());
                if ip.as_deref() == wanted {
                    Ok(())
                } else {
                    Err(format!("{ip:?}"))
                }
            };
            let within = Duration::from_secs(10);
            wait::until("it has", within, look, wait::nothing)
                .await
                .unwrap();
        };
        has(Some("192.0.2.50")).await;
        let patch = Patch::Merge(json!({ "spec": { "type": "ClusterIP" } }));
        services
            .patch("web", &PatchParams::default(), &patch)
            .await
            .unwrap();
        has(None).await;
        balancing.abort();
    }
}
