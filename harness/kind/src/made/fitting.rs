//! What a case has of its nodes beside the cluster: kernel settings, and a third-party CNI's rules. Where the cluster is kept, settings are set
//! back after the case; rules are with all others ([`super::leftovers::scrub`]).

use chainbreak_engine::{shell::quoted, vpc_cni};
use chainbreak_model::case::{Case, CniSpec};
use futures::future::try_join_all;
use ipnet::IpNet;

use crate::{
    error::KindError,
    made::config::PODS,
    shared::nodes::{Node, Nodes},
};

/// The network that Docker gave the nodes: `172.18.0.0/16 dev eth0 …`.
const NETWORK: [&str; 8] = [
    "ip", "-4", "route", "show", "proto", "kernel", "dev", "eth0",
];

/// How settings are set back: commands on nodes, the last one first.
#[derive(Debug, Default)]
pub(super) struct Fitting(Vec<(Node, Vec<String>)>);

impl Fitting {
    /// Makes the nodes what the case asks for.
    pub(super) async fn of(case: &Case, nodes: &Nodes) -> Result<Self, KindError> {
        let fitted = nodes.0.iter().map(async |node| {
            let mut fitting = Self::default();
            for (name, value) in &case.cluster.sysctls {
                fitting.set(node, name, value).await?;
            }
            if let Some(cni) = &case.cluster.cni {
                Self::translate(node, cni).await?;
            }
            Ok(fitting.0)
        });
        let fitted = try_join_all(fitted).await?;
        Ok(Self(fitted.into_iter().flatten().collect()))
    }

    async fn set(&mut self, node: &Node, name: &str, value: &str) -> Result<(), KindError> {
        if !name.starts_with("net.") {
            return Err(KindError::Unable(format!(
                "{name} is the whole machine's on a cluster of containers, and not a node's"
            )));
        }
        let before = node.run(&["sysctl", "-n", name]).await?;
        let write =
            |value: &str| ["sysctl", "-q", "-w", &format!("{name}={value}")].map(str::to_owned);
        self.0.push((node.clone(), write(before.trim()).to_vec()));
        node.run(&write(value)).await.map(drop)
    }

    /// As a start of the CNI's daemon does.
    async fn translate(node: &Node, cni: &CniSpec) -> Result<(), KindError> {
        let network = node.run(&NETWORK).await?;
        let network = network.split_whitespace().next().unwrap_or_default();
        let inside = [network, PODS.0].map(str::parse::<IpNet>);
        let inside: Vec<IpNet> = inside
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| {
                KindError::Unable(format!(
                    "the network of {} cannot be read: {error}",
                    node.name
                ))
            })?;
        let mut cni = cni.clone();
        if !cni.vpc_cidrs.is_empty() {
            // A scenario's are about the lab's nodes; these are in the VPC, too, whatever their network is.
            cni.vpc_cidrs.extend(inside.first());
        }
        let rules = vpc_cni::rules(&cni, &inside, node.address).into_iter();
        let rules = rules.map(|rule| {
            let words = std::iter::once("iptables".to_owned()).chain(rule);
            let words: Vec<String> = words.map(|it| quoted(&it)).collect();
            words.join(" ")
        });
        // The last line that it prints is of the rule that failed.
        let script = std::iter::once("set -ex".to_owned()).chain(rules);
        let script = script.collect::<Vec<_>>().join("\n");
        node.run(&["sh", "-c", &script]).await.map(drop)
    }

    /// Sets them back. Every error.
    pub(super) async fn undo(&self) -> Vec<KindError> {
        let mut errors = Vec::new();
        for (node, argv) in self.0.iter().rev() {
            errors.extend(node.run(argv).await.err());
        }
        errors
    }
}
