//! What `plan --backend cluster` says that a case does, held to what the API server's audit log says that it did.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::{
    ground::exits,
    long::existing::{NAME, Theirs},
};

/// Everything with its object, once.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\n\
    rules: [{ level: Request }]\n";

/// Where the API server reads it and writes its log, in kubeadm's words.
const AUDITING: &str = "{kind: ClusterConfiguration, apiServer: {extraArgs: \
    {audit-log-path: /var/log/kubernetes/audit.log, audit-policy-file: /etc/kubernetes/audit.yaml}, extraVolumes: [\
    {name: policy, hostPath: /etc/kubernetes/audit.yaml, mountPath: /etc/kubernetes/audit.yaml, readOnly: true, pathType: File}, \
    {name: log, hostPath: /var/log/kubernetes, mountPath: /var/log/kubernetes, pathType: DirectoryOrCreate}]}}";

/// What kind's configuration says of the first node, so that its API server writes a log.
pub(crate) fn audited(ground: &Path) -> String {
    let policy = ground.join("audit.yaml");
    fs::write(&policy, POLICY).unwrap();
    let policy = policy.display();
    let mount = format!("{{ hostPath: {policy}, containerPath: /etc/kubernetes/audit.yaml }}");
    format!("extraMounts: [{mount}], kubeadmConfigPatches: [\"{AUDITING}\"]")
}

/// How words are quoted, and where lines end, is no matter; the run is called otherwise each time.
fn plain(words: &str) -> String {
    let known = words.split(|c: char| c.is_whitespace() || "'\"\\;{}".contains(c));
    let known = known.filter(|word| !word.is_empty()).map(|word| {
        if word.ends_with("/chainbreak/chainbreak") {
            return "chainbreak".to_owned();
        }
        // A container, which nobody knows before.
        if word.len() == 64 && word.bytes().all(|it| it.is_ascii_hexdigit()) {
            return "…".to_owned();
        }
        let named = word.split_once("chainbreak-").and_then(|(before, after)| {
            let (run, after) = after.split_at_checked(10)?;
            let is_run = run.bytes().all(|it| it.is_ascii_hexdigit());
            is_run.then(|| format!("{before}RUN{after}"))
        });
        named.unwrap_or_else(|| word.to_owned())
    });
    known.collect::<Vec<_>>().join(" ")
}

/// What the case is said to do.
fn told(theirs: &Theirs<'_>, variant: &str) -> BTreeSet<String> {
    let version = format!("kube-proxy={}", crate::kubernetes());
    let plan = [
        "plan",
        "two-nodes.yaml",
        "--variant",
        variant,
        "--format",
        "json",
        "--backend",
        "cluster",
        "--kubeconfig",
        "limited",
        "--node-image",
        "busybox:1.36",
        "--matrix",
        &version,
        "--allow-disruption",
        "kind-theirs",
    ];
    let planned = theirs.ground.chainbreak(&plan);
    exits(&planned, 0);
    let plan: Value = serde_json::from_slice(&planned.stdout).unwrap();
    let does = plan["run"][0]["does"].as_array().unwrap().iter();
    does.map(|it| plain(it["what"].as_str().unwrap())).collect()
}

/// What our user has done so far, as [`told`] says it: commands, and objects.
fn done(theirs: &Theirs<'_>) -> BTreeSet<String> {
    let node = format!("{NAME}-control-plane");
    let read = "cat /var/log/kubernetes/audit*.log";
    let log = theirs.docker(&["exec", &node, "sh", "-c", read]);
    let events = log.lines();
    // Its last line may be half written.
    let events = events.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = events.filter(|event| {
        let user = event["user"]["username"].as_str();
        user.is_some_and(|it| it.ends_with(":chainbreak"))
    });
    ours.filter_map(|event| of_event(&event)).collect()
}

/// Nothing of what only asks.
fn of_event(event: &Value) -> Option<String> {
    let reference = &event["objectRef"];
    if reference["subresource"] == "exec" {
        return Some(command(event["requestURI"].as_str()?));
    }
    let reads = ["get", "list", "watch"].map(Value::from);
    let asks = reference["resource"] == "selfsubjectaccessreviews";
    (!asks && !reads.contains(&event["verb"])).then(|| object(event))
}

/// What a pod was asked to run, without what leads it into the node, or into a pod's network.
fn command(uri: &str) -> String {
    let uri = url::Url::parse(&format!("https://api{uri}")).unwrap();
    let words = uri.query_pairs().filter(|(name, _)| name == "command");
    let words: Vec<String> = words.map(|(_, word)| word.into_owned()).collect();
    let into_node = "nsenter -t 1 -m -u -i -n -- /usr/bin/env".split(' ');
    let into_node: Vec<String> = into_node.map(str::to_owned).collect();
    let mut words = words.strip_prefix(&into_node[..]).unwrap_or(&words);
    if words.starts_with(&["nsenter", "--net", "--target"].map(str::to_owned)) {
        words = &words[5..];
    }
    let words = plain(&words.join(" "));
    words.replace("mv $1.new $1 sh chainbreak", "mv $1.new $1 sh …")
}

fn object(event: &Value) -> String {
    let of = |name: &str| event["objectRef"][name].as_str().unwrap_or_default();
    let (resource, namespace) = (of("resource"), of("namespace"));
    let made = event["requestObject"]["metadata"]["name"].as_str();
    let name = match of("name") {
        "" => made.unwrap_or_default(),
        name => name,
    };
    let kind = match resource {
        "namespaces" => return plain(&format!("Namespace {name}")),
        "nodes" => return plain("Node, each of the cluster"),
        "daemonsets" if namespace == "kube-system" => return plain("DaemonSet of kube-proxy"),
        // All that is in a namespace of the run goes with it.
        _ if event["verb"] == "deletecollection" => {
            return plain(&format!("Namespace {namespace}"));
        }
        "pods" => "Pod",
        "services" => "Service",
        "daemonsets" => "DaemonSet",
        "configmaps" => "ConfigMap",
        _ => panic!("{event}"),
    };
    plain(&format!("{kind} {namespace}/{name}"))
}

/// Of a case that stops kube-proxy and flushes a chain.
pub(crate) fn what_a_case_does_is_what_its_plan_says(theirs: &Theirs<'_>) {
    let variant = "flushed-while-kube-proxy-is-stopped";
    let before = done(theirs);
    let told = told(theirs, variant);
    assert_eq!(before, done(theirs), "a plan changes nothing");
    let leave = ["--allow-disruption", "kind-theirs"];
    let run = theirs.run_as("limited", variant, &leave).output();
    exits(&run.unwrap(), 0);
    let done = done(theirs);
    let untold: Vec<&String> = done.difference(&told).collect();
    assert!(untold.is_empty(), "{untold:#?} of {told:#?}");
    for words in [
        "iptables -w 10 -t nat -F KUBE-SERVICES",
        "DaemonSet of kube-proxy",
    ] {
        assert!(done.contains(words), "{words}: {done:#?}");
    }
}
