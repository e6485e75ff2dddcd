//! `manifests:`: ordinary Kubernetes YAML, in files beside the scenario or written into it.

mod kinds;
mod pools;
mod unable;

use std::{collections::BTreeSet, io, path::Path};

use super::{
    Reader,
    fields::{entries, items, note, text},
    is_name, name,
};
use crate::{
    case::{ClusterSpec, IpFamily, ObjectRef, PoolSpec},
    diagnostic::{Gathered, Place, Reach},
    files::nearest_file,
    nearest::suggest,
    pod_network::PodNetwork,
    yaml::{self, Node, Value},
};
use kinds::{KINDS, ObjectKind, ports};

/// The Kubernetes objects of a scenario, as far as their names could be read.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    objects: Vec<Object>,
    /// Something could not be read, so that a missing name proves nothing.
    incomplete: bool,
}

#[derive(Debug)]
struct Object {
    kind: &'static str,
    namespace: Option<String>,
    name: String,
    service: Option<ServicePorts>,
    /// `nodeName` of its pods.
    pin: Option<Node>,
    pool: Option<(PoolSpec, Place)>,
    /// What its pods ask of their network.
    network: Option<(PodNetwork, Place)>,
    json: serde_json::Value,
}

/// How a Service can be reached.
#[derive(Debug)]
pub(super) struct ServicePorts {
    pub(super) ports: Vec<ServicePort>,
    pub(super) has_node_ports: bool,
    /// The families that it names, in order.
    pub(super) families: Vec<IpFamily>,
    /// Whether it has both where the cluster does.
    pub(super) is_dual: bool,
}

/// One of a Service's ports.
#[derive(Debug)]
pub(super) struct ServicePort {
    /// Empty without one.
    pub(super) name: String,
    pub(super) number: u16,
    /// As Kubernetes writes it.
    pub(super) protocol: String,
}

impl ServicePorts {
    /// Whether it has an address of that family in a cluster.
    pub(super) fn has(&self, family: IpFamily, cluster: &ClusterSpec) -> bool {
        let first = self.families.first().copied();
        self.is_dual || family == first.unwrap_or(cluster.default_family())
    }
}

impl Manifests {
    /// Whether everything could be read.
    pub(super) fn is_complete(&self) -> bool {
        !self.incomplete
    }

    /// The `nodeName`s that pods ask for.
    pub(super) fn pins(&self) -> impl Iterator<Item = &Node> {
        self.objects.iter().filter_map(|object| object.pin.as_ref())
    }

    /// The pools, of which the first is the default; notes what does not fit the cluster.
    pub(super) fn pools(&self, gathered: &Gathered, cluster: &ClusterSpec) -> Vec<PoolSpec> {
        let pools = self
            .objects
            .iter()
            .filter_map(|object| object.pool.as_ref());
        let pools: Vec<_> = pools.map(|(pool, place)| (pool, place)).collect();
        let pods = self
            .objects
            .iter()
            .filter_map(|object| object.network.as_ref());
        let pods: Vec<_> = pods.collect();
        if self.is_complete() {
            pools::check(gathered, cluster, &pools, &pods);
        }
        pools.into_iter().map(|(pool, _)| pool.clone()).collect()
    }

    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Object> {
        self.objects
            .iter()
            .filter(move |object| object.kind == kind)
    }

    fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&Object> {
        let here = |object: &&Object| {
            object.namespace.as_deref() == Some(namespace) && object.name == name
        };
        self.objects
            .iter()
            .filter(|object| object.kind == kind)
            .find(here)
    }

    pub(super) fn has(&self, kind: &str, namespace: &str, name: &str) -> bool {
        self.find(kind, namespace, name).is_some()
    }

    pub(super) fn service(&self, namespace: &str, name: &str) -> Option<&ServicePorts> {
        self.find("Service", namespace, name)?.service.as_ref()
    }

    /// `namespace/name` of each object of a kind.
    pub(super) fn names(&self, kind: &str) -> Vec<String> {
        let full =
            |object: &Object| Some(format!("{}/{}", object.namespace.as_ref()?, object.name));
        self.of(kind).filter_map(full).collect()
    }

    /// The object of that kind and name, if it is declared; without a namespace it is in `default`.
    pub(super) fn refer(
        &self,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<ObjectRef> {
        let object = self.of(kind).find(|object| {
            let here = object.namespace.is_none() || object.namespace.as_deref() == namespace;
            here && object.name == name
        })?;
        Some(ObjectRef {
            api_version: object.json.get("apiVersion")?.as_str()?.to_owned(),
            kind: object.kind.to_owned(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        })
    }

    /// The namespace in which an object of that kind and name is.
    pub(super) fn elsewhere(&self, kind: &str, name: &str) -> Option<&str> {
        self.objects
            .iter()
            .find(|object| object.kind == kind && object.name == name)?
            .namespace
            .as_deref()
    }

    /// The kind of the controller of that name, whose pods a person may have meant.
    pub(super) fn owner_of_pods(&self, namespace: &str, name: &str) -> Option<&'static str> {
        ["Deployment", "DaemonSet"]
            .into_iter()
            .find(|kind| self.has(kind, namespace, name))
    }

    /// The objects, in front of them a Namespace for each one that is used and not declared.
    pub(super) fn objects(&self) -> Vec<serde_json::Value> {
        let declared: BTreeSet<&str> = self
            .of("Namespace")
            .map(|object| object.name.as_str())
            .collect();
        let used: BTreeSet<&str> = self
            .objects
            .iter()
            .filter_map(|object| object.namespace.as_deref())
            .collect();
        let missing = used
            .difference(&declared)
            .filter(|name| !BUILT_IN.contains(name));
        let missing = missing.map(|name| {
            serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
        });
        let mut objects: Vec<serde_json::Value> = missing.collect();
        objects.extend(self.objects.iter().map(|object| object.json.clone()));
        objects
    }
}

/// Namespaces that every cluster has.
const BUILT_IN: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The kinds that an object can have.
pub(super) fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

impl Reader<'_> {
    /// Reads the list of files and objects.
    pub(super) fn manifests(&self, node: Option<&Node>) -> Manifests {
        let mut manifests = Manifests::default();
        let Some(node) = node else { return manifests };
        let Some(items) = items(self.gathered, node, "manifests") else {
            manifests.incomplete = true;
            return manifests;
        };
        for item in items {
            match &item.value {
                Value::Map(_) => self.object(item, &mut manifests),
                Value::Scalar { .. } | Value::Seq(_) => self.manifest_file(item, &mut manifests),
            }
        }
        manifests
    }

    fn manifest_file(&self, node: &Node, manifests: &mut Manifests) {
        manifests.incomplete |= self.try_manifest_file(node, manifests).is_none();
    }

    fn try_manifest_file(&self, node: &Node, manifests: &mut Manifests) -> Option<()> {
        let written = text(self.gathered, node, "a manifest's file")?;
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let path = folder.join(written);
        let bytes = (self.open)(&path)
            .map_err(|error| {
                let message = format!("could not read {}: {error}", path.display());
                let like = (error.kind() == io::ErrorKind::NotFound).then(|| nearest_file(&path));
                let hint = like.flatten().map(|name| format!("did you mean {name:?}?"));
                note(self.gathered, &node.place, message, hint);
            })
            .ok()?;
        let reach = Reach::of(folder, Path::new(written));
        let source = yaml::decode(&path, &bytes, reach, self.gathered)?;
        let documents = yaml::parse(&source, self.gathered);
        manifests.incomplete |= !documents.complete;
        let objects: Vec<&Node> = documents
            .nodes
            .iter()
            .filter(|document| !document.is_null())
            .collect();
        if objects.is_empty() && documents.complete {
            note(
                self.gathered,
                &node.place,
                format!("{written} holds no object"),
                None,
            );
        }
        for object in objects {
            self.object(object, manifests);
        }
        Some(())
    }

    fn object(&self, node: &Node, manifests: &mut Manifests) {
        // What `kubectl get -o yaml` prints of several objects.
        if node.get("kind").and_then(Node::text) == Some("List") {
            let listed = node.get("items").unwrap_or(node);
            for item in items(self.gathered, listed, "items").unwrap_or_default() {
                self.object(item, manifests);
            }
            return;
        }
        match self.try_object(node) {
            Some(object) => {
                let same = |known: &&Object| {
                    (known.kind, &known.namespace, &known.name)
                        == (object.kind, &object.namespace, &object.name)
                };
                if manifests.objects.iter().find(same).is_some() {
                    let message = format!("{} {:?} is declared twice", object.kind, object.name);
                    let name = node
                        .get("metadata")
                        .and_then(|metadata| metadata.get("name"));
                    note(self.gathered, &name.unwrap_or(node).place, message, None);
                }
                manifests.objects.push(object);
            }
            None => manifests.incomplete = true,
        }
    }

    fn try_object(&self, node: &Node) -> Option<Object> {
        let gathered = self.gathered;
        let kind = kind(gathered, node)?;
        // Whatever is wrong with it, its name can be referred to.
        let _noted: Option<()> = (kind.check)(gathered, node);
        let metadata = node.get("metadata").unwrap_or(node);
        let Some(name) = metadata.get("name") else {
            note(
                gathered,
                &metadata.place,
                format!("the {} has no name", kind.name),
                None,
            );
            return None;
        };
        let name = dns_name(gathered, name)?;
        let namespace = if kind.namespaced {
            Some(namespace(gathered, metadata)?.to_owned())
        } else {
            None
        };
        let pool = match (kind.name, node.get("spec")) {
            ("IPPool", Some(spec)) => {
                let pool = pools::pool(gathered, name, spec);
                pool.map(|pool| (pool, spec.place.clone()))
            }
            _ => None,
        };
        Some(Object {
            pool,
            network: pools::pod_network(gathered, pod_metadata(node)),
            kind: kind.name,
            namespace,
            name: name.to_owned(),
            service: (kind.name == "Service").then(|| ports(node)),
            pin: pin(node),
            json: node.to_json(),
        })
    }
}

/// The metadata of a pod, or of a template's pods.
fn pod_metadata(node: &Node) -> &Node {
    let template = node.get("spec").and_then(|spec| spec.get("template"));
    let owner = template.unwrap_or(node);
    owner.get("metadata").unwrap_or(owner)
}

/// `nodeName` of a pod or of a template.
fn pin(node: &Node) -> Option<Node> {
    let spec = node.get("spec")?;
    let spec = spec
        .get("template")
        .map_or(Some(spec), |template| template.get("spec"))?;
    spec.get("nodeName").cloned()
}

fn kind(gathered: &Gathered, node: &Node) -> Option<&'static ObjectKind> {
    entries(gathered, node, "a manifest")?;
    let (Some(at), Some(version)) = (node.get("kind"), node.get("apiVersion")) else {
        let message = "a manifest needs apiVersion and kind";
        note(gathered, &node.place, message, None);
        return None;
    };
    let name = text(gathered, at, "kind")?;
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
        let hint = suggest(name, KINDS.iter().map(|kind| kind.name));
        note(
            gathered,
            &at.place,
            format!("a {name} cannot run here"),
            hint,
        );
        return None;
    };
    let written = text(gathered, version, "apiVersion")?;
    if !kind.versions.contains(&written) {
        let message = format!("{name} has no apiVersion {written:?}");
        let hint = format!("write {}", kind.versions.join(" or "));
        note(gathered, &version.place, message, Some(hint));
        return None;
    }
    Some(kind)
}

/// The namespace that an object says it is in. It is made where it is not declared, so its name must do.
fn namespace<'a>(gathered: &Gathered, metadata: &'a Node) -> Option<&'a str> {
    match metadata.get("namespace") {
        Some(node) if !node.is_null() => name(gathered, node, "a namespace"),
        _ => Some("default"),
    }
}

/// A name that Kubernetes accepts: like ours, and with dots.
fn dns_name<'a>(gathered: &Gathered, node: &'a Node) -> Option<&'a str> {
    let name = text(gathered, node, "a name")?;
    if name.len() <= 253 && name.split('.').all(is_name) {
        return Some(name);
    }
    let hint = "a name has lowercase letters, digits, dashes and dots";
    note(
        gathered,
        &node.place,
        format!("Kubernetes refuses the name {name:?}"),
        Some(hint.into()),
    );
    None
}
