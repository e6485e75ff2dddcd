//! The program as a person runs it: a process, its exit code, its words and the files it leaves.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

mod agents;
mod bundle;
mod by;
mod causes;
mod choose;
mod cluster;
mod codes;
mod collect;
mod course;
mod diagnose;
mod diags;
mod disk;
mod drops;
mod explain;
mod faults;
mod formats;
mod github;
mod ground;
mod impostor;
mod input;
mod interrupt;
mod kept;
mod late;
mod likeness;
mod live_node;
mod machine;
mod moment;
mod new;
mod observing;
mod output;
mod parity;
mod pins;
mod presence;
mod real_clusters;
mod rerender;
mod sandbox;
mod shards;
mod trace;
mod turned;
mod tutorial;
mod user;
