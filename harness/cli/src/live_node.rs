//! A node of a running cluster, by `kubectl`: what `collect`'s script prints in a pod on the node's own network, the logs of agents there, and
//! what the API holds. Nothing is made in the cluster, and nothing changed.

use std::{
    io::ErrorKind,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{cases::invalid, collect::SCRIPT, fed::fed};

/// The containers of agents. They have what lists a node's rules, and their logs are read.
const AGENTS: [&str; 2] = ["calico-node", "kube-proxy"];
/// What a look at the API may take.
const TIMEOUT: &str = "--request-timeout=60s";
/// So many lines of a log are read.
const LINES: &str = "--tail=20000";
/// What stands above the routes in what the script prints.
const LISTED: &str = "== routes\n";
/// What kubectl says last of a command that failed, whatever the reason was.
const TERMINATED: &str = "command terminated with exit code";
/// What else the API is asked for: Services and their endpoints, what Felix is told, and pods' addresses.
const OBJECTS: [&[&str]; 4] = [
    &["services,endpointslices.discovery.k8s.io", "-A"],
    &["felixconfigurations.crd.projectcalico.org"],
    &["ippools.crd.projectcalico.org"],
    &[
        "configmaps",
        "-A",
        "--field-selector=metadata.name=kubernetes-services-endpoint",
    ],
];

/// A node, and where its cluster is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveNode<'a> {
    kubeconfig: &'a Path,
    pub(crate) node: &'a str,
}

/// A container that runs on the node.
#[derive(Debug, PartialEq, Eq)]
struct Container {
    namespace: String,
    pod: String,
    name: String,
}

impl<'a> LiveNode<'a> {
    /// The node that is asked for.
    pub(crate) fn of(kubeconfig: &'a Path, node: Option<&'a str>) -> Result<Self> {
        let node = node.ok_or_else(|| invalid("--kubeconfig: of which node? --node NODE"))?;
        Ok(Self { kubeconfig, node })
    }

    /// What the node lists.
    pub(crate) fn listed(&self) -> Result<String> {
        self.listed_by(&self.pods()?)
    }

    /// That, and what is known of its agents and of the cluster. What cannot be had is named.
    pub(crate) fn texts(&self) -> Result<Vec<String>> {
        let pods = self.pods()?;
        let mut texts = vec![self.listed_by(&pods)?, pods.to_string()];
        let gets = OBJECTS.map(|what| [&["get", TIMEOUT, "-o", "json"], what].concat());
        let logs = agents(&pods);
        let logs = logs.iter().map(|it| {
            let Container {
                namespace,
                pod,
                name,
            } = it;
            vec!["logs", LINES, "-n", namespace, pod, "-c", name]
        });
        for args in gets.into_iter().chain(logs) {
            match self.kubectl(&args, "") {
                Ok(text) => texts.push(text),
                Err(why) => crate::note(&format!("{why:#}: left out")),
            }
        }
        Ok(texts)
    }

    /// The pods on the node.
    fn pods(&self) -> Result<Value> {
        let on = format!("--field-selector=spec.nodeName={}", self.node);
        let text = self.kubectl(&["get", TIMEOUT, "-o", "json", "pods", "-A", &on], "")?;
        serde_json::from_str(&text).context("what kubectl says of pods cannot be read")
    }

    fn listed_by(&self, pods: &Value) -> Result<String> {
        let mut why_not = None;
        for it in listers(pods) {
            let Container {
                namespace,
                pod,
                name,
            } = &it;
            crate::note(&format!("asks {} in {namespace}/{pod}", self.node));
            let into = ["exec", "-i", "-n", namespace, pod, "-c", name, "--"];
            let args = [into.as_slice(), &["sh", "-s", "--", "-"]].concat();
            match self.kubectl(&args, SCRIPT) {
                Ok(text) if text.contains(LISTED) => {
                    let left_out = text.lines().filter(|it| it.starts_with("left out: "));
                    left_out.for_each(|it| crate::note(&format!("{}: {it}", self.node)));
                    return Ok(text);
                }
                Ok(_) => why_not = Some(format!("{pod} lists no routes")),
                Err(why) => why_not = Some(format!("{why:#}")),
            }
            if let Some(why) = &why_not {
                crate::note(why);
            }
        }
        let node = self.node;
        let why = why_not.unwrap_or_else(|| "there is none, or no such node".to_owned());
        Err(invalid(format!(
            "no pod on {node} can list what the node has (privileged, on its network, with sh): {why}. By hand: \
             chainbreak collect | kubectl debug node/{node} --profile=sysadmin -i -q --image=IMAGE -- chroot /host sh -s -- - > {node}.txt"
        )))
    }

    fn kubectl(&self, args: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.kubeconfig).args(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().map_err(|why| match why.kind() {
            ErrorKind::NotFound => invalid("--kubeconfig needs kubectl, which is not here"),
            _ => invalid(format!("kubectl could not be started: {why}")),
        })?;
        let output = fed(child, input).context("could not wait for kubectl")?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let mut said = said.lines().rev();
        let tells = |line: &&str| !line.trim().is_empty() && !line.starts_with(TERMINATED);
        let said = said.find(tells).unwrap_or("it says nothing");
        let what = args.first().copied().unwrap_or_default();
        Err(invalid(format!("kubectl {what}: {said}")))
    }
}

/// The containers that run on the node, each with whether its pod is on the node's network and it is privileged.
fn containers(pods: &Value) -> impl Iterator<Item = (Container, bool)> {
    let pods = pods["items"].as_array().into_iter().flatten();
    let pods = pods.filter(|pod| pod["status"]["phase"] == "Running");
    pods.flat_map(|pod| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_on_network = pod["spec"]["hostNetwork"] == true;
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        containers.map(move |container| {
            let is_privileged = container["securityContext"]["privileged"] == true;
            let found = Container {
                namespace: text(&pod["metadata"]["namespace"]),
                pod: text(&pod["metadata"]["name"]),
                name: text(&container["name"]),
            };
            (found, is_on_network && is_privileged)
        })
    })
}

/// Those that can list the node's rules, agents first.
fn listers(pods: &Value) -> Vec<Container> {
    let able = containers(pods).filter(|(_, is_able)| *is_able);
    let mut able: Vec<Container> = able.map(|(it, _)| it).collect();
    let rank = |it: &Container| AGENTS.iter().position(|agent| *agent == it.name);
    able.sort_by_key(|it| rank(it).unwrap_or(AGENTS.len()));
    able
}

/// Those of agents.
fn agents(pods: &Value) -> Vec<Container> {
    let agents = containers(pods).map(|(it, _)| it);
    agents
        .filter(|it| AGENTS.contains(&it.name.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, container: &str, phase: &str, is_able: bool) -> Value {
        json!({
            "metadata": { "namespace": "kube-system", "name": name },
            "spec": { "hostNetwork": is_able, "containers": [{ "name": container, "securityContext": { "privileged": is_able } }] },
            "status": { "phase": phase },
        })
    }

    #[test]
    fn an_agents_pod_that_runs_on_the_nodes_network_is_asked_first() {
        let pods = json!({ "items": [
            pod("web-1", "web", "Running", false),
            pod("csi-1", "csi", "Running", true),
            pod("kube-proxy-1", "kube-proxy", "Running", true),
            pod("calico-node-1", "calico-node", "Pending", true),
            pod("calico-typha-1", "calico-node", "Running", false),
        ] });
        let listers = listers(&pods);
        let names: Vec<&str> = listers.iter().map(|it| it.pod.as_str()).collect();
        assert_eq!(names, ["kube-proxy-1", "csi-1"]);
        let agents = agents(&pods);
        let names: Vec<&str> = agents.iter().map(|it| it.pod.as_str()).collect();
        assert_eq!(names, ["kube-proxy-1", "calico-typha-1"]);
        assert!(super::listers(&json!({})).is_empty());
    }
}
