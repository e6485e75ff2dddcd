//! Real agents as a person runs them: the incident with the kube-proxy that was shipped, in the machine's
//! file system and in a root of its own, every command of it in the history, and what is said when
//! something is wrong with what was given.
//!
//! Tests that need the real program are ignored unless asked for: `make test-real` builds it and runs them.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

#[expect(dead_code, reason = "these tests use a part of it")]
#[path = "../cli/ground/mod.rs"]
mod ground;
mod stage;

mod bad;
mod commands;
mod incident;
mod root;
mod traffic;
