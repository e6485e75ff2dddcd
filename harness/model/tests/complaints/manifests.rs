//! Kubernetes objects: how they may be given, and which are refused.

use crate::good::{GOOD, OBJECTS, reads, said_of_objects};

#[test]
fn objects_written_into_a_scenario_and_lists_of_objects_are_read() {
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}", {
        let objects = OBJECTS
            .split("---\n")
            .map(|object| object.trim_end().replace('\n', "\n    "));
        objects.fold(String::new(), |text, object| text + "  - " + &object + "\n")
    });
    let of_list = reads(GOOD.as_bytes(), &list).unwrap_or_else(|error| panic!("{}", error.plain()));
    let of_file =
        reads(GOOD.as_bytes(), OBJECTS).unwrap_or_else(|error| panic!("{}", error.plain()));
    assert_eq!(of_list, of_file);
    let inline = GOOD.replace(
        "[objects.yaml]",
        "[objects.yaml, { apiVersion: v1, kind: ConfigMap, metadata: { name: c }, data: { k: v } }]",
    );
    let inline =
        reads(inline.as_bytes(), OBJECTS).unwrap_or_else(|error| panic!("{}", error.plain()));
    let manifests = &inline.variants[0].run.manifests;
    assert_eq!(manifests.len(), 1 + 3 + 1, "the namespace test is added");
    assert_eq!(manifests[0]["metadata"]["name"], "test");
    assert_eq!(manifests[4]["data"]["k"], "v");
}

#[test]
fn manifests_that_kubernetes_would_refuse() {
    insta::assert_snapshot!(
        "kind",
        said_of_objects("kind: Deployment", "kind: StatefulSet")
    );
    insta::assert_snapshot!("api_version", said_of_objects("apps/v1", "apps/v1beta1"));
    insta::assert_snapshot!(
        "manifest_field",
        said_of_objects("replicas: 2", "replica: 2")
    );
    insta::assert_snapshot!(
        "pinned_nowhere",
        said_of_objects(
            "containers: [{ name: client,",
            "nodeName: n7\n  containers: [{ name: client,"
        )
    );
    insta::assert_snapshot!(
        "deep_field",
        said_of_objects("image: nginx", "imgae: nginx")
    );
    insta::assert_snapshot!(
        "wrong_types",
        said_of_objects("replicas: 2", "replicas: two\n  paused: 3")
    );
    insta::assert_snapshot!(
        "selector",
        said_of_objects("labels: { app: web }", "labels: { app: wbe }")
    );
    insta::assert_snapshot!(
        "no_name",
        said_of_objects("metadata: { name: client }", "metadata: {}")
    );
    insta::assert_snapshot!(
        "bad_name",
        said_of_objects("name: client }\n", "name: Client_1 }\n")
    );
    insta::assert_snapshot!(
        "twice",
        said_of_objects(
            "namespace: test, name: web }\nspec:\n  selector: { app: web }\n",
            "namespace: test, name: web }\nspec:\n  ports: [{ port: 80 }]\n---\napiVersion: v1\nkind: Service\nmetadata: { namespace: test, name: web }\nspec:\n"
        )
    );
    insta::assert_snapshot!(
        "unable",
        said_of_objects("[{ name: nginx, image: nginx }]", UNABLE)
    );
    insta::assert_snapshot!(
        "status",
        said_of_objects(
            "  ports: [{ name: http, port: 80 }]\n",
            "  ports: [{ name: http, port: 80 }]\nstatus:\n  loadBalancer: { ingress: [{ ip: 192.0.2.1 }] }\n"
        )
    );
    insta::assert_snapshot!(
        "no_object",
        reads(GOOD.as_bytes(), "").expect_err("it is bad").plain()
    );
}

#[test]
fn a_namespace_that_kubernetes_would_refuse_is_said_to_be_one() {
    for wrong in ["Test", "a.b", "'-'", "''"] {
        let said = said_of_objects("namespace: test", &format!("namespace: {wrong}"));
        let place = "scenarios/objects.yaml:9:24: a namespace cannot be";
        assert!(said.contains(place), "{said}");
    }
    for usual in ["~", "default"] {
        let objects = OBJECTS.replace(
            "name: client }\nspec",
            &format!("name: client, namespace: {usual} }}\nspec"),
        );
        reads(GOOD.as_bytes(), &objects).unwrap_or_else(|error| panic!("{}", error.plain()));
    }
}

/// A pod that asks for what Kubernetes has and the lab has not; the last mount alone is kept, as every
/// container sees its node's files.
const UNABLE: &str = "
      - name: nginx
        image: nginx
        readinessProbe: { httpGet: { path: /, port: 80 } }
        lifecycle: { postStart: { exec: { command: [sync] } } }
        envFrom: [{ configMapRef: { name: c } }]
        env:
        - { name: KEPT, valueFrom: { fieldRef: { fieldPath: status.podIP } } }
        - { name: KEY, valueFrom: { configMapKeyRef: { name: c, key: k } } }
        - { name: ARCH, valueFrom: { fieldRef: { fieldPath: spec.arch } } }
        ports: [{ containerPort: 80, hostPort: 8080 }]
        volumeMounts:
        - { name: conf, mountPath: /etc/nginx }
        - { name: lock, mountPath: /run/xtables.lock }
      initContainers: [{ name: first, image: busybox }]
      volumes:
      - { name: conf, configMap: { name: c } }
      - { name: lock, hostPath: { path: /run/xtables.lock } }";

#[test]
fn networks_that_nobody_could_wire() {
    let pool =
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: { name: p }\nspec: {}\n---\n";
    let pool = reads(GOOD.as_bytes(), &format!("{pool}{OBJECTS}")).expect_err("it is bad");
    insta::assert_snapshot!("no_cidr", pool.plain());
    let overlay = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: { name: p }\n\
                   spec: { cidr: 10.9.1.0/16, vxlanMode: Alway, ipipMode: Always, natOutgoing: 1, nodeselector: all() }\n---\n";
    let overlay = reads(GOOD.as_bytes(), &format!("{overlay}{OBJECTS}")).expect_err("it is bad");
    insta::assert_snapshot!("overlay", overlay.plain());
    let overlapping = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: { name: p }\n\
                       spec: { cidr: 10.9.0.0/20 }\n---\n";
    let second = overlapping.replace("name: p", "name: q");
    let overlapping = reads(GOOD.as_bytes(), &format!("{overlapping}{second}{OBJECTS}"));
    insta::assert_snapshot!(
        "overlapping_pools",
        overlapping.expect_err("it is bad").plain()
    );
    let annotated = |annotations: &str| {
        let good = "metadata: { name: client }";
        let bad = format!("metadata:\n  name: client\n  annotations:\n{annotations}");
        said_of_objects(good, &bad)
    };
    insta::assert_snapshot!(
        "pod_network",
        annotated("    k8s.v1.cni.cncf.io/networks: underlay")
    );
    insta::assert_snapshot!(
        "unknown_pool",
        annotated("    cni.projectcalico.org/ipv4pools: '[\"overlay\"]'")
    );
}

#[test]
fn a_deployment_has_as_many_replicas_as_a_machine_has_room_for() {
    for replicas in ["1000000", "-1"] {
        let said = said_of_objects("replicas: 2", &format!("replicas: {replicas}"));
        let words = format!("spec.replicas is a whole number from 0 to 1000, not {replicas:?}");
        assert!(said.contains(&words), "{said}");
    }
}
