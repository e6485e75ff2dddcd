//! Where real agents come from: kube-proxy built from upstream's Go modules, images unpacked without Docker, and what scripts made.
//! All of it lies in one cache, and what is in it is whole.
//!
//! Pure are [`release`] and [`pinned`] (versions), [`recipe`] (what is compiled, and how) and [`words`] (what Go's complaints mean).

pub mod build;
pub mod cache;
pub mod error;
mod go;
#[cfg(feature = "images")]
pub mod image;
pub mod pinned;
pub mod recipe;
pub mod release;
mod room;
mod scripts;
pub mod words;

pub use build::Builder;
pub use cache::{Cache, Kept, Source};
pub use error::SourceError;
#[cfg(feature = "images")]
pub use image::Puller;
pub use release::{Pins, Release};

/// Takes lines of progress.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);
