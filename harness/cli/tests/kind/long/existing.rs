//! `--backend cluster`, in a cluster that somebody else has made with kind, and with the kubectl of its version.

use std::process::{Command, Output};

use nix::sys::signal::Signal;

use crate::{
    cluster::Made,
    ground::{Ground, Running, exits, text, validates},
    long::rehearsed,
};

/// Somebody's cluster of two nodes, deleted with this.
pub(crate) struct Theirs<'a> {
    pub(crate) ground: &'a Ground,
    cluster: Made<'a>,
}

pub(crate) const NAME: &str = "theirs";

impl<'a> Theirs<'a> {
    pub(crate) fn make(ground: &'a Ground) -> Self {
        let config = format!(
            "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n\
             networking: {{ podSubnet: 10.20.0.0/16 }}\n\
             nodes: [{{ role: control-plane, {} }}, {{ role: worker }}]\n",
            rehearsed::audited(ground.path())
        );
        let cluster = Made::make(ground, NAME, &config);
        let made = Self { ground, cluster };
        let control_plane = format!("{NAME}-control-plane");
        // kubeadm's taint was called otherwise before 1.24.
        let role = if crate::is_1_20() {
            "master"
        } else {
            "control-plane"
        };
        let taint = format!("node-role.kubernetes.io/{role}-");
        made.kubectl(&["taint", "nodes", &control_plane, &taint]);
        made.kubectl(&[
            "-n",
            "kube-system",
            "rollout",
            "status",
            "daemonset/kube-proxy",
            "--timeout=90s",
        ]);
        // Its pods are ready before it has written anything.
        let written = "timeout 60 sh -c 'until { iptables-legacy-save; iptables-nft-save; } 2>/dev/null | \
            grep -q \"default/kubernetes:https cluster IP\"; do sleep 0.2; done'";
        for node in [control_plane, format!("{NAME}-worker")] {
            made.docker(&["exec", &node, "sh", "-c", written]);
        }
        made
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.cluster.does("kubectl", args)
    }

    /// What is ours in it: namespaces, labels of nodes, where kube-proxy is told to run.
    pub(crate) fn ours(&self) -> String {
        let namespaces = self.kubectl(&["get", "namespaces", "-o", "name"]);
        let ours = namespaces.lines().filter(|it| it.contains("chainbreak"));
        let nodes = self.kubectl(&["get", "nodes", "--show-labels"]);
        let nodes = nodes.lines().filter(|it| it.contains("chainbreak"));
        let set = ["-n", "kube-system", "get", "daemonset", "kube-proxy", "-o"];
        let selector = "jsonpath={.spec.template.spec.nodeSelector}";
        let set = self.kubectl(&[&set[..], &[selector]].concat());
        let set = set.lines().filter(|it| it.contains("chainbreak"));
        ours.chain(nodes).chain(set).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn run(&self, variant: &str, more: &[&str]) -> Command {
        self.run_as("kubeconfig", variant, more)
    }

    pub(crate) fn run_as(&self, kubeconfig: &str, variant: &str, more: &[&str]) -> Command {
        self.run_of("two-nodes.yaml", kubeconfig, variant, more)
    }

    pub(crate) fn run_of(
        &self,
        scenario: &str,
        kubeconfig: &str,
        variant: &str,
        more: &[&str],
    ) -> Command {
        let args = ["run", scenario, "--variant", variant, "--out", "out", "-v"];
        let cluster = [
            "--backend",
            "cluster",
            "--kubeconfig",
            kubeconfig,
            "--node-image",
        ];
        // The pinned one has to be pulled.
        let version = format!("kube-proxy={}", crate::kubernetes());
        let image = ["busybox:1.36", "--matrix", &version];
        crate::command(self.ground, &[&args, &cluster[..], &image, more].concat())
    }

    pub(crate) fn ran(&self, variant: &str, more: &[&str]) -> Output {
        self.run(variant, more).output().unwrap()
    }

    /// What Docker says.
    pub(crate) fn docker(&self, args: &[&str]) -> String {
        self.cluster.does("docker", args)
    }

    pub(crate) fn clean(&self) -> String {
        let output = crate::command(self.ground, &["clean", "--kubeconfig", "kubeconfig"]);
        let output = { output }.output().unwrap();
        exits(&output, 0);
        text(&output.stdout)
    }
}

/// Steps of one test: a cluster takes a minute to be made.
#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind-all"]
fn in_somebodys_cluster_a_case_keeps_to_itself_and_leaves_nothing_however_it_ends() {
    let ground = crate::ground();
    let theirs = Theirs::make(&ground);
    a_node_is_asked_for_its_rules_and_nothing_is_made(&theirs);
    a_case_runs_in_namespaces_of_its_own(&theirs);
    the_rights_that_are_printed_are_enough_and_one_that_lacks_is_named(&theirs);
    what_concerns_everybody_is_done_only_with_leave_and_set_back(&theirs);
    an_interrupted_run_removes_what_it_made(&theirs);
    what_a_killed_run_left_is_found_and_removed(&theirs);
    felixs_configuration_is_set_back_whatever_becomes_of_the_case(&theirs);
}

/// By kubectl, in kube-proxy's own pod.
fn a_node_is_asked_for_its_rules_and_nothing_is_made(theirs: &Theirs<'_>) {
    let node = format!("{NAME}-worker");
    let live = ["--kubeconfig", "kubeconfig", "--node", &node];
    let api = "jsonpath={.spec.clusterIP}";
    let api = theirs.kubectl(&["get", "service", "kubernetes", "-o", api]);
    let api = format!("{api}:443");
    let explain = ["explain", "10.20.9.9", &api, "--in", "eth0"];
    let walked = theirs.ground.chainbreak(&[&explain[..], &live].concat());
    exits(&walked, 0);
    let said = text(&walked.stdout);
    assert!(said.contains(&format!("now on {node}")), "{said}");
    assert!(
        said.contains("KUBE-SVC-") && said.contains("port 6443"),
        "{said}"
    );
    let diagnosed = theirs
        .ground
        .chainbreak(&[&["diagnose"][..], &live].concat());
    exits(&diagnosed, 0);
    let said = text(&diagnosed.stdout);
    let version = format!("v{}, as objects say", crate::kubernetes());
    assert!(
        said.contains("iptables mode (") && said.contains("IPv4)") && said.contains(&version),
        "{said}"
    );
    assert!(!said.contains("jump"), "{said}");
    let noted = text(&diagnosed.stderr);
    assert!(
        noted.contains(&format!("asks {node} in kube-system/kube-proxy-")),
        "{noted}"
    );
    assert_eq!(theirs.ours(), "");
}

fn a_case_runs_in_namespaces_of_its_own(theirs: &Theirs<'_>) {
    exits(&theirs.ran("calm", &[]), 0);
    validates(&theirs.ground.newest("junit.xml"));
    let history = theirs.ground.history();
    assert!(history.contains("kind-theirs at https://"));
    assert!(history.contains("the cluster's own, as it is set"));
    assert_eq!(theirs.ours(), "");
}

/// Makes the kubeconfig `limited`, of the service account that the rights were given.
fn limited(theirs: &Theirs<'_>) {
    let token = theirs.kubectl(&["create", "token", "chainbreak"]);
    let whole = std::fs::read(theirs.ground.path().join("kubeconfig")).unwrap();
    std::fs::write(theirs.ground.path().join("limited"), whole).unwrap();
    for args in [
        &["set-credentials", "limited", "--token", token.trim()][..],
        &["set-context", "--current", "--user", "limited"],
    ] {
        let args = [&["config", "--kubeconfig", "limited"], args].concat();
        let set = Command::new("kubectl")
            .args(args)
            .current_dir(theirs.ground.path())
            .output();
        exits(&set.unwrap(), 0);
    }
}

fn the_rights_that_are_printed_are_enough_and_one_that_lacks_is_named(theirs: &Theirs<'_>) {
    // Tokens that anybody can ask for came with 1.24.
    if crate::is_1_20() {
        return;
    }
    let granted = |more: &[&str]| {
        let printed = theirs
            .ground
            .chainbreak(&[&["cluster", "rbac"], more].concat());
        exits(&printed, 0);
        theirs.ground.write("rights.yaml", text(&printed.stdout));
        theirs.kubectl(&["apply", "-f", "rights.yaml"]);
    };
    granted(&[]);
    limited(theirs);
    exits(&theirs.run_as("limited", "calm", &[]).output().unwrap(), 0);
    granted(&["--disruption"]);
    rehearsed::what_a_case_does_is_what_its_plan_says(theirs);
    granted(&[]);
    let less = std::fs::read_to_string(theirs.ground.path().join("rights.yaml")).unwrap();
    assert!(less.contains("- pods/exec\n"), "{less}");
    theirs.ground.write(
        "less.yaml",
        less.replace("- pods/exec\n", "- pods/attach\n"),
    );
    theirs.kubectl(&["apply", "-f", "less.yaml"]);
    let asked = theirs
        .ground
        .chainbreak(&["doctor", "--kubeconfig", "limited"]);
    let said = text(&asked.stdout);
    assert!(
        said.contains("may not: create pods/exec, get pods/exec"),
        "{said}"
    );
    let refused = theirs.run_as("limited", "calm", &[]).output().unwrap();
    let said = text(&refused.stdout) + &text(&refused.stderr);
    // Its lines are broken where the terminal's would be.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        !refused.status.success() && said.contains("may not: create pods/exec"),
        "{said}"
    );
    // What comes after may do this much.
    granted(&["--disruption"]);
    assert_eq!(theirs.ours(), "");
}

fn what_concerns_everybody_is_done_only_with_leave_and_set_back(theirs: &Theirs<'_>) {
    let refused = theirs.ran("flushed-while-kube-proxy-is-stopped", &[]);
    exits(&refused, 12);
    let said = text(&refused.stdout);
    assert!(said.contains("--allow-disruption kind-theirs"), "{said}");
    let leave = ["--allow-disruption", "kind-theirs"];
    exits(
        &theirs.ran("flushed-while-kube-proxy-is-stopped", &leave),
        0,
    );
    exits(&theirs.ran("kube-proxy-restarts", &leave), 0);
    assert_eq!(theirs.ours(), "");
}

fn an_interrupted_run_removes_what_it_made(theirs: &Theirs<'_>) {
    let mut running = Running::start(&theirs.run("long", &[]));
    running.reads("judging");
    assert_ne!(theirs.ours(), "");
    running.signal(Signal::SIGINT);
    let (status, _, _) = running.ends();
    assert_eq!(status.code(), Some(11));
    assert_eq!(theirs.ours(), "");
}

fn what_a_killed_run_left_is_found_and_removed(theirs: &Theirs<'_>) {
    let mut running = Running::start(&theirs.run("long", &[]));
    running.reads("judging");
    let used = theirs.clean();
    assert!(
        used.contains("is in use by a run on this machine"),
        "{used}"
    );
    // The worker first: as long as it lives, it removes what it made.
    for pid in running.family() {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), Signal::SIGKILL).unwrap_or(());
    }
    running.signal(Signal::SIGKILL);
    running.ends();
    assert_ne!(theirs.ours(), "");
    let cleaned = theirs.clean();
    assert!(cleaned.contains("removed chainbreak-"), "{cleaned}");
    assert!(
        cleaned.contains("which no run uses, from the cluster"),
        "{cleaned}"
    );
    assert_eq!(theirs.ours(), "");
}

/// Their calico-node does nothing: the case waits in vain for Felix's rules, and is over before it has begun.
fn felixs_configuration_is_set_back_whatever_becomes_of_the_case(theirs: &Theirs<'_>) {
    let calico =
        include_str!("../crashing-calico.yaml").replace("exit 3", "touch /ready; sleep 3600");
    // policy/v1 came with Kubernetes 1.21.
    let known = calico
        .split("---\n")
        .filter(|it| !it.contains("PodDisruptionBudget"));
    let known: Vec<&str> = known.collect();
    theirs.ground.write("calico.yaml", known.join("---\n"));
    theirs.kubectl(&["apply", "-f", "calico.yaml"]);
    let ready = [
        "-n",
        "kube-system",
        "rollout",
        "status",
        "daemonset/calico-node",
        "--timeout=90s",
    ];
    theirs.kubectl(&ready);
    theirs.ground.write(
        "felix.yaml",
        "apiVersion: crd.projectcalico.org/v1\nkind: FelixConfiguration\n\
         metadata: { name: default }\nspec: { logSeverityScreen: Info }\n",
    );
    theirs.kubectl(&["apply", "-f", "felix.yaml"]);
    exits(&theirs.ran("with-calico", &[]), 12);
    let leave = ["--allow-disruption", "kind-theirs", "--ready-within", "90s"];
    let who = if crate::is_1_20() {
        "kubeconfig"
    } else {
        "limited"
    };
    let output = theirs.run_as(who, "with-calico", &leave).output().unwrap();
    exits(&output, 11);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("no rule with"), "{said}");
    let felix = theirs.kubectl(&[
        "get",
        "felixconfigurations.crd.projectcalico.org",
        "default",
        "-o",
        "jsonpath={.metadata.generation} {.spec}",
    ]);
    // Made, set for the case, set back.
    assert_eq!(felix, r#"3 {"logSeverityScreen":"Info"}"#);
    assert_eq!(theirs.ours(), "");
}
