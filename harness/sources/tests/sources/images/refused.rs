//! What is refused, and that nothing is kept of it.

use std::fs;

use chainbreak_sources::image::{Limits, reference};
use tar::EntryType;

use super::machine::Machine;
use crate::registry::{Image, Registry, layer, layer_of};

#[tokio::test]
async fn what_is_sent_is_held_to_its_digest_and_its_size() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let image = Image::of_kube_proxy("v1.34.2");
    let digest = registry.push("kube-proxy:v1.34.2", &image).await;
    let tag = registry.image("kube-proxy:v1.34.2");
    let pinned = registry.image(&format!("kube-proxy@{digest}"));
    let none = registry.image(&format!("kube-proxy@sha256:{}", "0".repeat(64)));
    let why = machine.refusal(&none).await;
    assert!(why.contains("has no such image"), "{why}");
    // The registry's own files are changed: a layer of the same length, then the manifest.
    let layer = registry.blob(&crate::registry::sha256(&image.layers[1].blob));
    let mut bytes = fs::read(&layer).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&layer, &bytes).unwrap();
    let why = machine.refusal(&tag).await;
    assert!(
        why.contains("in place of sha256:") && why.contains("nothing of it is used"),
        "{why}"
    );
    fs::write(&layer, &image.layers[1].blob).unwrap();
    let manifest = registry.blob(&digest);
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(
        &manifest,
        text.replace("\"schemaVersion\":2", "\"schemaVersion\":  2"),
    )
    .unwrap();
    for name in [&tag, &pinned] {
        let why = machine.refusal(name).await;
        assert!(why.contains(&format!("in place of {digest}")), "{why}");
    }
    fs::write(&manifest, text).unwrap();
    machine.pull(&pinned).await.unwrap();
}

#[tokio::test]
async fn a_layer_that_is_not_what_is_said_of_it_is_refused() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    type Lie = fn(&mut Image);
    let lies: [(Lie, &str); 5] = [
        (|it| it.layers[0].size += 1, "its manifest says"),
        (|it| it.layers[0].size -= 1, "sent more than"),
        (
            |it| it.layers[1].unfolded = format!("sha256:{}", "0".repeat(64)),
            "layer 2 of 2 (sha256:",
        ),
        (
            |it| it.layers[0].kind = "application/vnd.oci.image.layer.v1.tar+zstd".to_owned(),
            "it cannot be decompressed",
        ),
        (
            |it| it.layers[0].kind = "application/x-secret".to_owned(),
            "a layer of it is application/x-secret",
        ),
    ];
    for (lie, said) in lies {
        let mut image = Image::of_kube_proxy("v1.34.2");
        lie(&mut image);
        registry.push("kube-proxy:lies", &image).await;
        let why = machine.refusal(&registry.image("kube-proxy:lies")).await;
        assert!(why.contains(said), "{why}");
    }
}

#[tokio::test]
async fn hostile_layers_and_bombs_are_refused_by_layer_and_entry() {
    let (registry, mut machine) = (Registry::start("").await, Machine::new());
    machine.limits = Limits {
        bytes: 100_000,
        entries: 10,
        ..Limits::default()
    };
    let program: (&str, &[u8]) = ("usr/local/bin/kube-proxy", b"v1.34.2");
    let many: Vec<String> = (0..10).map(|it| it.to_string()).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|it| (it.as_str(), &b""[..])).collect();
    for (hostile, said) in [
        (
            layer(&[("../../x", b"")]),
            "entry \"../../x\" leads outside",
        ),
        (
            layer(&[("/etc/x", b"")]),
            "entry \"/etc/x\" begins at the root",
        ),
        (
            layer_of(&[(EntryType::Char, "dev/x", b"")]),
            "entry \"dev/x\" is a device",
        ),
        (
            layer(&[("x", &vec![0; 100_000])]),
            "unpacks to more than 0.1 MB",
        ),
        (layer(&many), "has more than 10 entries"),
    ] {
        let digest = crate::registry::sha256(&hostile.blob);
        let image = Image::new(vec![layer(&[program]), hostile]);
        registry.push("kube-proxy:hostile", &image).await;
        let why = machine.refusal(&registry.image("kube-proxy:hostile")).await;
        assert!(
            why.starts_with(&format!("layer 2 of 2 ({digest}): ")),
            "{why}"
        );
        assert!(why.contains(said), "{why}");
    }
}

#[tokio::test]
async fn each_trouble_is_one_line_that_says_what_to_do() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let why = machine.refusal(&registry.image("kube-proxy:v1.99.0")).await;
    assert!(
        why.ends_with("has no such image: look at its name and its tag"),
        "{why}"
    );
    let other = Image::new(vec![layer(&[("bin/sh", b"")])]);
    registry.push("x:1", &other).await;
    let why = machine.refusal(&registry.image("x:1")).await;
    assert!(
        why.starts_with("there is neither kube-proxy nor calico-node in it"),
        "{why}"
    );
    registry.push("x:2", &Image::of_kube_proxy("broken")).await;
    let why = machine.refusal(&registry.image("x:2")).await;
    assert_eq!(
        why,
        "its kube-proxy does not say which version it is: broken"
    );
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let gone = reference(&format!("{address}/x:1")).unwrap();
    let why = machine.refusal(&gone).await;
    assert!(
        why.contains("cannot be reached (Connection refused"),
        "{why}"
    );
    assert!(why.contains("CHAINBREAK_MIRRORS=REGISTRY="), "{why}");
    let why = reference("no:name:at:all").unwrap_err().to_string();
    assert!(why.contains("it is no name of an image"), "{why}");
}
