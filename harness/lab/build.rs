//! Builds the shim, which the library embeds: one static program without a crate. Cargo itself cannot
//! build it for that: a program of this package would be linked as the package is.

#![expect(clippy::print_stderr, reason = "how a build script says why it failed")]

use std::{
    env,
    ffi::OsString,
    path::Path,
    process::{Command, ExitCode},
};

const MAIN: &str = "shim/main.rs";

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=shim");
    match shim() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("could not build {MAIN}: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn shim() -> Result<(), String> {
    let folder = variable("OUT_DIR")?;
    let mut command = Command::new(variable("RUSTC")?);
    command
        .args(["--edition=2024", "--crate-name=shim", "-Dunsafe_code", MAIN])
        .arg("--target")
        .arg(variable("TARGET")?)
        .arg("-o")
        .arg(Path::new(&folder).join("shim"));
    // Not relocatable: it starts before every command of an agent, and relocating takes time.
    let options = ["target-feature=+crt-static", "relocation-model=static"];
    let options = options.into_iter().chain([
        "opt-level=s",
        "lto=fat",
        "panic=abort",
        "strip=symbols",
        "codegen-units=1",
    ]);
    for option in options {
        command.args(["-C", option]);
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        command.arg("-C").arg(option);
    }
    let done = command.output().map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!(
        "{}\n\
         It has to be linked statically, as it runs in the root file system of any image. For that, the \
         C library's static half must be installed: libc6-dev on Debian, glibc-static on Fedora.",
        String::from_utf8_lossy(&done.stderr)
    ))
}

fn variable(name: &str) -> Result<OsString, String> {
    env::var_os(name).ok_or_else(|| format!("cargo did not say {name}"))
}
