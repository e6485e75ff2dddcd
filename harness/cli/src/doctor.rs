//! `chainbreak doctor`: what this machine can run, and the command that mends what is missing.

use std::{
    fmt::{self, Write},
    process::ExitCode,
};

use chainbreak_engine::backend::Finding;
#[cfg(feature = "clusters")]
use chainbreak_kind::existing::ClusterFactory;
use chainbreak_report::text::document;
use serde::Serialize;

use crate::{
    args::{self, Answer},
    registry,
};

/// What is found, as a document.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Found<'a> {
    /// Whether the lab can run, which is what the exit status says.
    lab: bool,
    capabilities: Vec<Capability<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Capability<'a> {
    name: &'a str,
    present: bool,
    reason: Option<&'a str>,
    hint: Option<&'a str>,
}

/// Asks every backend what it has of what it needs, the lab by really trying, prints, and succeeds when
/// the lab can run.
pub(crate) async fn doctor(args: &args::Doctor) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    for backend in registry::all() {
        findings.extend(backend.doctor().await);
    }
    #[cfg(not(feature = "clusters"))]
    findings.extend(crate::without_features::doctor());
    #[cfg(feature = "clusters")]
    if let Some(kubeconfig) = &args.kubeconfig {
        let context = args.context.as_deref();
        findings.push(ClusterFactory::finding(kubeconfig, context, args.disruption).await);
    }
    let lab = findings
        .iter()
        .any(|it| it.name == "lab" && it.found.is_ok());
    match args.format {
        Answer::Human => crate::say(&in_words(&findings, lab)?)?,
        Answer::Json => {
            let capabilities = findings.iter().map(capability).collect();
            crate::say_as_it_is(&document(&Found { lab, capabilities })?)?;
        }
    }
    let refused = findings
        .iter()
        .any(|it| it.name == "cluster" && it.found.is_err());
    Ok(if lab && !refused {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(12)
    })
}

fn in_words(findings: &[Finding], lab: bool) -> Result<String, fmt::Error> {
    let mut text = String::new();
    for finding in findings {
        describe(&mut text, &finding.name, &finding.found)?;
    }
    let ending = if lab {
        "This machine runs the lab: chainbreak run scenarios/kube-proxy"
    } else {
        "This machine cannot run the lab until what is missing is there."
    };
    writeln!(text, "\n{ending}")?;
    Ok(text)
}

fn describe(text: &mut String, name: &str, found: &Result<(), String>) -> fmt::Result {
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

fn capability(finding: &Finding) -> Capability<'_> {
    let told = finding.found.as_ref().err();
    let (reason, hint) = told.map(|told| in_parts(told)).unzip();
    Capability {
        name: &finding.name,
        present: told.is_none(),
        reason,
        hint: hint.flatten(),
    }
}

/// Why something is missing, and what mends it: a survey tells it on the lines below, where it knows.
pub(crate) fn in_parts(reason: &str) -> (&str, Option<&str>) {
    match reason.split_once('\n') {
        Some((reason, hint)) => (reason, Some(hint)),
        None => (reason, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASON: &str = "`nginx -t`: not found\nsudo apt-get install nginx-light";

    #[test]
    fn what_is_missing_is_said_with_the_command_that_mends_it_on_a_line_of_its_own() {
        let mut text = String::new();
        describe(&mut text, "nginx", &Err(REASON.to_owned())).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "missing  nginx            `nginx -t`: not found");
        assert_eq!(lines[1].trim_start(), "sudo apt-get install nginx-light");
        let column = |line: &str, word: &str| line.find(word).unwrap();
        assert_eq!(column(lines[0], "`nginx"), column(lines[1], "sudo"));
    }

    #[test]
    fn a_document_has_the_command_apart_from_the_reason() {
        let told = |name: &str, found: Result<(), &str>| {
            let finding = Finding {
                name: name.to_owned(),
                found: found.map_err(str::to_owned),
            };
            serde_json::to_value(capability(&finding)).unwrap()
        };
        let nothing = serde_json::Value::Null;
        assert_eq!(
            told("nginx", Err(REASON)),
            serde_json::json!({
                "name": "nginx",
                "present": false,
                "reason": "`nginx -t`: not found",
                "hint": "sudo apt-get install nginx-light",
            })
        );
        assert_eq!(told("kind", Err("gone"))["reason"], "gone");
        assert_eq!(told("kind", Err("gone"))["hint"], nothing);
        let there = told("lab", Ok(()));
        assert_eq!(there["present"], true);
        assert_eq!(there["reason"], nothing);
    }
}
