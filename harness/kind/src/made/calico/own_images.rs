//! Images of Calico's that a person gives in place of those that its manifest names: builds of their own, or what a machine without a
//! registry has. Nodes have them under the manifest's names, so that nothing of it, or of what the operator makes, is changed.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use crate::{
    error::KindError,
    hash::short,
    made::{docker, images},
    shared::nodes::Nodes,
    tool::Tool,
};

/// What reading or writing an image of some hundred megabytes may take.
const LONG: Duration = Duration::from_secs(300);
/// Calico's images by name, and what Docker is told of an unpacked one: how its program is started, as Calico's Dockerfiles have it
/// (v3.28.1 and v3.32.1).
const PARTS: [(&str, &[&str]); 5] = [
    (
        "node",
        &[
            "CMD [\"start_runit\"]",
            "ENV SVDIR=/etc/service/enabled",
            "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ],
    ),
    (
        "cni",
        &["CMD [\"/opt/cni/bin/install\"]", "WORKDIR /opt/cni/bin"],
    ),
    (
        "kube-controllers",
        &["ENTRYPOINT [\"/usr/bin/kube-controllers\"]", "USER 999"],
    ),
    ("typha", &["CMD [\"/usr/bin/calico-typha\"]", "USER 999"]),
    // Of its v1.42.3.
    (
        "operator",
        &["ENTRYPOINT [\"/usr/bin/operator\"]", "USER 10001:10001"],
    ),
];

/// An image that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnImage {
    /// The last part of its name, by which the manifest's image is found: `node`.
    part: String,
    /// What containerd calls it.
    reference: String,
    source: Source,
    /// Another one of that name has another.
    identity: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// Docker has it, or can pull it.
    Docker,
    /// `docker save` wrote it, or somebody who writes as it does.
    Archive(PathBuf),
    /// The files of one.
    Root(PathBuf),
}

impl Source {
    fn of(source: &str) -> Result<Self, KindError> {
        let path = Path::new(source);
        if path.is_dir() {
            Ok(Self::Root(path.to_owned()))
        } else if path.is_file() {
            Ok(Self::Archive(path.to_owned()))
        } else if source.starts_with(['.', '/', '~']) || source.is_empty() {
            Err(unusable(&format!("there is no file or folder {source}")))
        } else {
            Ok(Self::Docker)
        }
    }
}

/// Everything that was given as `[NAME=]SOURCE`, in order. Images are pulled that are not here.
pub(crate) async fn read(given: &[String]) -> Result<Vec<OwnImage>, KindError> {
    let mut all = Vec::new();
    for given in given {
        let (name, source) = split(given);
        match Source::of(source)? {
            Source::Root(path) => all.push(root(name, &path)?),
            Source::Archive(path) => all.extend(archive(name, &path).await?),
            Source::Docker => all.push(of_docker(name, source).await?),
        }
    }
    let mut parts = BTreeSet::new();
    match all.iter().find(|image| !parts.insert(&image.part)) {
        Some(twice) => Err(unusable(&format!(
            "{} is given twice: only one image can be Calico's `{}`",
            twice.reference, twice.part
        ))),
        None => Ok(all),
    }
}

/// What tells these images, each in its part, from others.
pub(crate) fn identity(own: &[OwnImage]) -> Vec<String> {
    let identity = |image: &OwnImage| format!("{}={}", image.part, image.told());
    own.iter().map(identity).collect()
}

/// Whether everything that was given is there, as far as this machine's files and names tell.
pub(crate) fn is_there(given: &[String]) -> Result<(), KindError> {
    for given in given {
        let (name, source) = split(given);
        match Source::of(source)? {
            Source::Root(path) => drop(root(name, &path)?),
            Source::Archive(path) => super::is_readable(&path)?,
            Source::Docker => {}
        }
    }
    Ok(())
}

/// The images of Calico that nodes are to have under these names, each with the names that it takes the place of.
pub(crate) fn places<'a>(
    own: &'a [OwnImage],
    wanted: &BTreeSet<String>,
) -> Result<Vec<(&'a OwnImage, Vec<String>)>, KindError> {
    let mut places = Vec::new();
    for image in own {
        let names = wanted.iter().filter(|name| part_of(name) == image.part);
        let names: Vec<String> = names.cloned().collect();
        if !names.is_empty() {
            places.push((image, names));
        } else if !matches!(image.source, Source::Archive(_)) || own.len() == 1 {
            let parts: BTreeSet<&str> = wanted.iter().map(|name| part_of(name)).collect();
            let parts = parts.into_iter().collect::<Vec<_>>().join(", ");
            return Err(unusable(&format!(
                "Calico's manifest has no image `{}`: it has {parts}",
                image.part
            )));
        }
    }
    Ok(places)
}

/// Gives new nodes the images, each under the names whose place it takes, too.
pub(crate) async fn load(
    places: &[(&OwnImage, Vec<String>)],
    nodes: &Nodes,
) -> Result<(), KindError> {
    let mut archives = BTreeSet::new();
    for (image, names) in places {
        match &image.source {
            Source::Docker => images::give(&image.reference, &nodes.0).await?,
            Source::Archive(path) if !archives.insert(path) => {}
            Source::Archive(path) => unpack(path, nodes).await?,
            Source::Root(path) => image.pack(path, nodes).await?,
        }
        let reference = images::qualified(&image.reference);
        for node in &nodes.0 {
            for name in names {
                let tag = ["ctr", "-n", "k8s.io", "images", "tag", "--force"];
                let tag = tag.into_iter().chain([&*reference, name]);
                node.run(&tag.collect::<Vec<_>>()).await?;
            }
        }
    }
    Ok(())
}

/// What `docker save` wrote, compressed or not, into every node.
async fn unpack(archive: &Path, nodes: &Nodes) -> Result<(), KindError> {
    const SCRIPT: &str = "file=$1; shift; gzip -dcf -- \"$file\" | \"$@\"";
    for node in &nodes.0 {
        images::import(node, SCRIPT, &[&archive.to_string_lossy()]).await?;
    }
    Ok(())
}

impl OwnImage {
    /// Its name, and what tells it from others of that name.
    pub(crate) fn told(&self) -> String {
        format!("{} ({})", self.reference, self.identity)
    }

    /// What it is called in Calico's words.
    pub(crate) fn part(&self) -> &str {
        &self.part
    }

    /// The files of a folder by way of Docker, which makes an image of them and is rid of it afterwards.
    async fn pack(&self, root: &Path, nodes: &Nodes) -> Result<(), KindError> {
        // A file that tar could not read is an error, whatever Docker makes of the rest.
        const SCRIPT: &str = "root=$1; shift; \
            status=$({ { tar -C \"$root\" -c .; echo $? >&3; } | \"$@\" >/dev/null; } 3>&1) && [ \"$status\" = 0 ]";
        let known = PARTS.iter().find(|(name, _)| *name == self.part);
        let (_, changes) = known.expect("it was looked for before");
        let root = root.to_string_lossy();
        let changes = changes.iter().flat_map(|change| ["--change", change]);
        let script = ["sh", "-c", SCRIPT, "sh", &root, "docker", "import"];
        let argv = script.into_iter().chain(changes);
        let argv = argv.chain(["-", &self.reference]);
        let packed = Tool::new(LONG, argv).output().await;
        let given = match packed {
            Ok(_) => images::give(&self.reference, &nodes.0).await,
            Err(error) => Err(error),
        };
        let removed = docker::docker(["image", "rm", "--force", &self.reference]).await;
        given.and(removed.map(drop))
    }
}

/// `NAME=SOURCE` or `SOURCE`.
fn split(given: &str) -> (Option<&str>, &str) {
    let is_name = |text: &str| text.chars().all(|it| it.is_ascii_lowercase() || it == '-');
    match given.split_once('=') {
        Some((name, source)) if is_name(name) => (Some(name), source),
        _ => (None, given),
    }
}

/// `quay.io/calico/node:v3.32.1` is `node`.
fn part_of(reference: &str) -> &str {
    let name = reference.rsplit('/').next().unwrap_or_default();
    name.split([':', '@']).next().unwrap_or_default()
}

async fn of_docker(name: Option<&str>, reference: &str) -> Result<OwnImage, KindError> {
    if reference.contains('@') || reference.starts_with("sha256:") {
        return Err(unusable(&format!(
            "{reference} has no tag, by which nodes would know it\ndocker tag {reference} NAME:TAG"
        )));
    }
    docker::have(reference).await?;
    Ok(OwnImage {
        part: name.unwrap_or_else(|| part_of(reference)).to_owned(),
        reference: reference.to_owned(),
        source: Source::Docker,
        identity: docker::id(reference).await?.unwrap_or_default(),
    })
}

/// The images of an archive. A name is for one that has only one.
async fn archive(name: Option<&str>, path: &Path) -> Result<Vec<OwnImage>, KindError> {
    let file = path.to_string_lossy();
    let list = ["tar", "-xOf", &file, "manifest.json"];
    let list = Tool::new(LONG, list).output().await;
    let list = list.map_err(|error| unusable(&format!("{file}: {error}")))?;
    let list: Value = serde_json::from_str(&list).unwrap_or_default();
    let none = || {
        unusable(&format!(
            "{file} has no images with names: it has to be what `docker save NAME:TAG` writes"
        ))
    };
    let found = in_archive(&list, path);
    match (name, found.as_slice()) {
        (_, []) => Err(none()),
        (None, _) => Ok(found),
        (Some(name), [_]) => Ok(found
            .into_iter()
            .map(|image| OwnImage {
                part: name.to_owned(),
                ..image
            })
            .collect()),
        (Some(name), _) => Err(unusable(&format!(
            "{file} has {} images: which of them is `{name}` is not said",
            found.len()
        ))),
    }
}

/// What a `manifest.json` of Docker's lists.
fn in_archive(list: &Value, path: &Path) -> Vec<OwnImage> {
    let mut found = Vec::new();
    for image in list.as_array().into_iter().flatten() {
        let tags = image["RepoTags"].as_array().into_iter().flatten();
        // Of one image's names for the same part the first will do.
        let mut parts = BTreeSet::new();
        let tags = tags.filter_map(Value::as_str);
        for reference in tags.filter(|it| parts.insert(part_of(it))) {
            found.push(OwnImage {
                part: part_of(reference).to_owned(),
                reference: reference.to_owned(),
                source: Source::Archive(path.to_owned()),
                identity: image["Config"].as_str().unwrap_or_default().to_owned(),
            });
        }
    }
    found
}

fn root(name: Option<&str>, path: &Path) -> Result<OwnImage, KindError> {
    let base = path.file_name().map(|it| it.to_string_lossy().into_owned());
    let part = name.map_or_else(|| base.unwrap_or_default(), str::to_owned);
    if !PARTS.iter().any(|(known, _)| *known == part) {
        let known: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
        return Err(unusable(&format!(
            "{} is a folder, and which image it is to be is not said: NAME={}, with one of {}",
            path.display(),
            path.display(),
            known.join(", ")
        )));
    }
    let mut seen = Vec::new();
    look(path, &mut seen).map_err(KindError::file("read", path))?;
    let identity = short(&seen.join("\n"));
    Ok(OwnImage {
        reference: format!("chainbreak/calico-{part}:{identity}"),
        part,
        source: Source::Root(path.to_owned()),
        identity: format!("of {}", path.display()),
    })
}

/// What changes with a folder's files: names, kinds, lengths and times.
fn look(folder: &Path, seen: &mut Vec<String>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let told: Metadata = entry.metadata()?;
        let name = entry.file_name();
        let (name, mode) = (name.to_string_lossy(), told.mode());
        if told.is_dir() {
            seen.push(format!("{name} {mode:o} {{"));
            look(&entry.path(), seen)?;
            seen.push("}".to_owned());
        } else {
            let (length, seconds, parts) = (told.size(), told.mtime(), told.mtime_nsec());
            seen.push(format!("{name} {mode:o} {length} {seconds}.{parts}"));
        }
    }
    Ok(())
}

fn unusable(why: &str) -> KindError {
    KindError::Unable(format!("--calico-image: {why}"))
}
