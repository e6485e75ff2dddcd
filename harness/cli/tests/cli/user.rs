//! An ordinary user gets the same worlds.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use nix::unistd::geteuid;

use crate::ground::{Ground, exits, text, validates};

/// `nobody` of every Linux.
const NOBODY: &str = "65534";

/// Run by root it becomes somebody else, with a copy of the program that everybody may read.
#[test]
fn an_ordinary_user_runs_a_world() {
    let ground = Ground::new();
    let program = ground.path().join("chainbreak");
    // By a child: what this process has open for writing is so in whatever another test starts meanwhile, and cannot be run.
    let mut copy = Command::new("cp");
    copy.args([
        env!("CARGO_BIN_EXE_chainbreak").as_ref(),
        program.as_os_str(),
    ]);
    assert!(copy.status().unwrap().success());
    fs::set_permissions(ground.path(), Permissions::from_mode(0o777)).unwrap();
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
            .arg(&program);
        command
    } else {
        Command::new(&program)
    };
    command.current_dir(ground.path());
    let args = ["run", "short.yaml", "--variant", "calm", "--out", "out"];
    let output = command.args(args).output().unwrap();
    exits(&output, 0);
    assert!(text(&output.stdout).contains("1 case: 1 as expected"));
    validates(&ground.newest("junit.xml"));
}
