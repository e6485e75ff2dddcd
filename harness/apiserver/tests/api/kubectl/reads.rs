//! What kubectl prints of what is there.

use tokio::io::{AsyncBufReadExt, BufReader};

use super::{DEADLINE, Kubectl, WEB};

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
