//! `explain` and `diagnose` of a node of a running cluster: what kubectl is asked, and what is made of its answers.

use std::{fs, os::unix::fs::PermissionsExt, process::Output};

use serde_json::json;

use crate::ground::{Ground, exits, text};

/// Answers as kubectl would: of two pods that can list the node's rules the first has no shell.
const KUBECTL: &str = "#!/bin/sh
echo \"$@\" >> calls
case \"$*\" in
*' get '*' pods '*) cat pods.json ;;
*' exec '*calico-node*) echo 'OCI runtime exec failed: \"sh\": executable file not found' >&2; echo 'command terminated with exit code 126' >&2; exit 126 ;;
*' exec '*) grep -c 'Collects what' >> calls; cat node.txt ;;
*' get '*configmaps*) echo '{\"kind\": \"List\", \"items\": []}' ;;
*' get '*services*) cat objects.json ;;
*' logs '*) cat kube-proxy.log ;;
*) echo 'error: the server does not have such a resource type' >&2; exit 1 ;;
esac
";

fn cluster(ground: &Ground) {
    let pod = |name: &str| {
        json!({
            "kind": "Pod", "metadata": { "namespace": "kube-system", "name": format!("{name}-x") },
            "spec": { "hostNetwork": true, "containers": [{ "name": name, "image": "registry.k8s.io/kube-proxy:v1.33.4", "securityContext": { "privileged": true } }] },
            "status": { "phase": "Running" },
        })
    };
    let pods = json!({ "kind": "List", "items": [pod("kube-proxy"), pod("calico-node")] });
    let service = json!({
        "kind": "Service", "metadata": { "namespace": "test", "name": "web" },
        "spec": { "clusterIP": "10.96.1.0", "ports": [{ "port": 80 }] },
    });
    ground.write("pods.json", pods.to_string());
    ground.write(
        "objects.json",
        json!({ "kind": "List", "items": [service] }).to_string(),
    );
    ground.write(
        "kube-proxy.log",
        "E0610 07:32:16.910840       1 proxier.go:1564] \"Failed to execute iptables-restore\"\n",
    );
    ground.write("node.txt", "== routes\ndefault via 10.0.0.254 dev eth0\n10.20.1.2 dev cali1 scope link\n== sysctls\nnet.ipv4.ip_forward = 0\n== left-out\nleft out: conntrack -L: conntrack is not here\n");
    fs::create_dir(ground.path().join("bin")).unwrap();
    ground.write("bin/kubectl", KUBECTL);
    let kubectl = ground.path().join("bin/kubectl");
    fs::set_permissions(kubectl, fs::Permissions::from_mode(0o755)).unwrap();
}

fn asked(ground: &Ground, args: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap();
    let bin = ground.path().join("bin");
    let mut command = ground.command(&[args, &["--kubeconfig", "its.conf"]].concat());
    let command = command.env("PATH", format!("{}:{path}", bin.display()));
    command.output().unwrap()
}

#[test]
fn a_node_is_asked_in_the_first_pod_that_can_list_its_rules() {
    let ground = Ground::new();
    cluster(&ground);
    let args = [
        "explain",
        "192.0.2.9",
        "10.20.1.2:80",
        "--in",
        "eth0",
        "--node",
        "ip-10-0-0-1",
    ];
    let walked = asked(&ground, &args);
    exits(&walked, 0);
    let said = text(&walked.stdout);
    assert!(
        said.contains("received by eth0, now on ip-10-0-0-1"),
        "{said}"
    );
    assert!(said.contains("this node does not forward"), "{said}");
    let noted = text(&walked.stderr);
    assert!(
        noted.contains("kubectl exec: OCI runtime exec failed"),
        "{noted}"
    );
    assert!(
        noted.contains("ip-10-0-0-1: left out: conntrack -L"),
        "{noted}"
    );
    let calls = fs::read_to_string(ground.path().join("calls")).unwrap();
    let calls: Vec<&str> = calls.lines().collect();
    assert_eq!(
        calls,
        [
            "--kubeconfig its.conf get --request-timeout=60s -o json pods -A --field-selector=spec.nodeName=ip-10-0-0-1",
            "--kubeconfig its.conf exec -i -n kube-system calico-node-x -c calico-node -- sh -s -- -",
            "--kubeconfig its.conf exec -i -n kube-system kube-proxy-x -c kube-proxy -- sh -s -- -",
            // The script came in.
            "1",
        ]
    );
}

#[test]
fn a_live_node_is_diagnosed_with_its_agents_logs_and_what_the_api_holds() {
    let ground = Ground::new();
    cluster(&ground);
    let diagnosed = asked(
        &ground,
        &["diagnose", "--node", "n1", "--write", "as-found.yaml"],
    );
    exits(&diagnosed, 0);
    let said = text(&diagnosed.stdout);
    assert!(said.starts_with("Node n1\n"), "{said}");
    for part in [
        "net.ipv4.ip_forward = 0",
        "Failed to execute iptables-restore",
        "v1.33.4, as objects say",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let noted = text(&diagnosed.stderr);
    assert!(
        noted.contains(
            "kubectl get: error: the server does not have such a resource type: left out"
        ),
        "{noted}"
    );
    let written = fs::read_to_string(ground.path().join("as-found.yaml")).unwrap();
    assert!(written.contains("to: service/test/web"), "{written}");
}

#[test]
fn where_no_pod_can_list_or_kubectl_is_not_there_what_to_do_is_said() {
    let ground = Ground::new();
    cluster(&ground);
    ground.write("pods.json", "{\"items\": []}");
    let none = asked(&ground, &["diagnose", "--node", "n9"]);
    exits(&none, 2);
    assert!(
        text(&none.stderr).contains("kubectl debug node/n9"),
        "{}",
        text(&none.stderr)
    );
    let mut without = ground.command(&["diagnose", "--node", "n1", "--kubeconfig", "its.conf"]);
    let without = without.env("PATH", "/nowhere").output().unwrap();
    exits(&without, 2);
    assert!(
        text(&without.stderr).contains("needs kubectl"),
        "{}",
        text(&without.stderr)
    );
    exits(
        &ground.chainbreak(&["diagnose", "--kubeconfig", "its.conf"]),
        2,
    );
}
