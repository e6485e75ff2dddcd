//! Objects as people attach them.

use super::*;

const SLICES: &str = "apiVersion: v1\nkind: List\nitems:\n\
    - apiVersion: discovery.k8s.io/v1\n  kind: EndpointSlice\n  metadata: { name: web-1, namespace: test, labels: { kubernetes.io/service-name: web } }\n  \
    addressType: IPv4\n  ports: [{ name: http, port: 80, protocol: TCP }]\n  \
    endpoints:\n  - { addresses: [10.20.1.2], conditions: { ready: true } }\n  - { addresses: [10.20.1.3], conditions: { ready: false } }\n\
    - apiVersion: v1\n  kind: Service\n  metadata: { name: web, namespace: test }\n  \
    spec: { clusterIP: 10.96.1.0, clusterIPs: [10.96.1.0], ports: [{ name: http, port: 80 }] }\n";

#[test]
fn of_slices_and_services_the_endpoints_and_the_ports_are_known() {
    let mut objects = Objects::default();
    assert!(objects.add(SLICES).0);
    let [service] = objects.services().try_into().unwrap();
    assert_eq!(
        (service.name.to_string(), service.port),
        ("test/web:http".to_owned(), 80)
    );
    assert_eq!(
        service.addresses,
        BTreeSet::from(["10.96.1.0".parse().unwrap()])
    );
    assert!(service.is_plain);
    let endpoints = &objects.endpoints().unwrap()[&service.name];
    assert_eq!(
        endpoints.ready,
        BTreeSet::from(["10.20.1.2:80".parse().unwrap()])
    );
    assert_eq!(endpoints.all.len(), 2);
    assert_eq!(Objects::default().endpoints(), None);
    let local = SLICES.replace(
        "clusterIP: 10",
        "internalTrafficPolicy: Local, clusterIP: 10",
    );
    let mut objects = Objects::default();
    objects.add(&local);
    assert!(!objects.services()[0].is_plain);
}

#[test]
fn versions_are_told_by_images() {
    let mut objects = Objects::default();
    let pod = |image: &str| serde_json::json!({ "kind": "Pod", "spec": { "containers": [{ "image": image }] } });
    for image in [
        "registry.k8s.io/kube-proxy:v1.33.4@sha256:ab",
        "calico/node:v3.28.1\n✗ forged",
    ] {
        assert!(objects.add(&pod(image).to_string()).0);
    }
    let told: Vec<(&str, String)> = objects.versions().into_iter().collect();
    let told: Vec<(&str, &str)> = told
        .iter()
        .map(|(what, tag)| (*what, tag.as_str()))
        .collect();
    assert_eq!(told, [("calico", "v3.28.1"), ("kube-proxy", "v1.33.4")]);
}

#[test]
fn what_is_no_object_is_left_to_others() {
    let deep = format!("kind: x\ny: {}", "[".repeat(100_000));
    for text in [
        "*nat\nCOMMIT\n",
        "{\"log\":\"x\"}",
        "kind of: a text\n",
        "kind: [\n",
        "[1, \"kind\"]",
        &deep,
    ] {
        let mut objects = Objects::default();
        assert!(!objects.add(text).0, "{text:.40}");
    }
    let mut objects = Objects::default();
    let json = "{\"kind\": \"Pod\"}\n*nat\nCOMMIT\n";
    assert_eq!(objects.add(json), (true, "\n*nat\nCOMMIT\n".into()));
    let yaml = "*nat\nCOMMIT\n---\nkind: Pod\n";
    assert_eq!(objects.add(yaml), (true, "*nat\nCOMMIT\n".into()));
}

/// `sos report -k kubernetes.all` and must-gathers ask for these.
#[test]
fn endpoints_of_one_family_count_where_no_slice_was_attached() {
    let list = r#"{ "kind": "List", "items": [
        { "kind": "Service", "metadata": { "namespace": "test", "name": "web" },
          "spec": { "clusterIPs": ["10.96.1.0"], "ports": [{ "name": "http", "port": 80 }] } },
        { "kind": "Service", "metadata": { "namespace": "test", "name": "dual" },
          "spec": { "clusterIPs": ["10.96.1.1", "fd00::1"], "ports": [{ "port": 80 }] } },
        { "kind": "Endpoints", "metadata": { "namespace": "test", "name": "web" },
          "subsets": [{ "addresses": [{ "ip": "10.20.1.2" }], "notReadyAddresses": [{ "ip": "10.20.1.3" }],
                        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }] }] },
        { "kind": "Endpoints", "metadata": { "namespace": "test", "name": "dual" },
          "subsets": [{ "addresses": [{ "ip": "10.20.1.2" }], "ports": [{ "port": 8080 }] }] }
    ] }"#;
    let known = |list: &str| {
        let mut objects = Objects::default();
        assert!(objects.add(list).0);
        objects.endpoints()
    };
    let endpoints = known(list).unwrap();
    let [(name, web)] = endpoints
        .into_iter()
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    assert_eq!(name.to_string(), "test/web:http");
    let at = |text: &str| BTreeSet::from([text.parse().unwrap()]);
    assert_eq!(web.ready, at("10.20.1.2:8080"));
    assert_eq!(&web.all - &web.ready, at("10.20.1.3:8080"));
    let truncated = list.replace(
        r#""name": "web" },
          "subsets""#,
        r#""name": "web", "annotations": { "endpoints.kubernetes.io/over-capacity": "truncated" } }, "subsets""#,
    );
    assert_eq!(known(&truncated), Some(BTreeMap::new()));
    let beside = format!("{list}\n{{ \"kind\": \"EndpointSlice\" }}");
    assert_eq!(known(&beside), Some(BTreeMap::new()));
}
