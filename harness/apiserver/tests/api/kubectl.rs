//! The server as a real `kubectl` sees it.

mod deletions;
mod reads;
mod writes;

use std::{path::Path, process::Stdio, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt, process::Command};

use crate::common::Api;

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
