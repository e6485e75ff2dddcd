//! The server as a real `kubectl` sees it.

use std::{path::Path, process::Stdio, time::Duration};

use crate::common::Api;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

/// What one command may take on a busy machine; an idle one needs a tenth of a second.
const DEADLINE: Duration = Duration::from_secs(60);

const WEB: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: test}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: test, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: nginx, image: nginx:1.25, ports: [{containerPort: 80}]}
      - {name: side, image: busybox}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: test}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, name: http}]
";

struct Kubectl {
    api: Api,
    home: TempDir,
}

impl Kubectl {
    fn start() -> Self {
        let home = tempfile::tempdir().expect("a temporary home");
        // An absent configuration makes older versions warn.
        std::fs::write(home.path().join("config"), "{apiVersion: v1, kind: Config}")
            .expect("the home is writable");
        Self {
            api: Api::start(1000),
            home,
        }
    }

    /// A kubectl that knows nothing of the machine's user: own home, own cache, no configuration.
    fn command(&self, arguments: &[&str]) -> Command {
        let program = std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into());
        let home: &Path = self.home.path();
        let mut command = Command::new(program);
        command
            .env("HOME", home)
            .env("KUBECONFIG", home.join("config"))
            .arg(format!("--server={}", self.api.url()))
            .arg(format!("--cache-dir={}", home.join("cache").display()))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn try_run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut child = self
            .command(arguments)
            .spawn()
            .expect("kubectl starts; it is in the Debian package kubernetes-client");
        let mut stdin = child.stdin.take().expect("piped above");
        // kubectl takes what begins with a brace for JSON; behind a comment it is YAML.
        let input = format!("# YAML\n{input}");
        stdin
            .write_all(input.as_bytes())
            .await
            .expect("kubectl reads its input");
        drop(stdin);
        let output = tokio::time::timeout(DEADLINE, child.wait_with_output())
            .await
            .unwrap_or_else(|_| panic!("kubectl {arguments:?} does not end"))
            .expect("kubectl is waited for once");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    async fn run(&self, arguments: &[&str]) -> String {
        self.feed(arguments, "").await
    }

    async fn feed(&self, arguments: &[&str], input: &str) -> String {
        let result = self.try_run(arguments, input).await;
        result.unwrap_or_else(|stderr| panic!("kubectl {arguments:?} fails: {stderr}"))
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        let text = self.run(&[arguments, &["-o", "json"]].concat()).await;
        serde_json::from_str(&text).expect("kubectl prints JSON")
    }
}

#[tokio::test]
async fn apply_creates_then_changes_only_what_changed() {
    let kubectl = Kubectl::start();
    let told = kubectl.feed(&["apply", "-f", "-"], WEB).await;
    assert_eq!(
        told.lines().collect::<Vec<_>>(),
        [
            "namespace/test created",
            "deployment.apps/web created",
            "service/web created"
        ]
    );
    let told = kubectl
        .feed(
            &["apply", "-f", "-"],
            &WEB.replace("nginx:1.25", "nginx:1.27"),
        )
        .await;
    assert_eq!(
        told.lines().collect::<Vec<_>>(),
        [
            "namespace/test unchanged",
            "deployment.apps/web configured",
            "service/web unchanged"
        ]
    );
    let web = kubectl
        .json(&["get", "deployment", "-n", "test", "web"])
        .await;
    assert_eq!(
        web["spec"]["template"]["spec"]["containers"][0]["image"],
        "nginx:1.27"
    );
    assert_eq!(web["metadata"]["generation"], 2);
    let service = kubectl.json(&["get", "svc", "-n", "test", "web"]).await;
    assert!(
        service["spec"]["clusterIP"]
            .as_str()
            .unwrap()
            .starts_with("10.96.")
    );
    assert!((30000..=32767).contains(&service["spec"]["ports"][0]["nodePort"].as_u64().unwrap()));
}

#[tokio::test]
async fn server_side_apply_takes_back_what_is_no_longer_applied() {
    let kubectl = Kubectl::start();
    let apply = ["apply", "--server-side", "-f", "-"];
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: '1', b: '2'}}";
    assert_eq!(
        kubectl.feed(&apply, map).await.trim(),
        "configmap/c serverside-applied"
    );
    kubectl.feed(&apply, &map.replace(", b: '2'", "")).await;
    let data = kubectl.json(&["get", "cm", "c"]).await["data"].clone();
    assert_eq!(data, serde_json::json!({"a": "1"}));
    let other = [&apply[..], &["--field-manager=other"]].concat();
    let refused = kubectl
        .try_run(&other, &map.replace("'1'", "'3'"))
        .await
        .unwrap_err();
    assert!(refused.contains("conflict"), "{refused}");
}

#[tokio::test]
async fn get_prints_tables_names_and_selections() {
    let kubectl = Kubectl::start();
    kubectl.feed(&["apply", "-f", "-"], WEB).await;
    let table = kubectl.run(&["get", "svc,deploy", "-n", "test"]).await;
    assert!(
        table.contains("NAME          TYPE       CLUSTER-IP"),
        "{table}"
    );
    assert!(table.contains("deployment.apps/web   0/2"), "{table}");
    assert_eq!(
        kubectl
            .run(&["get", "deploy", "-A", "-l", "app=web", "-o", "name"])
            .await
            .trim(),
        "deployment.apps/web"
    );
    assert_eq!(
        kubectl
            .run(&["get", "deploy", "-A", "-l", "app!=web", "-o", "name"])
            .await,
        ""
    );
    let missing = kubectl
        .try_run(&["get", "pod", "nope"], "")
        .await
        .unwrap_err();
    assert_eq!(
        missing.trim(),
        "Error from server (NotFound): pods \"nope\" not found"
    );
}

#[tokio::test]
async fn describe_tells_of_an_object() {
    let kubectl = Kubectl::start();
    kubectl.feed(&["apply", "-f", "-"], WEB).await;
    let told = kubectl
        .run(&["describe", "-n", "test", "svc/web", "deploy/web"])
        .await;
    assert!(
        told.contains("Type:") && told.contains("NodePort"),
        "{told}"
    );
    assert!(
        told.contains("Replicas:") && told.contains("2 desired"),
        "{told}"
    );
}

#[tokio::test]
async fn each_kind_of_patch_does_what_it_says() {
    let kubectl = Kubectl::start();
    kubectl.feed(&["apply", "-f", "-"], WEB).await;
    let patch = async |kind: &str, patch: &str| {
        kubectl
            .run(&[
                "patch",
                "-n",
                "test",
                "deploy/web",
                "--type",
                kind,
                "-p",
                patch,
            ])
            .await;
        kubectl.json(&["get", "-n", "test", "deploy/web"]).await["spec"].clone()
    };
    let spec = patch("merge", r#"{"spec":{"replicas":5}}"#).await;
    assert_eq!(spec["replicas"], 5);
    let spec = patch(
        "json",
        r#"[{"op":"replace","path":"/spec/replicas","value":6}]"#,
    )
    .await;
    assert_eq!(spec["replicas"], 6);
    let containers =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"b:2"}]}}}}"#;
    let spec = patch("strategic", containers).await;
    let images = &spec["template"]["spec"]["containers"];
    assert_eq!(
        (&images[0]["image"], &images[1]["image"]),
        (&"nginx:1.25".into(), &"b:2".into())
    );
}

#[tokio::test]
async fn scale_and_label_are_seen() {
    let kubectl = Kubectl::start();
    kubectl.feed(&["apply", "-f", "-"], WEB).await;
    kubectl
        .run(&["scale", "-n", "test", "deploy/web", "--replicas=7"])
        .await;
    kubectl
        .run(&["label", "-n", "test", "deploy/web", "tier=front"])
        .await;
    let web = kubectl.json(&["get", "-n", "test", "deploy/web"]).await;
    assert_eq!(web["spec"]["replicas"], 7);
    assert_eq!(web["metadata"]["labels"]["tier"], "front");
    kubectl
        .run(&["label", "-n", "test", "deploy/web", "tier-"])
        .await;
    let web = kubectl.json(&["get", "-n", "test", "deploy/web"]).await;
    assert!(web["metadata"]["labels"].get("tier").is_none());
}

#[tokio::test]
async fn deleting_a_namespace_takes_everything_in_it_and_kubectl_sees_the_end() {
    let kubectl = Kubectl::start();
    kubectl.feed(&["apply", "-f", "-"], WEB).await;
    let told = kubectl.run(&["delete", "namespace", "test"]).await;
    assert!(told.contains("namespace \"test\" deleted"), "{told}");
    assert_eq!(
        kubectl
            .run(&["get", "deploy,svc", "-A", "-o", "name"])
            .await,
        ""
    );
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: test}}";
    let refused = kubectl
        .try_run(&["create", "-f", "-"], map)
        .await
        .unwrap_err();
    assert!(
        refused.contains("namespaces \"test\" not found"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_foreground_deletion_waits_for_the_dependents() {
    let kubectl = Kubectl::start();
    kubectl
        .feed(
            &["create", "-f", "-"],
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
        )
        .await;
    let owner = kubectl.json(&["get", "cm", "a"]).await["metadata"]["uid"].clone();
    let child = format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: b, ownerReferences: [\
         {{apiVersion: v1, kind: ConfigMap, name: a, uid: {owner}}}]}}}}"
    );
    kubectl.feed(&["create", "-f", "-"], &child).await;
    kubectl
        .run(&["delete", "cm", "a", "--cascade=foreground"])
        .await;
    assert_eq!(kubectl.run(&["get", "cm", "-o", "name"]).await, "");
}

#[tokio::test]
async fn get_watch_prints_each_change() {
    let kubectl = Kubectl::start();
    let mut watching = kubectl
        .command(&[
            "get",
            "cm",
            "-w",
            "-o",
            "jsonpath={.metadata.name}={.data.step}{\"\\n\"}",
        ])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    for n in ["1", "2", "3"] {
        let map = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c}}, data: {{step: '{n}'}}}}"
        );
        kubectl.feed(&["apply", "-f", "-"], &map).await;
        let line = tokio::time::timeout(DEADLINE, lines.next_line())
            .await
            .expect("a change is seen");
        assert_eq!(line.unwrap().unwrap(), format!("c={n}"));
    }
    watching.kill().await.unwrap();
}

#[tokio::test]
async fn a_definition_serves_its_resource_and_calicos_are_there_without_one() {
    let kubectl = Kubectl::start();
    let felix = "{apiVersion: crd.projectcalico.org/v1, kind: FelixConfiguration, \
                  metadata: {name: default}, spec: {bpfEnabled: true}}";
    kubectl.feed(&["apply", "-f", "-"], felix).await;
    kubectl
        .run(&[
            "patch",
            "felixconfigurations.projectcalico.org",
            "default",
            "--type=merge",
            "-p",
            r#"{"spec":{"bpfKubeProxyIptablesCleanupEnabled":false}}"#,
        ])
        .await;
    let both = kubectl
        .json(&[
            "get",
            "felixconfigurations.crd.projectcalico.org",
            "default",
        ])
        .await;
    assert_eq!(both["spec"]["bpfKubeProxyIptablesCleanupEnabled"], false);
    assert_eq!(both["spec"]["bpfEnabled"], true);
    let definition = r"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
      metadata: {name: gadgets.example.org}, spec: {group: example.org, scope: Namespaced,
      names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList},
      versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema:
      {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}";
    kubectl.feed(&["apply", "-f", "-"], definition).await;
    kubectl
        .run(&[
            "wait",
            "--for=condition=Established",
            "crd/gadgets.example.org",
        ])
        .await;
    kubectl
        .feed(
            &["create", "-f", "-"],
            "{apiVersion: example.org/v1, kind: Gadget, metadata: {name: g}}",
        )
        .await;
    assert_eq!(
        kubectl.run(&["get", "gadgets", "-o", "name"]).await.trim(),
        "gadget.example.org/g"
    );
    kubectl.run(&["delete", "crd", "gadgets.example.org"]).await;
    assert!(kubectl.try_run(&["get", "gadgets"], "").await.is_err());
}

#[tokio::test]
async fn what_cannot_be_given_to_a_service_is_refused_by_name() {
    let kubectl = Kubectl::start();
    let service = |name: &str, spec: &str| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, \
                 spec: {{ports: [{{port: 80, nodePort: 30080}}], type: NodePort, {spec}}}}}"
        )
    };
    kubectl
        .feed(
            &["create", "-f", "-"],
            &service("a", "clusterIP: 10.96.0.10"),
        )
        .await;
    for (spec, complaint) in [
        ("clusterIP: 10.96.0.10", "provided IP is already allocated"),
        (
            "clusterIP: 10.97.0.1",
            "The range of valid IPs is 10.96.0.0/16",
        ),
        (
            "clusterIP: 10.96.0.11",
            "provided port is already allocated",
        ),
    ] {
        let refused = kubectl
            .try_run(&["create", "-f", "-"], &service("b", spec))
            .await
            .unwrap_err();
        assert!(refused.contains(complaint), "{refused}");
    }
    kubectl.run(&["delete", "svc", "a"]).await;
    kubectl
        .feed(
            &["create", "-f", "-"],
            &service("b", "clusterIP: 10.96.0.10"),
        )
        .await;
}
