//! A scenario that is good, and what is said of it with a mistake in it.

use std::{io, path::Path};

use chainbreak_model::{Diagnostics, read, scenario::Scenario};

pub(crate) const GOOD: &str = "\
name: good
about: nothing is wrong here
cluster:
  nodes: 2
  kube-proxy: { version: '1.32', sync-period: 5s }
  calico: { version: v3.28.1 }
  felix: { bpfEnabled: true }
  hosts: [outside]
manifests: [objects.yaml]
traffic:
  shop: { from: pod/client, to: service/test/web, port: 80, every: 5ms }
timeline:
  - settle: 1s
  - churn: { deployment: test/web, replicas: [3, 2], every: 2s, for: 4s }
promises:
  answers: { available: { traffic: shop, at-least: 99.9%, longest-gap: 500ms } }
  quiet: { no-log: { agent: kube-proxy, matches: 'Failed' } }
variants:
  incident: { expect: { broken: [answers] } }
  fixed: { felix: { bpfEnabled: false }, expect: healthy }
";

pub(crate) const OBJECTS: &str = "\
apiVersion: v1
kind: Pod
metadata: { name: client }
spec:
  containers: [{ name: client, image: busybox }]
---
apiVersion: apps/v1
kind: Deployment
metadata: { namespace: test, name: web }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      containers: [{ name: nginx, image: nginx }]
---
apiVersion: v1
kind: Service
metadata: { namespace: test, name: web }
spec:
  selector: { app: web }
  ports: [{ name: http, port: 80 }]
";

pub(crate) fn reads(scenario: &[u8], objects: &str) -> Result<Scenario, Diagnostics> {
    let open = |path: &Path| match path.to_str() {
        Some("scenarios/objects.yaml") => Ok(objects.as_bytes().to_vec()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    read(Path::new("scenarios/bad.yaml"), scenario, &open)
}

/// What is said of a scenario.
pub(crate) fn said(scenario: impl AsRef<[u8]>) -> String {
    reads(scenario.as_ref(), OBJECTS)
        .expect_err("it is bad")
        .plain()
}

/// What is said of the good scenario with a text in it replaced.
pub(crate) fn said_of(good: &str, bad: &str) -> String {
    assert!(GOOD.contains(good), "{good}");
    said(GOOD.replace(good, bad))
}

/// What is said of the good manifests with a text in them replaced.
pub(crate) fn said_of_objects(good: &str, bad: &str) -> String {
    assert!(OBJECTS.contains(good), "{good}");
    reads(GOOD.as_bytes(), &OBJECTS.replace(good, bad))
        .expect_err("it is bad")
        .plain()
}

#[test]
fn the_good_scenario_is_good() {
    reads(GOOD.as_bytes(), OBJECTS).unwrap_or_else(|error| panic!("{}", error.plain()));
}
