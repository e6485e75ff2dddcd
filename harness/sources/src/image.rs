//! An image of an agent, unpacked without Docker: asked for at its registry, held to its digests, unpacked layer by layer, asked for its
//! version, and kept as a root file system. An image is kept once, under the digest of its manifest for this machine; what it was
//! asked for by, which may lead elsewhere tomorrow, is written down beside it.

mod error;
mod layer;
mod limits;
mod manifest;
mod mirrors;
mod note;
mod registry;
mod root;
#[cfg(test)]
mod tests;
mod unpack;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use chainbreak_model::{
    agent::{DIRECTORIES, programs},
    names::AgentName,
};
use oci_client::manifest::OciDescriptor;
use tokio_util::sync::CancellationToken;

pub use error::ImageError;
pub use limits::Limits;
pub use mirrors::{MIRRORS, Mirrors};
pub use oci_client::{Reference, secrets::RegistryAuth};
pub use registry::{Credentials, of_docker};

use crate::{
    Cache, Kept, Say, SourceError,
    cache::{Begun, Workplace},
    room::room,
};
use layer::Form;
use limits::{Left, megabytes};
use manifest::Image;
pub(crate) use note::{NAME, Note};
use registry::Registry;
use root::Root;
use unpack::Unpacker;

/// In the workplace: what becomes the kept one; in that, the root.
const WHOLE: &str = "whole";
const ROOT: &str = "root";
/// How many times its size an image takes while it is unpacked: a layer, its archive, and the files. Estimated, not measured.
const ROOM: u64 = 6;

/// Reads the name of an image, as `registry.k8s.io/kube-proxy:v1.34.2` or with a digest, `…@sha256:…`.
pub fn reference(text: &str) -> Result<Reference, SourceError> {
    text.parse().map_err(|error| {
        let why = ImageError::Name(format!("{error}"));
        SourceError::image(text)(why)
    })
}

/// Pulls images.
#[derive(Debug)]
pub struct Puller<'a> {
    /// Where they are kept.
    pub cache: &'a Cache,
    /// Who is asked in place of whom.
    pub mirrors: Mirrors,
    /// Who we are.
    pub credentials: Credentials,
    /// How much one may be.
    pub limits: Limits,
}

impl<'a> Puller<'a> {
    /// With the mirrors that the environment names, and Docker's credentials.
    pub fn of_environment(cache: &'a Cache) -> Result<Self, SourceError> {
        let mirrors = std::env::var(MIRRORS).unwrap_or_default();
        Ok(Self {
            cache,
            mirrors: mirrors.parse().map_err(SourceError::Mirrors)?,
            credentials: of_docker,
            limits: Limits::default(),
        })
    }

    /// The one that was last pulled by that name, if one was. Nobody is asked whether the name leads elsewhere by now.
    pub fn at_hand(&self, image: &Reference) -> Result<Option<Kept>, SourceError> {
        let name = image.whole();
        let kept = self.cache.kept()?.into_iter();
        let called = kept.filter(|kept| kept.image.as_deref() == Some(&*name));
        Ok(called.max_by_key(|kept| note::age(&kept.path)))
    }

    /// Pulls an image, unless what its name leads to is there. `ask` asks the agent in that root for its version.
    pub async fn pull(
        &self,
        image: &Reference,
        ask: impl AsyncFn(AgentName, &Path) -> Result<String, String>,
        say: Say<'_>,
    ) -> Result<Kept, SourceError> {
        let name = image.whole();
        let of_image = || SourceError::image(&name);
        let registry = Registry::of(image, &self.mirrors, self.credentials);
        let registry = registry.await.map_err(of_image())?;
        let found = manifest::find(&registry).await.map_err(of_image())?;
        say(&format!("{name} is {}", found.named));
        let kept = format!("{NAME}{}", found.hex());
        let path = match self.cache.begin(&kept, &kept, say).await? {
            Begun::There(path) => {
                say(&format!("{name} is here already"));
                path
            }
            Begun::Make(place) => {
                let bytes = found.layers.iter().map(|it| it.size.unsigned_abs());
                let needs = bytes.sum::<u64>().saturating_mul(ROOM) / 1_000_000;
                room(&name, place.folder(), "XDG_CACHE_HOME", needs)?;
                let place = self.unpack(&registry, &found, place, say);
                let place = place.await.map_err(of_image())?;
                let whole = place.folder().join(WHOLE);
                let noted = note(&whole, &name, &found, ask).await;
                noted.map_err(of_image())?;
                place.finish(WHOLE)?
            }
        };
        // What it was asked for by now.
        let noted = Note::renew(&path, &name, &found.named);
        noted.map_err(of_image())?;
        let kept = Note::read(&path).map(|note| note.kept(&path));
        kept.map_err(of_image())
    }

    /// Downloads and unpacks every layer.
    async fn unpack(
        &self,
        registry: &Registry,
        image: &Image,
        mut place: Workplace,
        say: Say<'_>,
    ) -> Result<Workplace, ImageError> {
        let root = place.folder().join(WHOLE).join(ROOT);
        fs::create_dir_all(&root).map_err(ImageError::at(&root))?;
        let stop = CancellationToken::new();
        let _stops_with_us = stop.clone().drop_guard();
        let mut unpacker = Unpacker {
            root: Root::at(&root, self.limits.depth).map_err(ImageError::at(&root))?,
            left: Left::of(self.limits),
            stop,
        };
        let of = image.layers.len();
        for (index, (layer, unfolded)) in image.layers.iter().zip(&image.unfolded).enumerate() {
            let number = (index + 1, of);
            let size = layer.size.unsigned_abs();
            let (digest, mb) = (&layer.digest, megabytes(size));
            say(&format!("layer {} of {of}: {digest}, {mb}", index + 1));
            let form = Form::of(&layer.media_type).ok_or_else(|| ImageError::NoImage {
                what: format!("a layer of it is {}", layer.media_type),
            })?;
            let blob = place.folder().join("layer");
            let mut file = File::create(&blob).map_err(ImageError::at(&blob))?;
            registry.layer(layer, &mut file).await?;
            let (layer, unfolded) = (layer.clone(), unfolded.clone());
            // On a thread of its own, which keeps the place for as long as it writes there.
            let unpacking = tokio::task::spawn_blocking(move || {
                let unpacked = one(
                    &mut unpacker,
                    place.folder(),
                    &layer,
                    form,
                    &unfolded,
                    number,
                );
                (unpacked, unpacker, place)
            });
            let unpacked;
            (unpacked, unpacker, place) = unpacking
                .await
                .map_err(|gone| ImageError::keep(gone.into()))?;
            unpacked?;
        }
        Ok(place)
    }
}

/// Unpacks a layer that lies in that folder.
fn one(
    unpacker: &mut Unpacker,
    folder: &Path,
    layer: &OciDescriptor,
    form: Form,
    unfolded: &str,
    number: (usize, usize),
) -> Result<(), ImageError> {
    let (blob, archive) = (folder.join("layer"), folder.join("archive"));
    let open = |path: &PathBuf| File::open(path).map_err(ImageError::at(path));
    let sized = (open(&blob)?, layer.size.unsigned_abs());
    let into = File::create(&archive).map_err(ImageError::at(&archive))?;
    let of_layer = || ImageError::layer(number, &layer.digest);
    let (left, stop) = (&mut unpacker.left, &unpacker.stop);
    let actual = layer::unfold(sized, form, into, left, stop).map_err(of_layer())?;
    if actual != unfolded {
        return Err(ImageError::Layer {
            number: number.0,
            of: number.1,
            digest: layer.digest.clone(),
            why: format!(
                "it unpacks to {actual}, and the config says {unfolded}: it is not the image's"
            ),
        });
    }
    unpacker.layer(open(&archive)?).map_err(of_layer())?;
    for path in [blob, archive] {
        fs::remove_file(&path).map_err(ImageError::at(&path))?;
    }
    Ok(())
}

/// Writes down what is in an unpacked image, once its agent has said which one it is.
async fn note(
    whole: &Path,
    name: &str,
    image: &Image,
    ask: impl AsyncFn(AgentName, &Path) -> Result<String, String>,
) -> Result<(), ImageError> {
    let path = whole.join(ROOT);
    let root = Root::at(&path, 0).map_err(ImageError::at(&path))?;
    let places = programs().flat_map(|(agent, program)| {
        DIRECTORIES.map(|directory| (agent, Path::new(directory).join(program)))
    });
    let mut found = places.filter_map(|(agent, place)| Some((agent, root.file(&place).ok()?.1)));
    let (agent, program) = found.next().ok_or(ImageError::NoAgent)?;
    let version = ask(agent, &path)
        .await
        .map_err(|said| ImageError::Unknown {
            agent,
            said: said.lines().next().unwrap_or_default().to_owned(),
        })?;
    let note = Note::new(agent, &version, program, image, name);
    note.write(whole)
}
