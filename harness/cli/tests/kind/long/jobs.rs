//! `chainbreak matrix --format jobs` on a cluster of three nodes: parts of a run as pods, one of which is killed, and one report of them.

use std::path::Path;

use crate::{cluster::Made, *};

const NAME: &str = "jobs";
const IMAGE: &str = "chainbreak:of-a-test";
/// Of both outcomes, and asks little of a machine: what beside it keeps a core busy lets no case of it be judged otherwise.
const SCENARIO: &str =
    "scenarios/services/requests-through-a-node-without-an-endpoint-time-out.yaml";
/// What the kubelets see of it is one folder of this machine.
const VOLUME: &str = r#"{ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "shared" }, "spec": {
    "accessModes": ["ReadWriteMany"], "capacity": { "storage": "1Gi" }, "storageClassName": "shared", "hostPath": { "path": "/results" } } }"#;

/// With the scenarios, and a folder for the results, which all nodes have.
fn made(ground: &Ground) -> Made<'_> {
    let results = ground.path().join("results");
    fs::create_dir_all(&results).unwrap();
    let mount = format!(
        "extraMounts: [{{ hostPath: {}, containerPath: /results }}]",
        results.display()
    );
    let nodes = ["control-plane", "worker", "worker"]
        .map(|role| format!("  - {{ role: {role}, {mount} }}\n"));
    let config = format!(
        "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n{}",
        nodes.concat()
    );
    let three = Made::make(ground, NAME, &config);
    three.does("cp", &["-r", scenarios().to_str().unwrap(), "scenarios"]);
    three
}

/// In the namespace of the Job.
fn kubectl(three: &Made<'_>, args: &[&str]) -> String {
    three.does("kubectl", &[&["--namespace", "chainbreak"], args].concat())
}

/// This program on what a node's image has, which is what a lab takes, in every node.
fn has_image(three: &Made<'_>) {
    let ground = three.ground;
    fs::create_dir_all(ground.path().join("image")).unwrap();
    fs::copy(
        env!("CARGO_BIN_EXE_chainbreak"),
        ground.path().join("image/chainbreak"),
    )
    .unwrap();
    ground.write(
        "image/Dockerfile",
        format!(
            "FROM {}\nENTRYPOINT []\nCOPY chainbreak /usr/local/bin/chainbreak\n",
            image()
        ),
    );
    three.does("docker", &["build", "--quiet", "--tag", IMAGE, "image"]);
    for node in three
        .does("kind", &["get", "nodes", "--name", NAME])
        .lines()
    {
        let load = format!(
            "docker save {IMAGE} | docker exec --interactive {node} ctr --namespace k8s.io images import -"
        );
        three.does("sh", &["-c", &load]);
    }
}

/// Deletes a pod of a part that runs: Kubernetes makes another one. Which part it was.
fn kill_one(three: &Made<'_>) -> String {
    let all = "--for=jsonpath={.status.active}=2";
    kubectl(three, &["wait", all, "--timeout=60s", "job/chainbreak"]);
    let of = [
        "get",
        "pods",
        "--selector",
        "job-name=chainbreak",
        "--output",
        "name",
    ];
    let pods = kubectl(three, &of);
    let pod = pods.lines().next().unwrap();
    kubectl(
        three,
        &["wait", "--for=condition=Ready", "--timeout=60s", pod],
    );
    let index = "jsonpath={.metadata.labels.batch\\.kubernetes\\.io/job-completion-index}";
    let index = kubectl(three, &["get", pod, "--output", index]);
    kubectl(three, &["delete", pod]);
    index
}

/// Applies what is printed, beside a volume, and returns it.
fn applied(three: &Made<'_>) -> String {
    let words = "--format jobs --shards 8 --parallelism 2 --storage-class shared --cpu 1 --image";
    let words = words.split(' ').chain([IMAGE]);
    let wanted: Vec<&str> = ["matrix", SCENARIO].into_iter().chain(words).collect();
    let objects = three.ground.chainbreak(&wanted);
    exits(&objects, 0);
    let objects = text(&objects.stdout);
    three.ground.write("jobs.yaml", &objects);
    three.ground.write("volume.yaml", VOLUME);
    for file in ["volume.yaml", "jobs.yaml"] {
        three.does("kubectl", &["apply", "--server-side", "--filename", file]);
    }
    objects
}

/// Merges the parts as the head of what was applied says it.
fn merge(three: &Made<'_>, head: &str) {
    let ready = "--for=condition=Ready";
    kubectl(three, &["wait", ready, "pod/results", "--timeout=60s"]);
    let script = |line: &'_ str| {
        line.split_once("sh -c '")?
            .1
            .strip_suffix('\'')
            .map(str::to_owned)
    };
    let merge = head.lines().find_map(script).unwrap();
    kubectl(three, &["exec", "results", "--", "sh", "-c", &merge]);
}

#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind-all"]
fn a_run_in_eight_parts_one_of_them_killed_gives_the_report_of_one_machine() {
    let ground = ground();
    let three = made(&ground);
    has_image(&three);
    let head = applied(&three);
    let killed = kill_one(&three);
    let complete = "--for=condition=Complete";
    kubectl(
        &three,
        &["wait", complete, "--timeout=400s", "job/chainbreak"],
    );
    let parts = "jsonpath={.status.succeeded} {.status.completedIndexes}";
    let parts = kubectl(&three, &["get", "job", "chainbreak", "--output", parts]);
    assert_eq!(parts, "8 0-7");
    let runs = fs::read_dir(ground.path().join("results").join(&killed)).unwrap();
    let runs = runs.filter(|it| it.as_ref().unwrap().file_name() != "latest");
    assert_eq!(
        runs.count(),
        2,
        "part {killed} was killed, and run once more"
    );
    merge(&three, &head);
    // The same here, in one go.
    exits(&ground.chainbreak(&["run", SCENARIO, "--out", "here"]), 0);
    let [whole, here] = ["results/whole/latest", "here/latest"].map(|it| ground.path().join(it));
    exits(
        &ground.chainbreak(&["parity", path(&whole), path(&here)]),
        0,
    );
    let planned = text(&ground.chainbreak(&["list", SCENARIO]).stdout);
    let summary = fs::read_to_string(whole.join("summary.json")).unwrap();
    let has = summary.matches("\"case\":").count();
    assert_eq!(has, planned.lines().count(), "{summary}");
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
