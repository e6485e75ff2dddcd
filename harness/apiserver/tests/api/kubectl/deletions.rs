//! Deletions that take more with them, and that kubectl waits for.

use super::{Kubectl, WEB};

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
