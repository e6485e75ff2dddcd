//! What is said of real agents.

use clap::{Args, Subcommand, ValueEnum};

/// Who plays what nobody chose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Players {
    /// A model
    #[default]
    Model,
    /// The real one, where it is here; else a model, which is said
    Real,
}

#[derive(Debug, Args)]
pub(crate) struct Agents {
    #[command(subcommand)]
    pub(crate) verb: Option<AgentsVerb>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsVerb {
    /// Build releases of a real kube-proxy, each once, and print their paths
    #[command(
        after_help = "Builds 1.28 and newer of upstream's Go modules, with the `go` that is there: three to five minutes of a machine \
                      with two cores the first time, less for the next ones. 1.20.2 is built of Debian's source. Programs are kept in \
                      $XDG_CACHE_HOME/chainbreak (~/.cache/chainbreak).\n\n\
                      Examples:\n  chainbreak agents build kube-proxy 1.34.2\n  \
                      chainbreak agents build kube-proxy 1.34      # its newest pinned patch\n  \
                      chainbreak agents build kube-proxy 1.28 1.36 1.20.2"
    )]
    Build {
        /// `kube-proxy`
        #[arg(value_name = "AGENT", value_parser = ["kube-proxy"])]
        agent: String,
        /// Releases, or minor versions, which mean the newest pinned patch
        #[arg(required = true, value_name = "VERSION")]
        versions: Vec<String>,
    },
    /// Unpack images of real agents, without Docker, each once, and print the paths of their root file systems
    #[command(
        after_help = "The image for this machine is asked for at its registry, as nobody or as `docker login` left it. Its digests are \
                      checked, and its layers unpacked into $XDG_CACHE_HOME/chainbreak (~/.cache/chainbreak); a layer that would write \
                      elsewhere, or that makes devices, is refused. What is here already under its digest is not downloaded again. \
                      CHAINBREAK_MIRRORS names who is asked in place of a registry.\n\n\
                      Examples:\n  chainbreak agents pull registry.k8s.io/kube-proxy:v1.34.2\n  \
                      chainbreak agents pull quay.io/calico/node:v3.32.1\n  \
                      chainbreak agents pull registry.k8s.io/kube-proxy@sha256:…      # exactly that one\n  \
                      CHAINBREAK_MIRRORS=registry.k8s.io=http://127.0.0.1:5000,quay.io=https://mirror.example/quay \\\n    \
                      chainbreak agents pull registry.k8s.io/kube-proxy:v1.34.2\n  \
                      chainbreak run scenarios --agent kube-proxy@1.34=image --agent felix=image:quay.io/calico/node:v3.32.1"
    )]
    #[cfg_attr(not(feature = "images"), command(hide = true))]
    Pull {
        /// Their names, with a tag or a digest; an agent's program has to be in each
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
}
