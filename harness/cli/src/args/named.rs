//! Which cases a person names: by files, by ids, by what their ids match, by how they came out before.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use chainbreak_model::{nearest_file, scenario::Scenario};
use clap::Args;
use regex::Regex;

use super::{LATEST, selection::SCENARIOS};
use crate::cases::unknown;

#[derive(Debug, Clone, Args)]
pub(crate) struct Named {
    /// Scenario files, folders to search for them, a bundle, and cases by their ids as `chainbreak list` prints them, in which `*` stands for
    /// anything [default: scenarios]
    #[arg(value_name = "PATH|CASE")]
    what: Vec<PathBuf>,
    /// Only cases whose id this regular expression matches somewhere
    #[arg(short = 'k', long, value_name = "REGEX", value_parser = Regex::new)]
    matching: Option<Regex>,
    /// Only cases of scenarios with this label; of several, with any of them
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// Only cases that did not come out as expected in that run, or had not begun when it was over
    #[arg(long, value_name = "RUN", num_args = 0..=1, require_equals = true, default_missing_value = LATEST)]
    pub(crate) failed: Option<PathBuf>,
}

impl Named {
    /// All that was named, as it is.
    pub(crate) fn all(&self) -> &[PathBuf] {
        &self.what
    }

    /// By what cases are chosen beside what is named, each as `-k` or `--label` takes it.
    pub(crate) fn chosen_by(&self) -> (Option<&Regex>, &[String]) {
        (self.matching.as_ref(), &self.labels)
    }

    /// Why nothing can be searched for where nobody has said where.
    pub(crate) fn lost(&self) -> Option<String> {
        if self.what.iter().any(|it| is_path(it)) || Path::new(SCENARIOS).exists() {
            return None;
        }
        let names: Vec<String> = self
            .what
            .iter()
            .map(|it| it.display().to_string())
            .collect();
        let named = match names.as_slice() {
            [] => "no file is named".to_owned(),
            names => format!("no such file: {}", names.join(", ")),
        };
        let like = nearest_file(Path::new(SCENARIOS));
        let like = like.map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
        Some(format!(
            "{named}, and the folder {SCENARIOS}, in which cases are looked for then, is not here{like}"
        ))
    }

    /// Where scenarios are searched for.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let paths: Vec<PathBuf> = self.what.iter().filter(|it| is_path(it)).cloned().collect();
        if paths.is_empty() {
            vec![PathBuf::from(SCENARIOS)]
        } else {
            paths
        }
    }

    /// What names cases, as it is written, and what it matches.
    pub(crate) fn cases(&self) -> Vec<(String, Regex)> {
        let cases = self.what.iter().filter(|it| !is_path(it));
        patterns(cases.map(|it| it.to_string_lossy().into_owned()))
    }

    /// Whether a person names cases by labels.
    pub(crate) fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    /// The scenarios among which cases are chosen. A label that none has is a mistake.
    pub(crate) fn labelled(&self, mut scenarios: Vec<Scenario>) -> Result<Vec<Scenario>, String> {
        for label in &self.labels {
            let all = || {
                scenarios
                    .iter()
                    .flat_map(|it| &it.labels)
                    .map(String::as_str)
            };
            if !all().any(|it| it == label) {
                let known: BTreeSet<&str> = all().collect();
                let words = format!("no scenario has the label {label:?}");
                return Err(unknown(&words, label, known));
            }
        }
        let wanted = |label: &String| self.labels.contains(label);
        scenarios.retain(|it| self.labels.is_empty() || it.labels.iter().any(wanted));
        Ok(scenarios)
    }

    /// Whether what an id has to match somewhere is there.
    pub(crate) fn matches(&self, id: &str) -> bool {
        self.matching.as_ref().is_none_or(|it| it.is_match(id))
    }
}

/// Names of cases as they are written, and what each matches.
pub(crate) fn patterns(texts: impl IntoIterator<Item = String>) -> Vec<(String, Regex)> {
    let with_regex = texts.into_iter().map(|text| {
        let regex = anything(&text);
        (text, regex)
    });
    with_regex.collect()
}

/// What is there is a file or a folder; what is not, and is written like one, was meant as one.
pub(crate) fn is_path(named: &Path) -> bool {
    let is_yaml = named
        .extension()
        .is_some_and(|it| it == "yaml" || it == "yml");
    is_yaml || named.exists()
}

/// What a pattern matches: all of an id, or of what is before its cell or its repetition's number.
fn anything(pattern: &str) -> Regex {
    let literal = regex::escape(pattern).replace("\\*", ".*");
    Regex::new(&format!(r"^{literal}(\[.*\])?(#\d+)?$")).expect("what is escaped is valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_named_by_its_id_by_its_variant_in_all_cells_or_by_a_pattern() {
        let names = |pattern: &str, id: &str| anything(pattern).is_match(id);
        let id = "silent/bpf-off[iptables=nft]";
        for pattern in [
            id,
            "silent/bpf-off",
            "silent/*",
            "*nft]",
            "*/bpf-*[iptables=*",
            "*",
        ] {
            assert!(names(pattern, id), "{pattern}");
        }
        for pattern in [
            "silent",
            "bpf-off",
            "silent/bpf-of",
            "silent/bpf-off[iptables=n?t]",
        ] {
            assert!(!names(pattern, id), "{pattern}");
        }
    }

    #[test]
    fn what_is_there_or_written_as_a_file_is_a_path_and_all_else_a_case() {
        let wanted = Named {
            what: ["src", "src/nowhere.yaml", "silent/bpf-off"]
                .map(PathBuf::from)
                .to_vec(),
            matching: None,
            labels: Vec::new(),
            failed: None,
        };
        assert_eq!(
            wanted.paths(),
            ["src", "src/nowhere.yaml"].map(PathBuf::from)
        );
        let cases: Vec<String> = wanted.cases().into_iter().map(|(text, _)| text).collect();
        assert_eq!(cases, ["silent/bpf-off"]);
    }
}
