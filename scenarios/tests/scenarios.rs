//! Every case as a test of its own, in a world of its own:
//!
//! ```text
//! cargo test -p chainbreak-scenarios default_cleanup
//! cargo test -p chainbreak-scenarios iptables_nft
//! ```

use std::{
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rstest::rstest;

include!(concat!(env!("OUT_DIR"), "/cases.rs"));

/// For cases that take a processor for seconds: side by side they leave each other too little machine to tell.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one case the way a person does. What it printed is the failure's text.
fn comes_out_as_expected(file: &str, variant: &str, cell: &str) {
    let out = tempfile::tempdir().expect("a folder for the reports");
    let mut command = Command::new(env!("CARGO_BIN_EXE_chainbreak-scenarios"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    // The summary of a step that runs the tests is not to have each case's.
    command.env_remove("GITHUB_ACTIONS");
    command
        .args(["run", file, "--variant", variant, "--out"])
        .arg(out.path());
    for key in cell.split_whitespace() {
        command.args(["--matrix", key]);
    }
    let output = command.output().expect("chainbreak runs");
    assert!(
        output.status.success(),
        "{file} {variant} {cell}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}
