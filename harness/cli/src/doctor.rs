//! `chainbreak doctor`: what this machine can run, and the command that mends what is missing.

use std::{
    fmt::Write,
    process::{Command, ExitCode, Stdio},
};

use chainbreak_engine::cluster::Backend;
use chainbreak_lab::Lab;

/// Surveys the lab by really trying, looks for what other backends need, prints, and succeeds when
/// the lab can run.
pub(crate) async fn doctor() -> anyhow::Result<ExitCode> {
    let survey = Lab::default().survey().await;
    let mut text = String::new();
    for (name, found) in &survey.0 {
        describe(&mut text, name, found)?;
    }
    describe(&mut text, "docker", &docker())?;
    describe(&mut text, "kind", &kind())?;
    #[cfg(not(feature = "clusters"))]
    describe(
        &mut text,
        "real clusters",
        &Err(crate::without_features::CLUSTERS.to_owned()),
    )?;
    let lab = survey.0.get("lab").is_some_and(Result::is_ok);
    let ending = if lab {
        "This machine runs the lab: chainbreak run scenarios/kube-proxy"
    } else {
        "This machine cannot run the lab until what is missing is there."
    };
    crate::say(&format!("{text}\n{ending}\n"))?;
    Ok(if lab {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(12)
    })
}

fn describe(text: &mut String, name: &str, found: &Result<(), String>) -> std::fmt::Result {
    match found {
        Ok(()) => writeln!(text, "ok       {name}"),
        Err(reason) => {
            let mut lines = reason.lines();
            writeln!(
                text,
                "missing  {name:<16} {}",
                lines.next().unwrap_or_default()
            )?;
            lines.try_for_each(|line| writeln!(text, "{:26}{line}", ""))
        }
    }
}

fn docker() -> Result<(), String> {
    let engine = succeeds(&["docker", "info"]);
    engine
        .map_err(|why| format!("no Docker engine answers ({why})\nsudo apt-get install docker.io"))
}

fn kind() -> Result<(), String> {
    let kind = succeeds(&["kind", "version"]);
    kind.map_err(|why| format!("{why}\nsee https://kind.sigs.k8s.io/docs/user/quick-start"))
}

fn succeeds(argv: &[&str]) -> Result<(), String> {
    let mut command = Command::new(argv[0]);
    command
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{}` failed: {status}", argv.join(" "))),
        Err(error) => Err(format!("`{}` could not be started: {error}", argv[0])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_the_command_that_mends_it_on_a_line_of_its_own() {
        let reason = "`nginx -t`: not found\nsudo apt-get install nginx-light";
        let mut text = String::new();
        describe(&mut text, "nginx", &Err(reason.to_owned())).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "missing  nginx            `nginx -t`: not found");
        assert_eq!(lines[1].trim_start(), "sudo apt-get install nginx-light");
        let column = |line: &str, word: &str| line.find(word).unwrap();
        assert_eq!(column(lines[0], "`nginx"), column(lines[1], "sudo"));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let why = succeeds(&["a-program-that-nobody-has", "info"]).unwrap_err();
        assert!(why.contains("`a-program-that-nobody-has`"), "{why}");
    }
}
