//! What is known of each agent, whoever plays it and wherever: a module for each, and its line in [`AgentName`]. Code that holds for
//! every agent asks here. What one has and others have not (kube-proxy's mode, Felix's configuration) is in its own type.

mod felix;
mod kube_proxy;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::case::{AgentSource, ClusterSpec};

/// Where images keep programs, and where they are looked for in one. (kube-proxy's has it in `/usr/local/bin`, calico/node's in `/usr/bin` or,
/// in older ones, `/bin`.)
pub const DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

macro_rules! agents {
    ($($(#[$doc:meta])* $name:ident = $module:ident),+ $(,)?) => {
        /// A node agent: a process that programs the dataplane.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "kebab-case")]
        pub enum AgentName {
            $($(#[$doc])* $name,)+
        }

        const COUNT: usize = [$(AgentName::$name),+].len();

        impl AgentName {
            /// All of them, in the order in which they start and are reported.
            pub const ALL: [Self; COUNT] = [$(Self::$name),+];

            /// Each by the word that scenarios have for it.
            pub(crate) const WORDS: [(&'static str, Self); COUNT] =
                [$(($module::AGENT.word, Self::$name)),+];

            /// What is known of it.
            pub fn kind(self) -> &'static AgentKind {
                match self {
                    $(Self::$name => &$module::AGENT,)+
                }
            }
        }
    };
}

agents! {
    /// kube-proxy.
    KubeProxy = kube_proxy,
    /// Calico's Felix.
    Felix = felix,
}

impl AgentName {
    /// What its version is the version of.
    pub fn product(self) -> &'static str {
        self.kind().product
    }

    /// As written in scenarios and reports.
    pub fn as_str(self) -> &'static str {
        self.kind().word
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is the same of an agent in every case, in words that hold for all its versions.
#[derive(Debug)]
pub struct AgentKind {
    /// As written in scenarios and reports.
    pub word: &'static str,
    /// What its version is the version of.
    pub product: &'static str,
    /// Whether a scenario can have the version; if not, why not.
    pub(crate) check_version: fn(&str) -> Result<(), String>,
    /// Whether versions are written with a `v` in front.
    pub(crate) has_v: bool,
    /// Its programs, the usual one first; never empty.
    pub programs: &'static [Program],
    /// From where on an answer to [`Program::version_flag`] is the version; `None` for another program's.
    pub version_in: fn(&str) -> Option<&str>,
    /// Whether real ones can be built here.
    pub(crate) is_built: bool,
    /// Which of its lines belong together.
    pub log_format: LogFormat,
    /// What it logs when it has written for the first time, or tried to. A regular expression.
    pub first_sync: &'static str,
    /// A part of what it logs when it goes on as something else than it was told to be.
    pub is_another: Option<&'static str>,
    /// What shows that it has programmed a node.
    pub ready: Ready,
    /// iptables' tables in which it drops packets, beside `filter`.
    pub drops_in: &'static [&'static str],
    /// The status with which it asks to be started again.
    pub restart_status: Option<i32>,
    /// What runs it on real clusters.
    pub daemon_set: DaemonSet,
    /// Its version and source in a cluster; `None` where it does not run.
    pub(crate) spec: fn(&ClusterSpec) -> Option<AgentSpec<'_>>,
    /// The same, to be set.
    pub(crate) spec_mut: fn(&mut ClusterSpec) -> Option<AgentSpecMut<'_>>,
    /// Why nobody can play it in that version as the cluster has it otherwise; `None` when somebody can.
    pub(crate) unplayable: fn(&ClusterSpec, &str) -> Option<String>,
}

impl AgentKind {
    /// Whether a scenario can have the version.
    pub fn takes(&self, version: &str) -> bool {
        (self.check_version)(version).is_ok()
    }

    /// A version as scenarios write it.
    pub fn as_written<'a>(&self, version: &'a str) -> &'a str {
        if self.has_v {
            version
        } else {
            version.trim_start_matches('v')
        }
    }

    /// What asks a program for its version, by the program's name, behind which there may be a machine's or a version
    /// (`calico-felix-amd64`). Of another name it is the usual one.
    pub fn version_flag(&self, name: &str) -> &'static str {
        let mut programs = self.programs.iter();
        let named = programs.find(|program| name.starts_with(program.name));
        named.unwrap_or(&self.programs[0]).version_flag
    }
}

/// A program that is an agent.
#[derive(Debug)]
pub struct Program {
    /// Its file's name.
    pub name: &'static str,
    /// What asks it for its version.
    pub version_flag: &'static str,
}

/// Every program of every agent.
pub fn programs() -> impl Iterator<Item = (AgentName, &'static str)> {
    AgentName::ALL.into_iter().flat_map(|agent| {
        let programs = agent.kind().programs.iter();
        programs.map(move |program| (agent, program.name))
    })
}

/// Which lines of a log belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// kube-proxy's: an entry begins with a header (`E0610 07:32:16.910840       1 proxier.go:1564] …`). An
    /// error of several lines follows either as it is (`klog.Errorf`, up to 1.25) or, from `err=<` on,
    /// behind tabs, and ends with ` >` and perhaps more values (`klog.ErrorS`).
    Klog,
    /// Felix's: each line is one.
    Lines,
}

/// What shows that an agent has programmed a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// A match on each cluster IP that has endpoints, and a DNAT to each of them.
    Services,
    /// A jump to this chain of its own, in the nat table.
    Jump(&'static str),
}

/// A DaemonSet that runs an agent on real clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaemonSet {
    /// Its name in `kube-system`, and the value of its pods' label `k8s-app`.
    pub name: &'static str,
    /// The namespace where an operator makes it, for an agent that has one.
    pub operators_namespace: Option<&'static str>,
}

/// An agent as a cluster has it.
#[derive(Debug)]
pub(crate) struct AgentSpec<'a> {
    pub(crate) version: &'a str,
    pub(crate) source: &'a AgentSource,
}

/// An agent as a cluster has it, to be set.
#[derive(Debug)]
pub struct AgentSpecMut<'a> {
    /// Its version.
    pub version: &'a mut String,
    /// Who plays it.
    pub source: &'a mut AgentSource,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_written_the_same_in_scenarios_reports_and_histories() {
        for (word, agent) in AgentName::WORDS {
            assert_eq!(agent.as_str(), word);
            assert_eq!(serde_json::to_value(agent).unwrap(), word);
        }
    }

    #[test]
    fn a_program_is_asked_for_its_version_by_its_name() {
        let flag = |name| AgentName::Felix.kind().version_flag(name);
        assert_eq!(flag("calico-felix-amd64"), "--version");
        assert_eq!([flag("calico-node"), flag("node")], ["-v", "-v"]);
    }
}
