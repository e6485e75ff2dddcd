//! Which cases of which scenarios, played by whom, and on what.

use std::path::PathBuf;

use chainbreak_model::plan::Shard;
use clap::{Args, ValueEnum};

use super::Players;

#[derive(Debug, Clone, Args)]
pub(crate) struct Paths {
    /// Scenario files, or folders to search for them
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    pub(crate) paths: Paths,
    /// Only this variant (may be given several times)
    #[arg(long = "variant", value_name = "NAME")]
    pub(crate) variants: Vec<String>,
    /// Who plays `kube-proxy` or `felix`: `model`, `build` (a real kube-proxy, built of upstream's modules on demand), `image` (the
    /// real one in the official image of the version, pulled on demand) or `image:NAME`, or the path of a binary or an unpacked root
    /// file system; `kube-proxy@1.34=build` for one version
    #[cfg_attr(
        not(feature = "images"),
        doc = "(`image` takes what this program was built without: make build)"
    )]
    #[arg(long = "agent", value_name = "NAME[@VERSION]=SOURCE")]
    pub(crate) agents: Vec<String>,
    /// Who plays agents that `--agent` and the scenario leave open: models, or for each version the real one that is here
    /// already, built rather than pulled (`chainbreak agents` lists them)
    #[arg(long = "agents", value_enum, default_value_t)]
    pub(crate) players: Players,
    /// Replace keys of the scenario's matrix, e.g. `kube-proxy=1.28,1.30..1.32 iptables=nft`
    #[arg(long, value_name = "KEY=A,B …")]
    pub(crate) matrix: Vec<String>,
    /// Leave cells of the matrix out, and say why: `kube-proxy>=1.31 calico<v3.28: not supported together`
    #[arg(long, value_name = "KEY>=V …: REASON")]
    pub(crate) exclude: Vec<String>,
    /// Only one part of the cases: `2/5` is the second of five that take about as long as each other
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    pub(crate) shard: Option<Shard>,
    /// Seed of everything random; 0 takes the scenario's
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
    /// What raises the clusters
    #[cfg_attr(
        feature = "clusters",
        arg(long, value_enum, default_value_t = BackendName::Lab)
    )]
    #[cfg_attr(
        not(feature = "clusters"),
        doc = "(only `lab`: real clusters take what this program was built without: make build)",
        arg(long, value_parser = backend, default_value = "lab")
    )]
    pub(crate) backend: BackendName,
    #[cfg(feature = "clusters")]
    #[command(flatten)]
    pub(crate) kind: Kind,
    #[cfg(feature = "clusters")]
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// Options of the backend cluster.
#[cfg(feature = "clusters")]
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of --backend cluster")]
pub(crate) struct Cluster {
    /// How the cluster is reached
    #[arg(long, value_name = "FILE", required_if_eq("backend", "cluster"))]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// What the pods on the nodes run, instead of the pinned image: it needs a shell and nsenter
    #[arg(long, value_name = "IMAGE")]
    pub(crate) node_image: Option<String>,
    /// Let cases change what concerns all of the cluster: its name, as the kubeconfig has it
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) allow_disruption: Option<String>,
}

/// Options of the backend kind.
#[cfg(feature = "clusters")]
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of --backend kind")]
pub(crate) struct Kind {
    /// Keep clusters for cases, and runs, that need the same one; `chainbreak clean` deletes them
    #[arg(long)]
    pub(crate) reuse: bool,
    /// Load pods' images into the nodes, as far as Docker has them or can pull them
    #[arg(long)]
    pub(crate) preload: bool,
    /// The node image, instead of the pinned one for the version
    #[arg(long = "kind-image", value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// What answers on hosts outside of the cluster, instead of the pinned nginx
    #[arg(long, value_name = "IMAGE")]
    pub(crate) nginx_image: Option<String>,
    /// How Calico is installed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) calico_install: CalicoInstall,
    /// Calico's manifest, or its operator's, instead of the pinned one for the version
    #[arg(long, value_name = "FILE")]
    pub(crate) calico_manifest: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// Network namespaces on this machine's kernel
    Lab,
    /// Real clusters in Docker containers, made by kind
    #[cfg(feature = "clusters")]
    Kind,
    /// A cluster that is there: namespaces in it, and a privileged pod on each node
    #[cfg(feature = "clusters")]
    Cluster,
}

/// The backend of that name, in a program that has but one.
#[cfg(not(feature = "clusters"))]
pub(super) fn backend(name: &str) -> Result<BackendName, String> {
    match name {
        "lab" => Ok(BackendName::Lab),
        "kind" | "cluster" => Err(crate::without_features::CLUSTERS.to_owned()),
        _ => Err("there is lab".to_owned()),
    }
}

#[cfg(feature = "clusters")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CalicoInstall {
    /// By its manifests/calico.yaml
    #[default]
    Manifest,
    /// By the tigera operator
    Operator,
}
