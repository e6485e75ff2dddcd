//! `chainbreak doctor`: what this machine can run, and the command that mends what is missing.

use std::{fmt::Write, process::ExitCode};

use crate::registry;

/// Asks every backend what it has of what it needs, the lab by really trying, prints, and succeeds when
/// the lab can run.
pub(crate) async fn doctor() -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    for backend in registry::all() {
        findings.extend(backend.doctor().await);
    }
    #[cfg(not(feature = "clusters"))]
    findings.extend(crate::without_features::doctor());
    let mut text = String::new();
    for finding in &findings {
        describe(&mut text, &finding.name, &finding.found)?;
    }
    let lab = findings
        .iter()
        .any(|it| it.name == "lab" && it.found.is_ok());
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
}
