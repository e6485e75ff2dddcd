//! Calico by its manifest or by its operator: pinned and checked, or a file that the person gives. FelixConfiguration is there before
//! the first calico-node, and for each later case that has another one Felix begins anew: so nobody has to guess when it has taken that in.

mod anew;
mod apply;
mod install;
mod operator;
pub(crate) mod own_cgroup;
pub(crate) mod own_images;
mod patch;
pub(crate) mod pools;
#[cfg(test)]
mod tests;
pub(super) mod version;

use std::{path::Path, time::Duration};

use chainbreak_model::input;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    error::KindError,
    hash::sha256,
    made::spec::{Options, Spec},
    tool::Tool,
    versions::{Digest, Versions},
};

pub(crate) use install::Install;
pub(crate) use operator::operator_can;
pub(crate) use patch::bpf;

/// Bytes of a manifest at most: Calico's own have less than 1 MiB.
const LONGEST: u64 = 16 << 20;
/// What fetching the manifest may take.
const FETCH: Duration = Duration::from_secs(60);

/// How Calico gets into a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// By `manifests/calico.yaml`.
    #[default]
    Manifest,
    /// By `manifests/tigera-operator.yaml`, and an Installation.
    Operator,
}

impl Way {
    /// What its manifest has to have, by kind and name.
    fn heart(self) -> (&'static str, &'static str) {
        match self {
            Self::Manifest => ("DaemonSet", "calico-node"),
            Self::Operator => ("Deployment", operator::NAME),
        }
    }

    /// Its manifest's name in Calico's repository.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Manifest => "manifests/calico.yaml",
            Self::Operator => "manifests/tigera-operator.yaml",
        }
    }
}

/// What Calico is to be.
#[derive(Debug, Clone)]
pub(crate) struct Order<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) way: Way,
    /// FelixConfiguration, as the case has it.
    pub(crate) felix: &'a Map<String, Value>,
    /// The case's own `IPPool`s, in place of Calico's default one.
    pub(crate) pools: Vec<Value>,
    /// Where Calico asks the API, if not by the Service `kubernetes`.
    pub(crate) api: Option<String>,
}

/// The objects of Calico's manifest, in its order.
pub(crate) async fn manifest(
    version: &str,
    options: &Options,
    pins: &Versions,
) -> Result<Vec<Value>, KindError> {
    let way = options.calico_install;
    if let Some(path) = &options.calico_manifest {
        let text = input::read(path, LONGEST).map_err(KindError::file("read", path))?;
        let text = String::from_utf8_lossy(&text);
        return documents(way, &text, &path.display().to_string());
    }
    let release = pins.calico(version).ok_or_else(|| {
        KindError::Unable(format!(
            "no Calico {version} is pinned: `chainbreak versions` lists all, --calico-manifest takes any"
        ))
    })?;
    let url = release.url(way);
    let text = Tool::new(FETCH, ["curl", "-fsSL", &url]).output().await?;
    check(&text, release.digest(way), &url)?;
    documents(way, &text, &url)
}

/// Whether it is the file that was pinned.
pub(crate) fn check(text: &str, pinned: &Digest, origin: &str) -> Result<(), KindError> {
    let found = format!("sha256:{}", sha256(text));
    match pinned {
        Digest::Known(pinned) if *pinned != found => Err(KindError::Manifest {
            origin: origin.to_owned(),
            why: format!("its checksum is {found}, pinned is {pinned}"),
        }),
        Digest::Known(_) | Digest::Unknown => Ok(()),
    }
}

fn documents(way: Way, text: &str, origin: &str) -> Result<Vec<Value>, KindError> {
    let unusable = |why: String| KindError::Manifest {
        origin: origin.to_owned(),
        why,
    };
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let value = Value::deserialize(document).map_err(|error| unusable(error.to_string()))?;
        if !value.is_null() {
            objects.push(value);
        }
    }
    let (kind, name) = way.heart();
    if objects.iter().any(|object| is(object, kind, name)) {
        return Ok(objects);
    }
    let file = way.file();
    Err(unusable(format!(
        "it has no {kind} {name}: is it Calico's {file}?"
    )))
}

fn is(object: &Value, kind: &str, name: &str) -> bool {
    object["kind"] == kind && object["metadata"]["name"] == name
}

/// Whether a file is there to be read, before anything is made for it.
pub(crate) fn is_readable(path: &Path) -> Result<(), KindError> {
    std::fs::File::open(path)
        .map(drop)
        .map_err(KindError::file("read", path))
}
