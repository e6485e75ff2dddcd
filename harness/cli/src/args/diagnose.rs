//! What `chainbreak diagnose` is asked.

use std::{path::PathBuf, time::Duration};

use chainbreak_diagnose::{Fate, Observed, Whose};
use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser},
};

use super::{Answer, explain::moment, selection::SCENARIOS};

/// What stands below its help.
pub(super) const HELP: &str = "Examples:\n  \
    chainbreak collect | ssh root@node-1 sh -s -- - > node-1.txt && chainbreak diagnose node-1.txt\n  \
    kubectl get svc,endpointslices,daemonsets,pods -A -o yaml > objects.yaml; kubectl get felixconfigurations,ippools -o yaml > calico.yaml\n  \
    kubectl logs -n kube-system kube-proxy-abcde > kube-proxy.log\n  \
    chainbreak diagnose node-1.txt objects.yaml kube-proxy.log\n  \
    chainbreak diagnose node-1.txt --seen lost --from outside\n  \
    chainbreak diagnose --kubeconfig ~/.kube/config --node ip-10-0-0-1\n  \
    chainbreak diagnose support-bundle/ --format json | jq -r '.findings[] | select(.weight == \"breaks\") | .what'\n  \
    chainbreak diagnose reports/out/latest --case 'calico-bpf-cleanup-fights-kube-proxy/api-moves[iptables=legacy]'\n\n\
    It says what does not fit together in what was attached, and nothing of what was not.\n\n\
    Exit codes: 0 diagnosed, whatever was found · 2 nothing that is known, or no such run or case";

#[derive(Debug, Args)]
pub(crate) struct Diagnose {
    /// Files and folders with what a node prints, its agents' logs, and Kubernetes objects, recognised by what is in them; archives that
    /// `collect`'s script or `calicoctl cluster diags` makes; or a recorded run
    #[arg(value_name = "DIR|FILE", required_unless_present = "kubeconfig")]
    pub(crate) what: Vec<PathBuf>,
    /// The case of a run, by its id; not needed of a run with one case
    #[arg(long, value_name = "CASE")]
    pub(crate) case: Option<String>,
    /// The moment in the case, in its seconds as report.txt has them [default: the end of the judged time]
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) at: Option<Duration>,
    /// The node of the case [default: its first], or of several that are attached in folders nodes/NODE [default: all of them]
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// A running cluster, whose node NODE is asked by kubectl in a pod of an agent, or another that is privileged and on the node's network, beside
    /// the API and the agents' logs; nothing is changed there
    #[arg(long, value_name = "FILE", requires = "node", conflicts_with_all = ["what", "case", "at"])]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// What becomes of requests, which no dump has: only incidents in which that is seen are named, also those that are nothing but settings
    #[arg(long, value_name = "WHAT", value_parser = one_of(&Fate::ALL))]
    pub(crate) seen: Option<Fate>,
    /// Whose requests these are: only incidents in which theirs go wrong are named
    #[arg(long, value_name = "WHOSE", value_parser = one_of(&Whose::ALL))]
    pub(crate) from: Option<Whose>,
    /// Scenarios that are named where they show what is found, or where the node is like their incident: a file or a folder [default: scenarios, where that is here]
    #[arg(long, value_name = "PATH")]
    pub(crate) scenarios: Option<PathBuf>,
    /// Writes a scenario of what was found: this cluster's Services, releases and settings as far as they were attached, and the steps that
    /// bring about what is wrong. `chainbreak run FILE` confirms or refutes it
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Answer::Human)]
    pub(crate) format: Answer,
}

/// One of these, by its word.
fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [(&'static str, T, &'static str)],
) -> ValueParser {
    let words = all
        .iter()
        .map(|(word, _, what)| PossibleValue::new(*word).help(*what));
    let known = |written: String| {
        let mut all = all.iter();
        let found = all.find(|(word, ..)| *word == written);
        found.expect("it is one of the possible values").1
    };
    PossibleValuesParser::new(words).map(known).into()
}

impl Diagnose {
    /// What somebody sees of requests.
    pub(crate) fn observed(&self) -> Observed {
        Observed {
            fate: self.seen,
            whose: self.from,
        }
    }

    /// Where scenarios are, if anywhere.
    pub(crate) fn catalogue(&self) -> Option<PathBuf> {
        let usual = || Some(PathBuf::from(SCENARIOS)).filter(|it| it.exists());
        self.scenarios.clone().or_else(usual)
    }
}
