//! What kubectl writes, and what is refused.

use super::{Kubectl, WEB};

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
