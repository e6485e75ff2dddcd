//! Bad input: every mistake at once, each where it stands, and never a panic.

mod cluster;
mod files;
mod good;
mod manifests;
mod promises;
mod signature;
mod timeline;
mod values;
mod variants;
