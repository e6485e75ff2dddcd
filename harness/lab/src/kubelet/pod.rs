//! One pod from its place to its end.

use std::{net::IpAddr, path::Path, sync::Arc};

use chainbreak_engine::{cluster::Place, log::EventLog};
use chainbreak_model::{
    event::EventKind,
    pod_network::{Attachment, PodNetwork},
};
use futures::future::join_all;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::{
    Kubelet,
    container::{Home, Restart, supervise},
    image::Program,
    status::{ContainerStatus, State, render},
};
use crate::{
    error::LabError,
    links,
    place::{Own, PlaceThread, set},
    recorder::Recorder,
    shims::{self, Shims},
    wiring,
    worker::PATH,
    world::{Node, World},
};

/// How a pod is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    /// Not yet.
    Not,
    /// Its object asks for a deletion: hooks, grace, then the object's end.
    Asked,
    /// Its object is gone: at once.
    Gone,
}

/// Lives a pod's life.
pub(super) async fn live(
    kubelet: Arc<Kubelet>,
    node: Arc<Node>,
    pod: Pod,
    mut end: watch::Receiver<Ending>,
) {
    let pod = Arc::new(pod);
    // A pod of the same name may still be on its way out, with the interface of that name.
    let turn = kubelet.turn(&key(&pod));
    let _turn = turn.lock().await;
    match Sandbox::make(&kubelet.world, &node, &pod, &kubelet.log).await {
        Ok(sandbox) => {
            run(&kubelet, &sandbox, &pod, end.clone()).await;
            if let Err(error) = sandbox.destroy(&kubelet.world).await {
                kubelet.trouble(error.to_string());
            }
        }
        Err(error) => {
            kubelet.trouble(format!("pod {}: {error}", pod.name_any()));
            drop(end.wait_for(|end| *end != Ending::Not).await);
        }
    }
    kubelet
        .containers
        .forget(&pod.namespace().unwrap_or_default(), &pod.name_any());
    if *end.borrow() == Ending::Asked {
        finalise(&kubelet, &pod).await;
    }
}

/// The kubelet's last word: nothing of the pod runs any more, its object may go.
pub(super) async fn finalise(kubelet: &Kubelet, pod: &Pod) {
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let deleted = api(kubelet, pod).delete(&pod.name_any(), &parameters).await;
    if let Err(error) = deleted {
        // Somebody else may have been quicker.
        tracing::debug!(%error, pod = pod.name_any(), "could not finalise");
    }
}

async fn run(kubelet: &Kubelet, sandbox: &Sandbox, pod: &Arc<Pod>, end: watch::Receiver<Ending>) {
    let containers: &[Container] = pod.spec.as_ref().map_or(&[], |spec| &spec.containers);
    for container in containers {
        let image = container.image.as_deref().unwrap_or_default();
        kubelet.say_stand_in(image, &Program::of(container));
    }
    let home = sandbox.home(kubelet, pod);
    let restart = Restart::of(pod);
    let (report, mut reports) = mpsc::unbounded_channel::<(usize, State, Option<String>)>();
    let all = join_all(containers.iter().enumerate().map(|(index, container)| {
        let report = report.clone();
        supervise(
            &home,
            container,
            restart,
            end.clone(),
            move |state, words| {
                // The receiver lives as long as this function.
                drop(report.send((index, state, words)));
            },
        )
    }));
    drop(report);
    let tell = async {
        let mut statuses = vec![ContainerStatus::new(); containers.len()];
        while let Some((index, state, words)) = reports.recv().await {
            note(kubelet, pod, &containers[index], &state, words);
            statuses[index].restarts += u32::from(matches!(state, State::Waiting(_)));
            statuses[index].state = state;
            let unreported = !reports.is_empty() || *end.borrow() == Ending::Gone;
            if !unreported {
                say(kubelet, sandbox, pod, &statuses).await;
            }
        }
    };
    futures::join!(all, tell);
    // Containers that ended for good leave a pod that stays until it is deleted.
    let mut end = end.clone();
    drop(end.wait_for(|end| *end != Ending::Not).await);
}

/// The machine's nginx failing is the world's failure; a command's is the manifest's own affair, which
/// a reader of the history may still want to know.
fn note(kubelet: &Kubelet, pod: &Pod, spec: &Container, state: &State, words: Option<String>) {
    let (State::Exited(code), Some(words)) = (state, words) else {
        return;
    };
    let text = format!(
        "container {} of pod {} ended with {code}: {words}",
        spec.name,
        pod.name_any()
    );
    if matches!(Program::of(spec), Program::Nginx(_)) {
        kubelet.trouble(text);
    } else {
        kubelet.log.append(EventKind::Step { text });
    }
}

async fn say(kubelet: &Kubelet, sandbox: &Sandbox, pod: &Pod, containers: &[ContainerStatus]) {
    let families = &kubelet.world.families;
    let node = families.addresses(sandbox.node.address);
    let status = render(pod, &node, &families.addresses(sandbox.address), containers);
    patch(kubelet, pod, status).await;
}

/// Says in the API how a pod is.
pub(super) async fn patch(kubelet: &Kubelet, pod: &Pod, status: Value) {
    let patched = api(kubelet, pod)
        .patch_status(
            &pod.name_any(),
            &PatchParams::apply("kubelet"),
            &Patch::Merge(status),
        )
        .await;
    if let Err(error) = patched {
        // The pod may just have been deleted; then there is nothing to say.
        tracing::debug!(%error, pod = pod.name_any(), "could not patch the status");
    }
}

fn key(pod: &Pod) -> Place {
    Place::Pod {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
    }
}

fn api(kubelet: &Kubelet, pod: &Pod) -> Api<Pod> {
    Api::namespaced(kubelet.client.clone(), &pod.namespace().unwrap_or_default())
}

/// What its annotations ask for. Those of a scenario's manifests were read with it.
fn wanted(pod: &Pod) -> Result<PodNetwork, LabError> {
    let annotations = pod.annotations();
    let read = PodNetwork::read(|key| annotations.get(key).map(String::as_str));
    read.map_err(|(key, wrong)| LabError::Unable {
        what: format!("annotation {key} of pod {}: {wrong}", pod.name_any()),
    })
}

fn take_address(world: &World, node: &Node, wanted: &PodNetwork) -> Result<IpAddr, LabError> {
    if let Some(address) = wanted.address {
        return node
            .take_this_address(address)
            .then_some(address)
            .ok_or_else(|| {
                let what = format!("{address} is not a free address of node {}", node.name);
                LabError::Unable { what }
            });
    }
    let chosen = |name: &str| wanted.pools.is_empty() || wanted.pools.iter().any(|it| it == name);
    let mut pools = world.pools.iter().enumerate();
    let found = pools.find_map(|(index, pool)| {
        chosen(&pool.name)
            .then(|| node.take_address(index))
            .flatten()
    });
    found.ok_or_else(|| {
        let what = format!("node {} has no pod address left", node.name);
        LabError::Unable { what }
    })
}

/// A pod's place and its link to its node.
#[derive(Debug)]
struct Sandbox {
    key: Place,
    place: Arc<PlaceThread>,
    node: Arc<Node>,
    address: IpAddr,
    /// On the node; a pod on the host's network has none.
    interface: Option<String>,
    /// On the underlay's bridge, of its further interfaces.
    ports: Vec<String>,
    /// Of a pod on the host's network, whose scripts can change the node's rules.
    shims: Option<Shims>,
}

impl Sandbox {
    async fn make(
        world: &World,
        node: &Arc<Node>,
        pod: &Pod,
        log: &EventLog,
    ) -> Result<Self, LabError> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let interface = wiring::pod_interface(world.pod_owner)(&namespace, &name);
        let on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        let mut sandbox = Self {
            key: key(pod),
            place: Arc::clone(&node.place),
            node: Arc::clone(node),
            address: node.address,
            interface: None,
            ports: Vec::new(),
            shims: None,
        };
        if on_host {
            let recorder = Recorder::new(sandbox.key.to_string(), node.name.clone(), log.clone());
            let recorder = recorder.behind(world.gate.clone());
            let made = shims::install(&node.place, recorder, Path::new("/"), PATH).await?;
            sandbox.shims = Some(made);
        } else {
            sandbox.wire(world, interface, &wanted(pod)?).await?;
        }
        world.add_pod(sandbox.key.clone(), Arc::clone(&sandbox.place));
        Ok(sandbox)
    }

    async fn wire(
        &mut self,
        world: &World,
        interface: String,
        wanted: &PodNetwork,
    ) -> Result<(), LabError> {
        let place = self.key.to_string();
        let node = Arc::clone(&self.node);
        let address = take_address(world, &node, wanted)?;
        // Started from the node's thread, a pod sees its node's files.
        let started = node
            .place
            .run(move || PlaceThread::start(&place, Own::Network))
            .await;
        let place = started.inspect_err(|_| node.free_address(address))?;
        (self.address, self.place) = (address, Arc::new(place));
        let batch = wiring::pod_on_node(&interface, self.place.tid(), address);
        self.interface = Some(interface.clone());
        let families = world.families.clone();
        let wired = async {
            self.place.run(move || families.enable()).await?;
            world.families.wire(&node.place, batch).await?;
            let arp = format!("/proc/sys/net/ipv4/conf/{interface}/proxy_arp");
            node.place.run(move || set(&arp, "1")).await?;
            let itself = wiring::pod_itself(address, world.pools.mtu(&world.families));
            world.families.wire(&self.place, itself).await?;
            links::carries(&node.place, &interface).await?;
            self.attach(world, &wanted.attachments).await
        };
        let wired = wired.await;
        if wired.is_err() {
            node.free_address(address);
        }
        wired
    }

    /// Interfaces beside `eth0`.
    async fn attach(&mut self, world: &World, attachments: &[Attachment]) -> Result<(), LabError> {
        let Place::Pod { namespace, name } = self.key.clone() else {
            return Ok(());
        };
        for attachment in attachments {
            let mut addresses = attachment.addresses.iter().map(IpNet::addr);
            if let Some(taken) = addresses.find(|address| !world.plan.is_spare(*address)) {
                let what = format!("{}: {taken} is not free on the nodes' network", self.key);
                return Err(LabError::Unable { what });
            }
            let port = wiring::attachment_port(&namespace, &name, &attachment.interface);
            let (bridge, pod) = wiring::attachment(&port, self.place.tid(), attachment);
            wiring::apply_here(bridge).await?;
            self.ports.push(port.clone());
            world.families.wire(&self.place, pod).await?;
            links::carries_here(&port).await?;
        }
        Ok(())
    }

    fn home(&self, kubelet: &Kubelet, pod: &Arc<Pod>) -> Home {
        let families = &kubelet.world.families;
        Home {
            place: Arc::clone(&self.place),
            address: families.first(self.address),
            has_v6: families.has_v6(),
            pod: Arc::clone(pod),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            node: self.node.name.to_string(),
            node_address: families.first(self.node.address),
            shims: self
                .shims
                .as_ref()
                .map(|shims| shims.path_prefix().to_owned()),
            containers: Arc::clone(&kubelet.containers),
        }
    }

    /// Takes the link away at once: the kernel would do it some time after the last process ended,
    /// and until then the node would send packets to a dead pod.
    async fn destroy(self, world: &World) -> Result<(), LabError> {
        world.remove_pod(&self.key, &self.place);
        let Some(interface) = self.interface else {
            return Ok(());
        };
        let cut = wiring::apply(&self.node.place, format!("link del {interface}\n")).await;
        self.node.free_address(self.address);
        let ports = self.ports.iter();
        let ports: Vec<String> = ports.map(|port| format!("link del {port}\n")).collect();
        let detached = wiring::apply_here(ports.concat()).await;
        cut.and(detached)
    }
}
