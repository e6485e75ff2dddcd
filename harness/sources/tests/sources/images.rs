//! Images: pulled once, whole, and each trouble one line that says what to do.

use std::{fs, path::Path, process::Command, sync::Mutex};

use chainbreak_model::names::AgentName;
use chainbreak_sources::{
    Cache, Kept, Puller, Source, SourceError,
    image::{Limits, Mirrors, Reference, RegistryAuth, reference},
};
use serde_json::json;
use tar::EntryType;
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::{
    go::names,
    registry::{INDEX, Image, Registry, here, layer, layer_of},
    token::Tokens,
};

/// A machine with a cache, which pulls.
struct Machine {
    _folder: TempDir,
    cache: Cache,
    mirrors: Mirrors,
    limits: Limits,
    said: Mutex<Vec<String>>,
    more: Notify,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            cache: Cache::at(folder.path().join("cache")),
            _folder: folder,
            mirrors: Mirrors::default(),
            limits: Limits::default(),
            said: Mutex::default(),
            more: Notify::new(),
        }
    }

    fn puller(&self) -> Puller<'_> {
        Puller {
            cache: &self.cache,
            mirrors: self.mirrors.clone(),
            credentials: |_| RegistryAuth::Anonymous,
            limits: self.limits,
        }
    }

    async fn pull(&self, image: &Reference) -> Result<Kept, SourceError> {
        self.pull_with(&self.puller(), image).await
    }

    async fn pull_with(&self, puller: &Puller<'_>, image: &Reference) -> Result<Kept, SourceError> {
        let say = |line: &str| {
            self.said.lock().unwrap().push(line.to_owned());
            self.more.notify_one();
        };
        puller.pull(image, last_word, &say).await
    }

    /// Why an image is not pulled, once it is sure that nothing is kept of it.
    async fn refusal(&self, image: &Reference) -> String {
        let why = self.pull(image).await.unwrap_err().to_string();
        assert_eq!(why.lines().count(), 1, "{why}");
        let name = format!("{}: ", image.whole());
        let why = why.strip_prefix(&name).unwrap_or_else(|| panic!("{why}"));
        if self.cache.folder().exists() {
            assert!(names(self.cache.folder()).is_empty(), "{why}");
        }
        why.to_owned()
    }

    fn times_said(&self, words: &str) -> usize {
        let said = self.said.lock().unwrap();
        said.iter().filter(|line| line.contains(words)).count()
    }

    async fn says(&self, words: &str) {
        while self.times_said(words) == 0 {
            self.more.notified().await;
        }
    }
}

/// What a stand-in would say, without running it.
async fn last_word(agent: AgentName, root: &Path) -> Result<String, String> {
    let program = match agent {
        AgentName::KubeProxy => "usr/local/bin/kube-proxy",
        AgentName::Felix => "usr/bin/calico-node",
    };
    let text = fs::read_to_string(root.join(program)).map_err(|error| error.to_string())?;
    let word = text.split_whitespace().last().unwrap_or_default();
    match word.strip_prefix('v') {
        Some(_) => Ok(word.to_owned()),
        None => Err(format!("{word}\nand more")),
    }
}

#[tokio::test]
async fn an_image_is_pulled_once_and_kept_with_its_name_its_digest_and_its_platform() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let digest = registry
        .push("kube-proxy:v1.34.2", &Image::of_kube_proxy("v1.34.2"))
        .await;
    let image = registry.image("kube-proxy:v1.34.2");
    assert_eq!(machine.puller().at_hand(&image).unwrap(), None);
    let kept = machine.pull(&image).await.unwrap();
    assert_eq!(
        (kept.agent, &*kept.version),
        (AgentName::KubeProxy, "1.34.2")
    );
    assert_eq!((kept.source, kept.is_root()), (Source::Image, true));
    assert_eq!(kept.image, Some(image.whole()));
    assert_eq!(kept.release(), Some("1.34.2".parse().unwrap()));
    assert!(kept.program.ends_with("root/usr/local/bin/kube-proxy"));
    assert_eq!(names(&kept.path.join("etc")), ["here"]);
    let note = kept.path.parent().unwrap().join("image.json");
    let note: serde_json::Value = serde_json::from_slice(&fs::read(note).unwrap()).unwrap();
    assert_eq!(
        (&note["digest"], &note["manifest"], &note["platform"]),
        (
            &json!(digest),
            &json!(digest),
            &json!(format!("linux/{}", here()))
        )
    );
    assert_eq!(
        machine.times_said(&digest),
        1,
        "what a tag leads to is said"
    );
    assert_eq!(machine.times_said("layer 2 of 2: sha256:"), 1);
    // Again by its tag, and by its digest: nothing is downloaded.
    assert_eq!(machine.pull(&image).await.unwrap(), kept);
    let pinned = registry.image(&format!("kube-proxy@{digest}"));
    let same = machine.pull(&pinned).await.unwrap();
    assert_eq!(
        (&same.path, &same.image),
        (&kept.path, &Some(pinned.whole()))
    );
    assert_eq!(machine.times_said("layer 1 of"), 1);
    assert_eq!(machine.times_said("is here already"), 2);
    assert_eq!(machine.cache.kept().unwrap(), std::slice::from_ref(&same));
    assert_eq!(machine.puller().at_hand(&pinned).unwrap(), Some(same));
}

#[tokio::test]
async fn a_tag_that_moved_is_pulled_anew_and_the_newest_is_at_hand() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let image = registry.image("kube-proxy:newest");
    for version in ["v1.34.1", "v1.34.2"] {
        registry
            .push("kube-proxy:newest", &Image::of_kube_proxy(version))
            .await;
        let kept = machine.pull(&image).await.unwrap();
        assert_eq!(kept.version, version.trim_start_matches('v'));
        assert_eq!(machine.puller().at_hand(&image).unwrap(), Some(kept));
    }
    assert_eq!(machine.cache.kept().unwrap().len(), 2);
}

#[tokio::test]
async fn felix_is_found_where_its_image_has_it() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let felix = layer(&[("usr/bin/calico-node", b"v3.28.1")]);
    registry
        .push("calico/node:v3.28.1", &Image::new(vec![felix]))
        .await;
    let kept = machine.pull(&registry.image("calico/node:v3.28.1")).await;
    let kept = kept.unwrap();
    assert_eq!((kept.agent, &*kept.version), (AgentName::Felix, "v3.28.1"));
    assert_eq!(kept.release(), None);
}

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
async fn of_many_platforms_the_machines_own_is_pulled_and_of_none_it_is_said_what_there_is() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let mut entries = Vec::new();
    for (os, architecture) in [("linux", "mips"), ("windows", here()), ("linux", here())] {
        let mut image = Image::of_kube_proxy("v1.34.2");
        image.platform = (os.to_owned(), architecture.to_owned());
        let digest = registry.push("kube-proxy:one", &image).await;
        entries.push(json!({
            "mediaType": crate::registry::MANIFEST,
            "digest": digest,
            "size": fs::metadata(registry.blob(&digest)).unwrap().len(),
            "platform": { "os": os, "architecture": architecture },
        }));
    }
    let list = |entries: &[serde_json::Value]| json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries });
    let many = registry.image("kube-proxy:many");
    let index = registry.put_manifest(&many, INDEX, &list(&entries)).await;
    let others = registry.image("kube-proxy:others");
    registry
        .put_manifest(&others, INDEX, &list(&entries[..2]))
        .await;
    let machines = format!("it has nothing for linux/{}", here());
    let why = machine.refusal(&others).await;
    assert!(why.starts_with(&machines), "{why}");
    assert!(
        why.ends_with(&format!("it has linux/mips, windows/{}", here())),
        "{why}"
    );
    // Not in a list either.
    let alone = entries[0]["digest"].as_str().unwrap();
    let why = machine
        .refusal(&registry.image(&format!("kube-proxy@{alone}")))
        .await;
    assert!(
        why.starts_with(&machines) && why.ends_with("linux/mips"),
        "{why}"
    );
    let kept = machine.pull(&many).await.unwrap();
    let own = entries[2]["digest"].as_str().unwrap();
    let folder = kept.path.parent().unwrap().to_str().unwrap();
    assert!(folder.ends_with(own.trim_start_matches("sha256:")));
    assert_eq!(machine.times_said(&index), 1);
}

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

#[tokio::test]
async fn of_two_at_once_one_pulls_and_the_other_waits_for_it() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    registry
        .push("kube-proxy:v1.34.2", &Image::of_kube_proxy("v1.34.2"))
        .await;
    let image = registry.image("kube-proxy:v1.34.2");
    let (one, other) = tokio::join!(machine.pull(&image), machine.pull(&image));
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(machine.times_said("layer 1 of"), 1);
}

#[tokio::test]
async fn what_is_broken_off_leaves_nothing_and_the_next_one_pulls() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    registry
        .push("kube-proxy:v1.34.2", &Image::of_kube_proxy("v1.34.2"))
        .await;
    let image = registry.image("kube-proxy:v1.34.2");
    tokio::select! {
        // First, so that it ends before the other one can.
        biased;
        () = machine.says("layer 2 of 2") => {}
        pulled = machine.pull(&image) => panic!("it was not broken off: {pulled:?}"),
    }
    assert!(names(machine.cache.folder()).is_empty());
    machine.pull(&image).await.unwrap();
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

/// The real one runs, in the root that it was unpacked to, and is what was pushed.
#[tokio::test]
#[ignore = "needs a real kube-proxy: CHAINBREAK_REAL_KUBE_PROXY"]
async fn a_real_kube_proxy_comes_out_of_its_image_as_it_went_in() {
    let path = std::env::var_os("CHAINBREAK_REAL_KUBE_PROXY");
    let path = path.expect("CHAINBREAK_REAL_KUBE_PROXY is not set: `make test-real` sets it");
    let program = fs::read(path).unwrap();
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let image = Image::new(vec![layer(&[("usr/local/bin/kube-proxy", &program)])]);
    registry.push("kube-proxy:real", &image).await;
    let run = async |_agent: AgentName, root: &Path| {
        let program = root.join("usr/local/bin/kube-proxy");
        let output = Command::new(program).arg("--version").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let version = said.trim().strip_prefix("Kubernetes ");
        version.map(str::to_owned).ok_or_else(|| said.clone())
    };
    let image = registry.image("kube-proxy:real");
    let kept = machine.puller().pull(&image, run, &|_| ()).await.unwrap();
    assert!(kept.version.starts_with("1."), "{}", kept.version);
    let digest = format!("sha256:{}", kept.sha256().unwrap());
    assert_eq!(digest, crate::registry::sha256(&program));
}
