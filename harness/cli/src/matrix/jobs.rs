//! `--format jobs`: the jobs as one Indexed Job of Kubernetes, with the scenarios in a `ConfigMap` and a claim for the results. Kubernetes
//! places, repeats and counts them; nothing here schedules.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path},
};

use anyhow::Context;
use chainbreak_engine::{backend::Ground, shell::quoted};
use chainbreak_model::is_yaml;
use serde_json::{Value, json};

use super::Job;
use crate::{
    args::{
        matrix::{Kubernetes, Matrix},
        named::Named,
        selection::Selection,
    },
    cases::{self, invalid},
    manifests,
};

/// What a `ConfigMap` may have, less what it says beside it (Kubernetes, pkg/apis/core/validation: 1 MiB).
const LARGEST: usize = 1_000_000;
/// What ends a run that was not killed: it said something, and would say the same again.
const ENDS: [u8; 5] = [1, crate::USAGE, 10, 11, 12];
/// How often a pod that was killed is made anew.
const AGAIN: u8 = 3;
/// A run that is told to end writes its results first; that its pod was killed is no verdict.
const SCRIPT: &str = r#"
eval "set -- $(sed -n "$((JOB_COMPLETION_INDEX + 1))p" /jobs/arguments)"
chainbreak run "$@" --out "/results/$JOB_COMPLETION_INDEX" &
run=$!
trap 'kill -TERM $run; wait $run; exit 143' TERM
wait $run
"#;

/// All objects, as YAML.
pub(super) fn document(args: &Matrix, jobs: &[Job]) -> anyhow::Result<String> {
    let Kubernetes { namespace, .. } = &args.kubernetes;
    let Some(image) = &args.kubernetes.image else {
        let why =
            "--format jobs takes --image: what `make image` builds, where the cluster can pull it";
        return Err(invalid(why));
    };
    in_pods(&args.selection)?;
    let (scenarios, files) = files(&args.selection.named)?;
    let named = args.selection.named.cases().into_iter();
    let named = scenarios.into_iter().chain(named.map(|(text, _)| text));
    let named: Vec<String> = named.map(|it| quoted(&it)).collect();
    let line = |job: &Job| format!("{} {}\n", named.join(" "), job.args);
    let lines: String = jobs.iter().map(line).collect();
    let objects = [
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": { "pod-security.kubernetes.io/enforce": "privileged" },
            },
        }),
        config_map(namespace, "scenarios", &keyed(&files).collect()),
        config_map(namespace, "jobs", &[("arguments".to_owned(), lines)].into()),
        claim(&args.kubernetes),
        job(&args.kubernetes, image, &files, jobs.len()),
        reader(namespace, image),
    ];
    manifests::document(&head(namespace, jobs.len()), &objects)
}

fn head(namespace: &str, jobs: usize) -> String {
    let last = jobs - 1;
    format!(
        "# {jobs} parts of a run, an index each. Their pods are privileged: a lab makes namespaces, mounts and kernel settings of its own.\n\
         #   kubectl apply --server-side -f THIS\n\
         #   until kubectl -n {namespace} get job chainbreak -o jsonpath='{{.status.conditions[*].type}}' | grep -E 'Complete|Failed'; do sleep 5; done\n\
         #   kubectl -n {namespace} exec results -- sh -c 'chainbreak merge $(seq -f /results/%g/latest 0 {last}) --out /results/whole'\n\
         #   mkdir report && kubectl -n {namespace} exec results -- tar -C /results/whole/latest -cf - . | tar -C report -xf -\n\
         #   kubectl delete namespace {namespace}\n\
         # A part in which a case was not as expected is a failed index, and not repeated; with one, the Job has failed, and its parts can be merged all the\n\
         # same. A pod that was killed is made anew up to {AGAIN} times, one that was evicted as often as it takes. The claim is for several nodes at once\n\
         # (ReadWriteMany).\n"
    )
}

/// Whether it can be run in pods: a lab, with what the image has.
fn in_pods(selection: &Selection) -> anyhow::Result<()> {
    let backend = selection.backend.factory();
    if backend.ground() == Ground::Real {
        let name = backend.name();
        return Err(invalid(format!(
            "--backend {name}: the pods of --format jobs run the lab"
        )));
    }
    if let Some(agent) = selection.agents.iter().find(|it| it.contains('/')) {
        return Err(invalid(format!(
            "--agent {agent}: what is on this machine is not in the pods"
        )));
    }
    if selection.named.failed.is_some() {
        return Err(invalid(
            "--failed is of a run that is not in the pods: name the cases",
        ));
    }
    Ok(())
}

/// The scenarios' files in their order, and all that they name, too, by their paths below the current folder.
fn files(named: &Named) -> anyhow::Result<(Vec<String>, BTreeMap<String, String>)> {
    let (mut scenarios, mut files) = (Vec::new(), BTreeMap::new());
    for scenario in cases::scenarios(named)? {
        let text = read(&scenario.file)?;
        let folder = scenario.file.parent().unwrap_or(Path::new(""));
        for named in may_be_files(&text) {
            let file = folder.join(named);
            if file.is_file() {
                files.insert(below(&file)?, read(&file)?);
            }
        }
        let file = below(&scenario.file)?;
        scenarios.push(file.clone());
        files.insert(file, text);
    }
    let size: usize = files.values().map(String::len).sum();
    if size > LARGEST {
        return Err(invalid(format!(
            "the scenarios are {size} bytes, a ConfigMap has room for {LARGEST}: name fewer folders"
        )));
    }
    Ok((scenarios, files))
}

fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("could not read {}", file.display()))
}

/// What of a scenario's words may be a file.
fn may_be_files(text: &str) -> BTreeSet<String> {
    fn look(value: &serde_yaml::Value, found: &mut BTreeSet<String>) {
        match value {
            serde_yaml::Value::String(text) if is_yaml(Path::new(text)) => {
                found.insert(text.clone());
            }
            serde_yaml::Value::Sequence(items) => items.iter().for_each(|it| look(it, found)),
            serde_yaml::Value::Mapping(fields) => fields.values().for_each(|it| look(it, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    // What cannot be read was refused before.
    if let Ok(value) = serde_yaml::from_str(text) {
        look(&value, &mut found);
    }
    found
}

/// The path without `.` and `..`; it may not lead out of the current folder.
fn below(path: &Path) -> anyhow::Result<String> {
    let mut parts: Vec<&str> = Vec::new();
    for component in path.components() {
        let inside = match component {
            Component::CurDir => true,
            Component::ParentDir => parts.pop().is_some(),
            Component::Normal(name) => name.to_str().map(|name| parts.push(name)).is_some(),
            Component::RootDir | Component::Prefix(_) => false,
        };
        if !inside {
            return Err(invalid(format!(
                "{} is not below this folder: in the cluster only what is below it is there",
                path.display()
            )));
        }
    }
    Ok(parts.join("/"))
}

/// A key of a `ConfigMap` has no slash, and not every character of a path: files are numbered.
fn key(number: usize) -> String {
    format!("{number:04}.yaml")
}

fn keyed(files: &BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    files
        .values()
        .enumerate()
        .map(|(number, text)| (key(number), text.clone()))
}

fn config_map(namespace: &str, name: &str, data: &BTreeMap<String, String>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "namespace": namespace, "name": name },
        "data": data,
    })
}

fn claim(given: &Kubernetes) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteMany"],
        "resources": { "requests": { "storage": given.storage } },
    });
    if let Some(class) = &given.storage_class {
        spec["storageClassName"] = json!(class);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "namespace": given.namespace, "name": "results" },
        "spec": spec,
    })
}

fn job(given: &Kubernetes, image: &str, files: &BTreeMap<String, String>, parts: usize) -> Value {
    let items = files.keys().enumerate();
    let items = items.map(|(number, path)| json!({ "key": key(number), "path": path }));
    let items: Vec<Value> = items.collect();
    let container = json!({
        "name": "chainbreak",
        "image": image,
        "command": ["sh", "-c", SCRIPT.trim()],
        "workingDir": "/work",
        "securityContext": { "privileged": true },
        "resources": {
            "requests": { "cpu": given.cpu, "memory": "1Gi" },
            "limits": { "cpu": given.cpu, "memory": "4Gi" },
        },
        "volumeMounts": [
            { "name": "scenarios", "mountPath": "/work" },
            { "name": "jobs", "mountPath": "/jobs" },
            { "name": "results", "mountPath": "/results" },
        ],
    });
    let failures = json!({ "rules": [
        { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
        { "action": "FailIndex", "onExitCodes": { "containerName": "chainbreak", "operator": "In", "values": ENDS } },
    ] });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "namespace": given.namespace, "name": "chainbreak" },
        "spec": {
            "completionMode": "Indexed",
            "completions": parts,
            "parallelism": given.parallelism.map_or(parts, usize::from),
            "backoffLimitPerIndex": AGAIN,
            "podFailurePolicy": failures,
            "template": { "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "containers": [container],
                "volumes": [
                    { "name": "scenarios", "configMap": { "name": "scenarios", "items": items } },
                    { "name": "jobs", "configMap": { "name": "jobs" } },
                    { "name": "results", "persistentVolumeClaim": { "claimName": "results" } },
                ],
            } },
        },
    })
}

/// By which results are merged and fetched; it needs no privilege.
fn reader(namespace: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "namespace": namespace, "name": "results" },
        "spec": {
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "results",
                "image": image,
                "command": ["sleep", "infinity"],
                "volumeMounts": [{ "name": "results", "mountPath": "/results" }],
            }],
            "volumes": [{ "name": "results", "persistentVolumeClaim": { "claimName": "results" } }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_from_the_current_folder_and_does_not_leave_it() {
        let below = |path: &str| below(Path::new(path)).ok();
        assert_eq!(
            below("./scenarios/services/../kube-proxy/client.yaml").as_deref(),
            Some("scenarios/kube-proxy/client.yaml")
        );
        assert_eq!(below("../client.yaml"), None);
        assert_eq!(below("/etc/client.yaml"), None);
    }

    #[test]
    fn what_a_scenario_may_name_is_found_wherever_it_stands() {
        let text = "manifests: [a.yaml, ../b.yml]\nvariants: { v: { timeline: [{ apply: c.yaml }, { settle: 1s }] } }\n";
        assert_eq!(
            may_be_files(text),
            ["../b.yml", "a.yaml", "c.yaml"].map(str::to_owned).into()
        );
    }
}
