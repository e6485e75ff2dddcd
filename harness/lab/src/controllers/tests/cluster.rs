//! An API in memory and a kubelet that makes every pod ready and every leaving pod gone.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, DaemonSetStatus, Deployment, DeploymentStatus, ReplicaSet},
    core::v1::{Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Resource, ResourceExt};
use serde_json::{Value, from_value, json};

use super::{
    super::{
        name_generator::NameGenerator,
        plan,
        pods::{is_available, is_ready, is_terminating, node_name},
        seen::{Cache, Seen, key},
        write::{Object, Verb, Write},
    },
    ready,
};

pub(super) struct Cluster {
    pub(super) seen: Seen,
    generator: NameGenerator,
    revision: u64,
    addresses: u32,
}

impl Cluster {
    pub(super) fn new(nodes: usize) -> Self {
        let mut cluster = Self {
            seen: Seen::default(),
            generator: NameGenerator::new(1),
            revision: 0,
            addresses: 0,
        };
        for number in 1..=nodes {
            cluster.node(&format!("n{number}"));
        }
        cluster
    }

    fn store<K: Resource + Clone>(&mut self, cache: fn(&mut Seen) -> &mut Cache<K>, mut object: K) {
        self.revision += 1;
        let revision = self.revision;
        let meta = object.meta_mut();
        meta.resource_version = Some(revision.to_string());
        meta.uid.get_or_insert_with(|| format!("uid-{revision}"));
        cache(&mut self.seen).put(object);
    }

    /// Like a server: refuses a second object of a name, and a write of an older version.
    fn accept<K: Resource + Clone>(
        &mut self,
        verb: Verb,
        cache: fn(&mut Seen) -> &mut Cache<K>,
        mut object: K,
    ) {
        let known = cache(&mut self.seen).get(&key(&object)).cloned();
        if verb == Verb::Create {
            assert!(known.is_none(), "{:?} exists", key(&object));
            object.meta_mut().generation = Some(1);
        } else {
            let known = known.expect("there is something to write to");
            assert_eq!(
                known.meta().resource_version,
                object.meta().resource_version
            );
        }
        if verb == Verb::Delete {
            self.revision += 1;
            object.meta_mut().resource_version = Some(self.revision.to_string());
            cache(&mut self.seen).remove(&object);
        } else {
            self.store(cache, object);
        }
    }

    fn perform(&mut self, write: Write) {
        match write.object {
            Object::Pod(mut pod) if write.verb == Verb::Delete && node_name(&pod).is_some() => {
                pod.metadata.deletion_timestamp =
                    Some(from_value(json!("2026-01-01T00:00:00Z")).unwrap());
                self.accept(Verb::Replace, |seen| &mut seen.pods, *pod);
            }
            Object::Binding(it) => self.accept(Verb::Replace, |seen| &mut seen.pods, *it),
            Object::Pod(it) => self.accept(write.verb, |seen| &mut seen.pods, *it),
            Object::Deployment(it) => self.accept(write.verb, |seen| &mut seen.deployments, *it),
            Object::ReplicaSet(it) => self.accept(write.verb, |seen| &mut seen.replica_sets, *it),
            Object::DaemonSet(it) => self.accept(write.verb, |seen| &mut seen.daemon_sets, *it),
            Object::Slice(it) => self.accept(write.verb, |seen| &mut seen.slices, *it),
            Object::Service(it) => self.accept(write.verb, |seen| &mut seen.services, *it),
        }
    }

    /// Lets the controllers write until they want nothing more, and says what they wrote.
    pub(super) fn settle(&mut self) -> Vec<String> {
        let mut written = Vec::new();
        // A round more than the chain from a deployment to its status is long.
        for _ in 0..super::super::ROUNDS {
            let writes = plan(&self.seen, &mut self.generator);
            if writes.is_empty() {
                return written;
            }
            for write in writes {
                written.push(write.to_string());
                self.perform(write);
            }
        }
        panic!("the controllers do not come to rest: {written:#?}");
    }

    /// The kubelet's part: says whether there was anything to do.
    fn live(&mut self) -> bool {
        let mut busy = false;
        for pod in self.pods() {
            if is_terminating(&pod) {
                self.accept(Verb::Delete, |seen| &mut seen.pods, pod);
            } else if node_name(&pod).is_some() && !is_ready(&pod) {
                self.addresses += 1;
                let address = format!(
                    "10.20.{}.{}",
                    self.addresses / 250,
                    self.addresses % 250 + 2
                );
                self.store(|seen| &mut seen.pods, ready(pod, &address));
            } else {
                continue;
            }
            busy = true;
        }
        busy
    }

    pub(super) fn rest(&mut self) -> Vec<String> {
        self.rest_while(|_| ())
    }

    /// Controllers and kubelet in turn until neither has anything to do; `watch` sees every turn.
    pub(super) fn rest_while(&mut self, watch: impl Fn(&Self)) -> Vec<String> {
        let mut written = Vec::new();
        for _ in 0..50 {
            written.extend(self.settle());
            watch(self);
            if !self.live() {
                return written;
            }
            watch(self);
        }
        panic!("the cluster does not come to rest: {written:#?}");
    }

    pub(super) fn node(&mut self, name: &str) {
        let labels = json!({ "kubernetes.io/hostname": name });
        let node: Node =
            from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap();
        self.store(|seen| &mut seen.nodes, node);
    }

    pub(super) fn taint(&mut self, name: &str) {
        let mut node = self
            .seen
            .nodes
            .get(&(String::new(), name.to_owned()))
            .cloned()
            .unwrap();
        let taint = json!({ "taints": [{ "key": "a", "effect": "NoSchedule" }] });
        node.spec = from_value(taint).unwrap();
        self.store(|seen| &mut seen.nodes, node);
    }

    /// Creates the object or replaces its spec.
    fn apply<K>(&mut self, cache: fn(&mut Seen) -> &mut Cache<K>, name: &str, spec: Value)
    where
        K: Resource + Clone + serde::de::DeserializeOwned + serde::Serialize,
    {
        let key = ("test".to_owned(), name.to_owned());
        let known = cache(&mut self.seen).get(&key).map(|known| json!(known));
        let mut value =
            known.unwrap_or(json!({ "metadata": { "name": name, "namespace": "test" } }));
        let generation = value["metadata"]["generation"].as_i64().unwrap_or(0);
        value["metadata"]["generation"] = json!(generation + 1);
        value["spec"] = spec;
        self.store(cache, from_value(value).unwrap());
    }

    pub(super) fn deployment(&mut self, name: &str, spec: Value) {
        self.apply::<Deployment>(|seen| &mut seen.deployments, name, spec);
    }

    pub(super) fn daemon_set(&mut self, name: &str, spec: Value) {
        self.apply::<DaemonSet>(|seen| &mut seen.daemon_sets, name, spec);
    }

    pub(super) fn service(&mut self, name: &str, spec: Value) {
        self.apply::<Service>(|seen| &mut seen.services, name, spec);
    }

    pub(super) fn pod(&mut self, mut pod: Pod) {
        pod.spec.get_or_insert_default();
        self.store(|seen| &mut seen.pods, pod);
    }

    /// A pod that the kubelet of this file must not touch: the test only settles.
    pub(super) fn pod_as_it_is(&mut self, pod: Pod) {
        self.store(|seen| &mut seen.pods, pod);
    }

    pub(super) fn foreign_slice(&mut self, service: &str) {
        let labels = json!({ "kubernetes.io/service-name": service });
        let slice: EndpointSlice = from_value(json!({
            "metadata": { "name": "by-hand", "namespace": "test", "labels": labels },
            "addressType": "IPv4", "endpoints": [],
        }))
        .unwrap();
        self.store(|seen| &mut seen.slices, slice);
    }

    pub(super) fn pods(&self) -> Vec<Pod> {
        self.seen.pods.iter().cloned().collect()
    }

    pub(super) fn serving(&self) -> usize {
        self.seen
            .pods
            .iter()
            .filter(|pod| is_available(pod))
            .count()
    }

    pub(super) fn slices(&self) -> Vec<EndpointSlice> {
        self.seen.slices.iter().cloned().collect()
    }

    pub(super) fn replica_sets(&self) -> Vec<ReplicaSet> {
        self.seen.replica_sets.iter().cloned().collect()
    }

    pub(super) fn deployment_status(&self, name: &str) -> DeploymentStatus {
        let key = ("test".to_owned(), name.to_owned());
        self.seen
            .deployments
            .get(&key)
            .and_then(|it| it.status.clone())
            .unwrap()
    }

    /// Which of its templates a deployment says it is at.
    pub(super) fn revision(&self, name: &str) -> String {
        let key = ("test".to_owned(), name.to_owned());
        let deployment = self.seen.deployments.get(&key).unwrap();
        deployment.annotations()["deployment.kubernetes.io/revision"].clone()
    }

    pub(super) fn daemon_set_status(&self, name: &str) -> DaemonSetStatus {
        let key = ("test".to_owned(), name.to_owned());
        self.seen
            .daemon_sets
            .get(&key)
            .and_then(|it| it.status.clone())
            .unwrap()
    }
}
