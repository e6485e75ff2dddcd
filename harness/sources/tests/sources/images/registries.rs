//! Who is asked for an image, and what it is told of us.

use std::fs;

use chainbreak_sources::{
    Puller,
    image::{RegistryAuth, reference},
};

use super::machine::Machine;
use crate::{
    registry::{Image, Registry},
    token::Tokens,
};

#[tokio::test]
async fn a_mirror_is_asked_in_place_of_a_registry() {
    let (registry, mut machine) = (Registry::start("").await, Machine::new());
    registry
        .push("k8s/kube-proxy:v1.34.2", &Image::of_kube_proxy("v1.34.2"))
        .await;
    let mirrors = format!("registry.invalid=http://{}/k8s", registry.host);
    machine.mirrors = mirrors.parse().unwrap();
    let image = reference("registry.invalid/kube-proxy:v1.34.2").unwrap();
    let kept = machine.pull(&image).await.unwrap();
    assert_eq!(
        kept.image.as_deref(),
        Some("registry.invalid/kube-proxy:v1.34.2")
    );
}

/// `somebody` with the password `abc`, as htpasswd(1) writes it.
const SOMEBODY: &str = "somebody:$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i\n";

#[tokio::test]
async fn a_registry_that_asks_who_we_are_is_told_and_else_it_is_said_how_to_log_in() {
    let open = Registry::start("").await;
    open.push("kube-proxy:v1.34.2", &Image::of_kube_proxy("v1.34.2"))
        .await;
    let machine = Machine::new();
    fs::write(open.path("somebody"), SOMEBODY).unwrap();
    let closed = Registry::start(&format!(
        "auth: {{ htpasswd: {{ realm: x, path: {} }} }}\nproxy: {{ remoteurl: 'http://{}' }}\n",
        open.path("somebody").display(),
        open.host
    ))
    .await;
    let image = closed.image("kube-proxy:v1.34.2");
    let why = machine.refusal(&image).await;
    assert!(
        why.contains(&format!("`docker login {}`", closed.host)),
        "{why}"
    );
    let puller = Puller {
        credentials: |_| RegistryAuth::Basic("somebody".to_owned(), "abc".to_owned()),
        ..machine.puller()
    };
    machine.pull_with(&puller, &image).await.unwrap();
}

#[tokio::test]
async fn a_registry_that_wants_a_token_gets_the_one_that_its_realm_gives_out() {
    let open = Registry::start("").await;
    for name in ["kube-proxy:v1.34.2", "secret:v1.34.2"] {
        open.push(name, &Image::of_kube_proxy("v1.34.2")).await;
    }
    let (machine, keys) = (Machine::new(), tempfile::tempdir().unwrap());
    let tokens = Tokens::start(keys.path());
    let closed = Registry::start(&format!(
        "{}proxy: {{ remoteurl: 'http://{}' }}\n",
        tokens.auth(keys.path()),
        open.host
    ))
    .await;
    // The token is for another image.
    let why = machine.refusal(&closed.image("secret:v1.34.2")).await;
    assert!(why.contains("docker login"), "{why}");
    let image = closed.image("kube-proxy:v1.34.2");
    machine.pull(&image).await.unwrap();
    let asked = tokens.asked();
    let pulls = "scope=repository%3Akube-proxy%3Apull";
    let with_scope =
        |line: &String| line.contains(pulls) || line.contains("repository:kube-proxy:pull");
    assert!(asked.iter().any(with_scope), "{asked:?}");
    assert!(
        asked.iter().all(|line| line.contains("service=images")),
        "{asked:?}"
    );
}
