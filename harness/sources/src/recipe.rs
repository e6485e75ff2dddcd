//! What is compiled to a kube-proxy, and how: a program of ours, and a go.mod that follows the release's own. Pure.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::Release;

/// Counts up whenever something changes below that the key does not see.
const EDITION: &str = "1";
/// The module that has kube-proxy in it.
pub const KUBERNETES: &str = "k8s.io/kubernetes";
/// The staging module that knows the version that a program calls itself.
const COMPONENT_BASE: &str = "k8s.io/component-base";

/// kube-proxy's command, run as a program. The imports for their own sake register what the metrics of a released one have.
pub const PROGRAM: &str = r#"package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() {
	command := app.NewProxyCommand()
	os.Exit(cli.Run(command))
}
"#;

/// What the linker stamps in. A program without it calls itself v0.0.0.
pub fn linker_flags(release: Release) -> String {
    let stamp = |name: &str, value: &str| format!(" -X {COMPONENT_BASE}/version.{name}={value}");
    let stamps = [
        stamp("gitVersion", &release.tag()),
        stamp("gitMajor", "1"),
        stamp("gitMinor", &release.minor.to_string()),
    ];
    format!("-s -w{}", stamps.concat())
}

/// A short hash of all that decides what comes out, but for the release and the compiler.
pub fn key() -> String {
    let mut hash = Sha256::new();
    let sample = Release { minor: 0, patch: 0 };
    for part in [EDITION, PROGRAM, &linker_flags(sample)] {
        hash.update(part);
        hash.update([0]);
    }
    let mut text = HEXLOWER.encode(&hash.finalize());
    text.truncate(12);
    text
}

/// What a module's own go.mod says that the one of a program around it has to say again: a `replace` and a `godebug` hold only in
/// the main module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// The oldest Go that will do: `1.24.0`.
    pub go: String,
    godebug: Vec<String>,
    /// Modules that lie in the same repository, below `staging`, and are released with it.
    staging: Vec<String>,
    /// Other replacements, as they stand there. (1.27 and older have one for each module.)
    replace: Vec<String>,
}

impl Upstream {
    /// Reads a go.mod. `None` where it names no Go or no staging module, and is thus none of Kubernetes.
    pub fn read(text: &str) -> Option<Self> {
        let mut upstream = Self {
            go: String::new(),
            godebug: Vec::new(),
            staging: Vec::new(),
            replace: Vec::new(),
        };
        for (verb, rest) in directives(text) {
            match verb {
                "go" => rest.clone_into(&mut upstream.go),
                "godebug" => upstream.godebug.push(rest.to_owned()),
                "replace" => upstream.replaced(rest),
                _ => {}
            }
        }
        let complete = !upstream.go.is_empty() && !upstream.staging.is_empty();
        complete.then_some(upstream)
    }

    fn replaced(&mut self, rest: &str) {
        let Some((module, by)) = rest.split_once("=>") else {
            return;
        };
        let module = module.split_whitespace().next().unwrap_or_default();
        if by.contains("staging/src/") {
            self.staging.push(module.to_owned());
        } else if !by.trim().starts_with('.') {
            self.replace.push(rest.to_owned());
        }
    }

    /// The go.mod of [`PROGRAM`] for that release.
    pub fn go_mod(&self, release: Release) -> String {
        let (tag, staging) = (release.tag(), release.staging());
        let godebug = self.godebug.iter().map(|it| format!("\ngodebug {it}\n"));
        let own = self.staging.iter();
        let own = own.map(|module| format!("\t{module} => {module} {staging}\n"));
        let other = self.replace.iter().map(|it| format!("\t{it}\n"));
        format!(
            "module chainbreak.invalid/kube-proxy\n\ngo {}\n{}\n\
             require (\n\t{KUBERNETES} {tag}\n\t{COMPONENT_BASE} {staging}\n)\n\n\
             replace (\n{}{})\n",
            self.go,
            godebug.collect::<String>(),
            own.collect::<String>(),
            other.collect::<String>(),
        )
    }
}

/// A go.mod's verbs, each with what one line of it says, whether in a block or not. Comments are left out.
fn directives(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut block = None;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        match (block, line) {
            (_, "") => {}
            (Some(_), ")") => block = None,
            (Some(verb), _) => found.push((verb, line)),
            (None, _) => {
                let Some((verb, rest)) = line.split_once(char::is_whitespace) else {
                    continue;
                };
                match rest.trim() {
                    "(" => block = Some(verb),
                    rest => found.push((verb, rest)),
                }
            }
        }
    }
    found
}

/// Whether a Go of that version (`go1.26.8`) will do for a go.mod that asks for another one (`1.24.0`).
pub fn is_new_enough(have: &str, asked: &str) -> bool {
    let numbers = |text: &str| {
        let text = text.trim_start_matches("go");
        let end = text.find(|c: char| c != '.' && !c.is_ascii_digit());
        let text = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
        let mut numbers: Vec<u32> = text.split('.').map_while(|it| it.parse().ok()).collect();
        numbers.resize(3, 0);
        numbers
    };
    numbers(have) >= numbers(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPSTREAM: &str = "// This is a generated file.\n\nmodule k8s.io/kubernetes\n\ngo 1.24.0\n\n\
        godebug default=go1.24\ngodebug (\n\twinsymlink=0\n)\n\nrequire (\n\tk8s.io/api v0.0.0 // indirect\n)\n\n\
        replace (\n\texample.com/x => example.com/x v1.2.3\n\tk8s.io/api => ./staging/src/k8s.io/api\n\
        \tk8s.io/kms => ./staging/src/k8s.io/kms\n)\n\nreplace k8s.io/cli => ./staging/src/k8s.io/cli\n";

    #[test]
    fn the_go_mod_repeats_what_holds_in_a_main_module_only() {
        let upstream = Upstream::read(UPSTREAM).unwrap();
        let release = "1.34.2".parse().unwrap();
        insta::assert_snapshot!(upstream.go_mod(release), @r"
        module chainbreak.invalid/kube-proxy

        go 1.24.0

        godebug default=go1.24

        godebug winsymlink=0

        require (
        	k8s.io/kubernetes v1.34.2
        	k8s.io/component-base v0.34.2
        )

        replace (
        	k8s.io/api => k8s.io/api v0.34.2
        	k8s.io/kms => k8s.io/kms v0.34.2
        	k8s.io/cli => k8s.io/cli v0.34.2
        	example.com/x => example.com/x v1.2.3
        )
        ");
    }

    #[test]
    fn what_is_no_go_mod_of_kubernetes_is_none() {
        assert_eq!(Upstream::read("module x\n\ngo 1.24\n"), None);
        assert_eq!(Upstream::read("<html>not found</html>"), None);
    }

    #[test]
    fn a_program_is_stamped_with_its_release() {
        assert_eq!(
            linker_flags("1.34.2".parse().unwrap()),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.2 \
             -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
        );
    }

    #[test]
    fn go_is_new_enough_by_its_numbers_and_not_by_its_letters() {
        for (have, asked) in [
            ("go1.26.8", "1.24.0"),
            ("go1.24.0", "1.24.0"),
            ("go1.24", "1.24.0"),
            ("go1.100.1", "1.26.0"),
            ("go1.26.8 X:nodwarf5", "1.26"),
            ("go1.22rc1", "1.21"),
        ] {
            assert!(is_new_enough(have, asked), "{have} {asked}");
        }
        for (have, asked) in [("go1.19.8", "1.20"), ("go1.25.9", "1.26.0"), ("", "1.20")] {
            assert!(!is_new_enough(have, asked), "{have} {asked}");
        }
    }
}
