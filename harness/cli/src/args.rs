//! The command line: verbs, their options, and help that teaches.

mod agents;
mod answers;
mod bundle;
#[cfg(feature = "clusters")]
pub(crate) mod cluster;
mod collect;
pub(crate) mod course;
mod diagnose;
mod explain;
mod given;
pub(crate) mod matrix;
pub(crate) mod named;
mod new;
pub(crate) mod selection;
pub(crate) mod settings;
mod shell;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

use self::{
    course::{Keeping, Repetition, Told},
    given::OfCleaning,
    selection::Selection,
};
use crate::registry::Registered;

pub(crate) use agents::{Agents, AgentsVerb, Players};
#[cfg(feature = "clusters")]
pub(crate) use answers::Versions;
pub(crate) use answers::{Answer, Check, Doctor, Listing};
pub(crate) use bundle::Bundle;
pub(crate) use collect::Collect;
pub(crate) use diagnose::Diagnose;
pub(crate) use explain::Explain;
pub(crate) use new::New;
pub(crate) use shell::Shell;

/// The newest run, where none is named.
pub(crate) const LATEST: &str = "reports/out/latest";

/// Breaks Kubernetes service networking on purpose and proves the fix.
#[derive(Debug, Parser)]
#[command(
    name = "chainbreak",
    version,
    arg_required_else_help = true,
    after_help = "Begin with:\n  chainbreak doctor\n  chainbreak run scenarios/kube-proxy\n\n\
                  Exit codes: 0 as expected · 1 our bug · 2 usage or invalid scenario · \
                  10 not as expected · 11 inconclusive or not begun · 12 nothing ran"
)]
#[cfg_attr(
    not(feature = "clusters"),
    command(before_help = crate::without_features::CLUSTERS)
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Read scenarios and say every mistake, with file, line and a hint
    #[command(after_help = "Examples:\n  chainbreak check scenarios/\n  \
                            chainbreak check scenarios/ --format json | jq -r '.mistakes[] | [.file, .line, .message] | @tsv'")]
    Check(Check),
    /// Write a scenario to begin with: an incident and its fix, which hold as they stand
    #[command(
        after_help = "Examples:\n  chainbreak new dns-times-out-after-an-upgrade\n  \
                            chainbreak new dns-times-out-after-an-upgrade --dir chaos/"
    )]
    New(New),
    /// List the cases of scenarios by name
    #[command(after_help = "Examples:\n  chainbreak list scenarios/ | grep nft\n  \
                            chainbreak list --format json | jq -r '.[].file' | sort -u")]
    List(Listing),
    /// Say what would run on this machine, and what would be skipped and why
    #[command(
        after_help = "Examples:\n  chainbreak plan scenarios/kube-proxy --variant bpf-off\n  \
                      chainbreak plan --format json | jq -r '.skip[].missing[].capability' | sort | uniq -c"
    )]
    Plan(Listing),
    /// Run cases and judge them
    #[command(after_help = "Examples:\n  chainbreak run scenarios/kube-proxy\n  \
                            chainbreak run scenarios --variant api-moves --matrix iptables=legacy\n  \
                            chainbreak run scenarios --matrix kube-proxy=1.28,1.32 calico=v3.28.1,v3.32.1\n  \
                            chainbreak run 'calico-bpf-*/api-moves' --repeat 20\n  \
                            chainbreak run --failed --keep-failed\n  \
                            chainbreak run -k 'conntrack' --until-fails\n  \
                            chainbreak run outage.tgz\n  \
                            chainbreak run scenarios --agent kube-proxy=/usr/local/bin/kube-proxy\n  \
                            chainbreak run scenarios --jobs 1 --format jsonl > events.jsonl")]
    Run(Run),
    /// Run scenarios without each of their faults, and judge them by each opposite expectation: what then still
    /// comes out as expected proves nothing
    #[command(after_help = "Example:\n  chainbreak mutate scenarios/kube-proxy")]
    Mutate(Mutate),
    /// Say how jobs of a CI share the cells of a matrix: by each combination of what `--matrix` gives, in parts
    #[command(after_help = "Examples:\n  \
                            chainbreak matrix scenarios --matrix kube-proxy=1.28..1.33 calico=v3.28,v3.32\n  \
                            chainbreak matrix scenarios --matrix kube-proxy=1.28..1.33 --shards 2 --github >> $GITHUB_OUTPUT\n  \
                            chainbreak matrix scenarios --shards 8 --format jobs --image registry.example/chainbreak:0.1.0 > jobs.yaml\n\n\
                            Each job runs `chainbreak run` with its `args`; `chainbreak merge` makes one report of all.")]
    Matrix(matrix::Matrix),
    /// Make one run of several, as of the jobs of a CI, with its reports
    #[command(after_help = "Example:\n  chainbreak merge shard-1 shard-2 --out reports/out")]
    Merge(Merge),
    /// Pack a run, or some of its cases, into a file that somebody else can look into and play again, without secrets
    #[command(after_help = "Examples:\n  chainbreak bundle -o outage.tgz\n  \
                            chainbreak bundle reports/out/latest 'calico-bpf-*/api-moves*' -o outage.tgz\n  \
                            chainbreak run outage.tgz\n\n\
                            It holds the whole history, versions, objects and dumps, at most 20 MB, and what looks like a secret \
                            is taken out: look into it before you send it.")]
    Bundle(Bundle),
    /// Compare the verdicts of two backends on the cases that both can run, or those of two runs
    #[command(after_help = "Examples:\n  \
                            chainbreak parity scenarios --backends lab,kind --matrix kube-proxy=1.32\n  \
                            chainbreak parity reports/out/20261121-190000 reports/out/latest\n\n\
                            Exit codes: 0 all the same · 2 usage · 10 some differ · 11 some cannot be compared · \
                            12 no case is in both")]
    Parity(Parity),
    /// Write the reports of a run again, from its folder
    #[command(after_help = "Examples:\n  chainbreak report reports/out/latest\n  \
                            xdg-open \"$(chainbreak report --html)\"")]
    Report(Report),
    /// Rank the rules of a run that drop or reject by the packets that ended in them
    #[command(after_help = "Examples:\n  chainbreak drops\n  \
                            chainbreak drops reports/out/latest --node n1 --top 10\n  \
                            chainbreak drops --format jsonl | jq .drops.packets")]
    Drops(Drops),
    /// Say what becomes of a packet on a node, and which rule of whom decides it: at a moment of a recorded run, in a kept world, or from
    /// dumps
    #[command(after_help = explain::HELP)]
    Explain(Explain),
    /// Say who wrote a node's rules, and what does not fit together in what people attach of it: dumps, logs, objects; or of a node of a
    /// recorded run
    #[command(after_help = diagnose::HELP)]
    Diagnose(Diagnose),
    /// Print the script that makes the dumps for `explain --dump` and `diagnose` on a node
    #[command(after_help = "Examples:\n  chainbreak collect -o collect.sh\n  \
                      chainbreak collect | ssh root@node-1 sh -s -- - > node-1.txt\n  \
                      chainbreak explain 10.20.1.2 10.96.0.10:53 --protocol udp --dump node-1.txt\n\n\
                      On the node, as root: sh collect.sh [FOLDER]. It reads no Secret and changes nothing else.")]
    Collect(Collect),
    /// Say what this machine can run, and the command that mends what is missing
    #[command(after_help = "Examples:\n  chainbreak doctor\n  \
                            chainbreak doctor --format json | jq -r '.capabilities[] | select(.present | not) | .hint // empty'")]
    Doctor(Doctor),
    /// Look into a world kept by `run --keep`, where kubectl and calicoctl find its cluster; of several, the youngest
    #[command(after_help = shell::EXAMPLES)]
    Shell(Shell),
    /// Remove what interrupted runs left behind, end kept worlds, and name both
    #[command(
        after_help = "A world ends with its run, whatever ends the run: what is left to end is what \
                            `run --keep` keeps.\n\nExamples:\n  chainbreak clean\n  chainbreak clean 4711\n  \
                            chainbreak clean --kubeconfig ~/.kube/config"
    )]
    Clean(Clean),
    /// Print the JSON Schema of scenario files, for editors
    #[command(
        after_help = "Examples:\n  chainbreak schema > scenarios/scenario.schema.json\n  \
                            chainbreak schema --reference | less"
    )]
    Schema {
        /// Every field in Markdown instead, as at the end of docs/scenario-language.md
        #[arg(long)]
        reference: bool,
    },
    /// Print what completes the command line in a shell
    #[cfg(feature = "completions")]
    #[command(after_help = "Examples:\n  source <(chainbreak completions bash)\n  \
                            chainbreak completions zsh > ~/.zfunc/_chainbreak\n  \
                            chainbreak completions fish > ~/.config/fish/completions/chainbreak.fish")]
    Completions { shell: clap_complete::Shell },
    /// Print the manual page of this program, or of one of its commands
    #[cfg(feature = "completions")]
    #[command(
        after_help = "Examples:\n  chainbreak man | man -l -\n  chainbreak man run > chainbreak-run.1"
    )]
    Man {
        /// Such as `run`
        command: Option<String>,
    },
    /// What somebody's own cluster has to grant
    #[cfg(feature = "clusters")]
    Cluster(cluster::Cluster),
    /// What somebody's own cluster has to grant: not in this program
    #[cfg(not(feature = "clusters"))]
    #[command(hide = true)]
    Cluster {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _words: Vec<String>,
    },
    /// Print the versions and images that real clusters are made of
    #[cfg(feature = "clusters")]
    #[command(after_help = "Examples:\n  chainbreak versions\n  chainbreak versions --check")]
    Versions(Versions),
    /// What real clusters are made of: not in this program
    #[cfg(not(feature = "clusters"))]
    #[command(hide = true)]
    Versions,
    /// List the real agents that are here, and what `build` can make; `pull` unpacks images. Without one, a model stands in
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  chainbreak agents\n  chainbreak agents build kube-proxy 1.34.2\n  \
                      chainbreak agents build kube-proxy 1.28 1.31 1.36\n  chainbreak agents pull registry.k8s.io/kube-proxy:v1.34.2\n  \
                      chainbreak run scenarios --agent kube-proxy@1.34=build\n  chainbreak run scenarios --matrix kube-proxy=1.28,1.34 --agents real"
    )]
    #[cfg_attr(
        not(feature = "images"),
        command(before_help = crate::without_features::IMAGES)
    )]
    Agents(Agents),
    /// Felix's model on a node of a real cluster, started by a worker
    #[cfg(feature = "clusters")]
    #[command(hide = true)]
    Agent,
    /// Holds commands of a container back on a node of a real cluster, started by a worker
    #[cfg(feature = "clusters")]
    #[command(hide = true)]
    Held,
    /// The process of one case, started by `run`
    #[command(hide = true)]
    Worker {
        /// No world is made: the case's cluster is elsewhere
        #[arg(long)]
        outside: bool,
        /// Programs in its world may load eBPF programs
        #[arg(long)]
        allow_ebpf: bool,
        /// What its world shows of the machine, wherever it lies
        show: Vec<PathBuf>,
    },
    /// The traffic of one case, started by a worker
    #[command(hide = true)]
    Probe,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// How many cases run side by side, fewer while tasks wait for a processor all the time [default: seven for each core that this
    /// process may use, half as many with real agents, real clusters one]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
    #[command(flatten)]
    pub(crate) repetition: Repetition,
    /// Where the run's folder goes
    #[arg(long, default_value = "reports/out", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Let cases change settings of this machine that all worlds share (`host-sysctls`), one case at a time; each is
    /// set back after its case, by the next start or by `clean` if this one is killed
    #[arg(long)]
    pub(crate) allow_host_changes: bool,
    /// Let worlds of root load eBPF programs for their own networks and cgroups, by BPF tokens (Linux 6.9 and later)
    #[arg(long)]
    pub(crate) allow_ebpf: bool,
    #[command(flatten)]
    pub(crate) keeping: Keeping,
    /// How long a world may take until it is ready, from nothing [default: 60s, real clusters 15m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ready_within: Option<Duration>,
    /// A skip for want of these capabilities is a failure
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub(crate) require: Vec<String>,
    #[command(flatten)]
    pub(crate) told: Told,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Mutate {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// How many cases run side by side [default: seven for each core that this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
    /// How long a world may take until it is ready, from nothing [default: 60s, real clusters 15m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ready_within: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Parity {
    /// Scenarios to run on `--backends`; without that, two runs: their folders, or their run.jsonl
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// The two backends, the first one first
    #[arg(long, value_parser = selection::backend(), value_delimiter = ',', value_name = "A,B")]
    pub(crate) backends: Vec<Registered>,
    /// How many cases run side by side [default: seven for each core that this process may use, real clusters one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
    /// Where the runs' folders go
    #[arg(long, default_value = "reports/out", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// How long a world may take until it is ready, from nothing [default: 60s, real clusters 15m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ready_within: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// The runs' folders, or their run.jsonl
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Where the folder of the whole goes
    #[arg(long, default_value = "reports/out", value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// A kept world, by the process that keeps it.
fn world(text: &str) -> Result<i32, String> {
    let number = text.parse().ok().filter(|it| *it > 0);
    number.ok_or_else(|| {
        "a world is a number: `chainbreak clean` names those that are kept".to_owned()
    })
}

/// A time as scenarios write them, and not nothing.
fn time(text: &str) -> Result<Duration, String> {
    chainbreak_model::parse_duration(text)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "a time is a number with its unit, as 90s or 1m30s".to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Progress, table and findings
    Human,
    /// A JSON value a line: the history, or what was asked for
    Jsonl,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The run's folder, or its run.jsonl
    #[arg(value_name = "RUN", default_value = LATEST)]
    pub(crate) run: PathBuf,
    /// Only the page, report.html, and print where it is
    #[arg(long)]
    pub(crate) html: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Drops {
    /// The run's folder, or its run.jsonl
    #[arg(value_name = "RUN", default_value = LATEST)]
    pub(crate) run: PathBuf,
    /// Only the first rules of each case
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Only this node's rules
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Clean {
    /// Kept worlds to end, by the process that `chainbreak clean` names
    #[arg(value_name = "WORLD", value_parser = world)]
    pub(crate) worlds: Vec<i32>,
    /// Where the folders of runs are
    #[arg(long, default_value = "reports/out", value_name = "DIR")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) of_backends: OfCleaning,
}

#[cfg(all(test, not(feature = "clusters")))]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_real_clusters_says_so_of_every_wish_for_one() {
        for wish in [
            "chainbreak run scenarios --backend kind",
            "chainbreak plan scenarios --backend cluster",
            "chainbreak parity scenarios --backends lab,kind",
        ] {
            let refused = Cli::try_parse_from(wish.split(' ')).unwrap_err();
            assert_eq!(refused.exit_code(), 2, "{wish}");
            let said = refused.to_string();
            assert!(
                said.contains(crate::without_features::CLUSTERS),
                "{wish}: {said}"
            );
        }
        Cli::try_parse_from(["chainbreak", "run", "scenarios"]).unwrap();
    }
}
