//! Which cases of which scenarios, played by whom, and on what.

use chainbreak_model::{matrix::MatrixKey, plan::Shard};
#[cfg(feature = "clusters")]
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, builder::ValueParser};

use super::{Players, given::OfBackends, named::Named};
use crate::registry::{self, Registered};

/// Where scenarios are when nobody says where.
pub(crate) const SCENARIOS: &str = "scenarios";

#[derive(Debug, Clone, Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    pub(crate) named: Named,
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
    /// Only cases that this key of the matrix varies (may be given several times: that each of them does)
    #[arg(long, value_name = "KEY", value_parser = MatrixKey::named)]
    pub(crate) varying: Vec<MatrixKey>,
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
        not(feature = "clusters"),
        doc = "(only `lab`: real clusters take what this program was built without: make build)"
    )]
    #[arg(long, value_parser = backend(), default_value = "lab")]
    pub(crate) backend: Registered,
    /// Beside what the profile `default` of `chainbreak.toml` in the current folder passes, what this one does
    #[cfg_attr(
        not(feature = "profiles"),
        doc = "(takes what this program was built without: make build)"
    )]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    #[command(flatten)]
    pub(crate) of_backends: OfBackends,
}

/// The backend of that name.
#[cfg(feature = "clusters")]
pub(super) fn backend() -> ValueParser {
    let names = registry::all().map(|it| PossibleValue::new(it.name()).help(it.about()));
    let known = |name: String| registry::named(&name).expect("it is one of the possible values");
    PossibleValuesParser::new(names).map(known).into()
}

/// The backend of that name, in a program that has but one.
#[cfg(not(feature = "clusters"))]
pub(super) fn backend() -> ValueParser {
    ValueParser::new(|name: &str| match (registry::named(name), name) {
        (Some(backend), _) => Ok(backend),
        (None, "kind" | "cluster") => Err(crate::without_features::CLUSTERS),
        (None, _) => Err("there is lab"),
    })
}
