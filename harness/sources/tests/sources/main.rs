//! Agents are made, pulled and kept as promised, with a `go` and a registry of the tests' own in place of the machine's and the world's:
//! what the real one makes of the recipe, it takes minutes to find out.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

mod builds;
mod go;
mod images;
mod registry;
mod token;
