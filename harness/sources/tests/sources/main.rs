//! Agents are made and kept as promised, with a `go` of the tests' own in place of the machine's: what the real one makes of the
//! recipe, it takes minutes to find out.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

mod builds;
mod go;
