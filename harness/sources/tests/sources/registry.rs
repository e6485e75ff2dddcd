//! A registry of the tests' own, the one that Docker is tested with (Debian's package docker-registry), on a port of the machine's choice
//! and with a folder for what is pushed; and images to push.

use std::{fs, io::Write, path::PathBuf, process::Stdio};

use flate2::{Compression, write::GzEncoder};
use oci_client::{
    Client, Reference,
    client::{ClientConfig, ClientProtocol},
    secrets::RegistryAuth,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Ends with this.
pub(crate) struct Registry {
    folder: TempDir,
    pub(crate) host: String,
    /// What goes on being read, so that it can go on talking.
    _said: tokio::task::JoinHandle<()>,
    _child: Child,
}

impl Registry {
    /// With more lines of its configuration.
    pub(crate) async fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let config = format!(
            "version: 0.1\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\nhttp: {{ addr: '127.0.0.1:0', secret: x }}\n{more}",
            at("data"),
        );
        fs::write(at("config.yml"), config).unwrap();
        let mut child = Command::new("docker-registry")
            .args(["serve", &at("config.yml")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("docker-registry is there: clusters/lab/install-packages installs it");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut host = None;
        while host.is_none() {
            let line = lines.next_line().await.unwrap();
            let line = line.expect("it says where it listens");
            let address = line.split("listening on ").nth(1);
            let address = address.and_then(|rest| rest.split(['"', ' ']).next());
            host = address.map(str::to_owned);
        }
        Self {
            folder,
            host: host.unwrap(),
            _said: tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} }),
            _child: child,
        }
    }

    /// The name of an image that is there.
    pub(crate) fn image(&self, rest: &str) -> Reference {
        format!("{}/{rest}", self.host).parse().unwrap()
    }

    fn client() -> Client {
        // Whoever tests first installs it.
        drop(rustls::crypto::ring::default_provider().install_default());
        let config = ClientConfig {
            protocol: ClientProtocol::Http,
            ..ClientConfig::default()
        };
        Client::try_from(config).unwrap()
    }

    /// Puts a blob there.
    async fn put(&self, image: &Reference, bytes: &[u8]) {
        let client = Self::client();
        let auth = &RegistryAuth::Anonymous;
        client
            .store_auth_if_needed(image.resolve_registry(), auth)
            .await;
        let digest = sha256(bytes);
        let pushed = client.push_blob(image, bytes.to_owned(), &digest);
        pushed.await.unwrap();
    }

    /// Puts a manifest there, and returns its digest.
    pub(crate) async fn put_manifest(&self, image: &Reference, kind: &str, text: &Value) -> String {
        let bytes = serde_json::to_vec(text).unwrap();
        let client = Self::client();
        let auth = &RegistryAuth::Anonymous;
        client
            .store_auth_if_needed(image.resolve_registry(), auth)
            .await;
        let (digest, kind) = (sha256(&bytes), kind.parse().unwrap());
        let pushed = client.push_manifest_raw(image, bytes, kind);
        pushed.await.unwrap();
        digest
    }

    /// Pushes an image under a name, and returns its digest.
    pub(crate) async fn push(&self, name: &str, image: &Image) -> String {
        let name = self.image(name);
        let config = serde_json::to_vec(&image.config()).unwrap();
        self.put(&name, &config).await;
        for layer in &image.layers {
            self.put(&name, &layer.blob).await;
        }
        self.put_manifest(&name, MANIFEST, &image.manifest(&config))
            .await
    }

    /// Where it keeps what has that digest.
    pub(crate) fn blob(&self, digest: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        let blobs = "data/docker/registry/v2/blobs/sha256";
        let at = format!("{blobs}/{}/{hex}/data", hex.split_at(2).0);
        self.folder.path().join(at)
    }

    /// A file beside what it keeps.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// What is pushed.
pub(crate) struct Image {
    pub(crate) platform: (String, String),
    pub(crate) layers: Vec<Layer>,
}

/// A layer as it is, and what is said of it.
pub(crate) struct Layer {
    pub(crate) blob: Vec<u8>,
    pub(crate) kind: String,
    pub(crate) size: usize,
    pub(crate) unfolded: String,
}

impl Image {
    pub(crate) fn new(layers: Vec<Layer>) -> Self {
        Self {
            platform: ("linux".to_owned(), here().to_owned()),
            layers,
        }
    }

    /// With a kube-proxy that calls itself that.
    pub(crate) fn of_kube_proxy(version: &str) -> Self {
        let program = format!("#!/bin/sh\necho Kubernetes {version}\n");
        Self::new(vec![
            layer(&[
                ("usr/local/bin/kube-proxy", program.as_bytes()),
                ("etc/gone", b""),
            ]),
            layer(&[("etc/.wh.gone", b""), ("etc/here", b"kept")]),
        ])
    }

    pub(crate) fn config(&self) -> Value {
        let unfolded: Vec<&String> = self.layers.iter().map(|it| &it.unfolded).collect();
        json!({
            "os": self.platform.0,
            "architecture": self.platform.1,
            "rootfs": { "type": "layers", "diff_ids": unfolded },
        })
    }

    pub(crate) fn manifest(&self, config: &[u8]) -> Value {
        let layers = self.layers.iter().map(|layer| {
            json!({ "mediaType": layer.kind, "digest": sha256(&layer.blob), "size": layer.size })
        });
        json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": sha256(config),
                "size": config.len(),
            },
            "layers": layers.collect::<Vec<_>>(),
        })
    }
}

/// This machine's architecture, as images have it.
pub(crate) fn here() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        same => same,
    }
}

/// A layer with these programs.
pub(crate) fn layer(files: &[(&str, &[u8])]) -> Layer {
    let files = files
        .iter()
        .map(|(path, data)| (EntryType::Regular, *path, *data));
    layer_of(&files.collect::<Vec<_>>())
}

pub(crate) fn layer_of(entries: &[(EntryType, &str, &[u8])]) -> Layer {
    let mut builder = Builder::new(Vec::new());
    for (kind, path, data) in entries {
        let mut header = Header::new_ustar();
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        header.set_size(data.len() as u64);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        builder.append(&header, *data).unwrap();
    }
    let archive = builder.into_inner().unwrap();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&archive).unwrap();
    let blob = gzip.finish().unwrap();
    Layer {
        size: blob.len(),
        kind: GZIP.to_owned(),
        unfolded: sha256(&archive),
        blob,
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(bytes));
    format!("sha256:{digest}")
}
