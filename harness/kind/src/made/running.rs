//! What runs in the pods of a case that is over.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::Value;

use super::leftovers::namespace;
use crate::{
    error::KindError,
    shared::{
        nodes::Nodes,
        pods::{FIND, id},
    },
    wait,
};

/// In what time pods that were deleted begin to go.
const BEGUN: Duration = Duration::from_secs(5);

/// Kills processes, and takes out the interfaces by which their pods' networks hang on the node's: the kubelet ends the sandbox, whose network the
/// CNI's plugin takes down some time later and with what is there then. Not those of pods in the node's own network.
const KILL: &str = r#"
    own=$(readlink /proc/1/ns/net)
    for p in $found; do
        net=$(readlink /proc/$p/ns/net)
        case "$own $seen" in *"$net"*) continue;; esac
        seen="$seen $net"
        at=$(nsenter -t $p -n ip -o link show dev eth0 | sed -n 's/^[0-9]*: eth0@if\([0-9]*\):.*/\1/p')
        links="$links $(ip -o link show type veth | sed -n "s/^$at: \([^@:]*\).*/\1/p")"
    done
    for p in $found; do kill -9 $p; done
    for it in $links; do ip link delete $it; done"#;

/// What runs in a case's pods: the kubelet leaves a `sleep` that does not care for SIGTERM its second, and only then the pod's interface goes.
pub(crate) struct Running {
    pods: Vec<(Api<Pod>, String)>,
    /// Containers, by id.
    ids: Vec<String>,
}

impl Running {
    /// In the namespaces of these manifests, but for those of the cluster itself.
    pub(crate) async fn of(client: &Client, manifests: &[Value]) -> Result<Self, KindError> {
        let mut running = Self {
            pods: Vec::new(),
            ids: Vec::new(),
        };
        for name in namespaces(manifests) {
            let pods = Api::<Pod>::namespaced(client.clone(), name);
            let listed = pods.list(&ListParams::default()).await;
            let doing = format!("list the pods of {name}");
            for pod in listed.map_err(KindError::api(doing))? {
                running.ids.extend(containers(&pod));
                running.pods.push((pods.clone(), pod.name_any()));
            }
        }
        Ok(running)
    }

    /// Ends it as soon as all of these pods are being ended or gone: no container is started again then.
    pub(crate) async fn end(&self, nodes: &Nodes) -> Result<(), KindError> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let look = || async {
            for (api, name) in &self.pods {
                let found = api.get_metadata_opt(name).await;
                let found = found.map_err(|error| error.to_string())?;
                if found.is_some_and(|it| it.metadata.deletion_timestamp.is_none()) {
                    return Err(format!("{name} is not being ended yet"));
                }
            }
            Ok(())
        };
        let what = "the case's pods are being ended";
        wait::until(what, BEGUN, look, wait::nothing).await?;
        // One in each line: whoever has any of them.
        let argv = ["sh", "-c", &end_script(), "sh", &self.ids.join("\n")];
        nodes.run(&argv).await
    }
}

/// Ends what is in any of these containers: `$1`, an id a line.
fn end_script() -> String {
    format!("found=$({{ {FIND}; }} | cut -d / -f 3); {{ {KILL}\n}} 2>/dev/null; exit 0")
}

/// Where the objects of manifests are, but for namespaces of the cluster itself.
fn namespaces(manifests: &[Value]) -> BTreeSet<&str> {
    let of = manifests.iter().map(|manifest| {
        let its = manifest["metadata"]["namespace"].as_str();
        namespace(manifest).or(its).unwrap_or("default")
    });
    of.filter(|name| !name.starts_with("kube-")).collect()
}

/// The ids of a pod's containers that have begun.
fn containers(pod: &Pod) -> Vec<String> {
    let statuses = pod.status.iter().flat_map(|it| &it.container_statuses);
    statuses
        .flatten()
        .filter_map(id)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use serde_json::json;

    use super::*;

    #[test]
    fn what_runs_for_a_case_is_in_the_namespaces_of_its_manifests_and_not_in_the_clusters_own() {
        let object = |kind: &str, name: &str, namespace: Option<&str>| json!({ "kind": kind, "metadata": { "name": name, "namespace": namespace } });
        let manifests = [
            object("Namespace", "test", None),
            object("Namespace", "kube-system", None),
            object("Pod", "client", None),
            object("Deployment", "web", Some("test")),
            object("Service", "far", Some("other")),
            object("ConfigMap", "coredns", Some("kube-system")),
        ];
        let all: Vec<&str> = namespaces(&manifests).into_iter().collect();
        assert_eq!(all, ["default", "other", "test"]);
        let ids = ["containerd://1f", "containerd://2a"].map(|id| {
            json!({ "containerID": id, "name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0 })
        });
        let pod = json!({ "metadata": {}, "status": { "containerStatuses": ids } });
        assert_eq!(
            containers(&serde_json::from_value(pod).unwrap()),
            ["1f", "2a"]
        );
        assert!(containers(&Pod::default()).is_empty());
    }

    /// A node of namespaces of its own, with a pod's process in the pod's network; `$0` is where it writes what is there.
    const NODE: &str = r#"
        exec > /dev/null
        ip link add kept type veth peer name peer
        unshare --net sleep 20 & far=$!
        unshare --net sleep 20 & pod=$!
        for it in $far $pod; do
            until [ "$(readlink /proc/$it/ns/net)" != "$(readlink /proc/1/ns/net)" ]; do :; done
        done
        # Its other end has the number there that one of those above has here.
        ip link add eth0 type veth peer name outside netns $far
        ip link add pod type veth peer name eth0 netns $pod
        sleep 20 & own=$!
        sh -c "found='$pod $own'; $1"
        ip -o link show type veth | sed 's/^[0-9]*: \([^@]*\).*/\1/' | sort > "$0"
        for it in $pod $own; do wait $it; echo $? >> "$0"; done"#;

    #[test]
    fn what_runs_in_pods_is_killed_and_the_nodes_interface_to_them_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let found = folder.path().join("found");
        let node = Command::new("unshare")
            .args(["--net", "--pid", "--fork", "--mount-proc", "sh", "-c", NODE])
            .arg(&found)
            .arg(KILL)
            .status();
        assert!(node.unwrap().success());
        assert_eq!(
            fs::read_to_string(found).unwrap(),
            "eth0\nkept\npeer\n137\n137\n"
        );
    }
}
