//! What a case has of its nodes beside the cluster: kernel settings, and a third-party CNI's rules. Set back after it, where the cluster is
//! kept.

use chainbreak_engine::vpc_cni;
use chainbreak_model::case::{Case, CniSpec};
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

/// How all of it is set back: commands on nodes, the last one first.
#[derive(Debug, Default)]
pub(super) struct Fitting(Vec<(Node, Vec<String>)>);

impl Fitting {
    /// Makes the nodes what the case asks for.
    pub(super) async fn of(case: &Case, nodes: &Nodes) -> Result<Self, KindError> {
        let mut fitting = Self::default();
        for node in &nodes.0 {
            for (name, value) in &case.cluster.sysctls {
                fitting.set(node, name, value).await?;
            }
            if let Some(cni) = &case.cluster.cni {
                fitting.translate(node, cni).await?;
            }
        }
        Ok(fitting)
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
        run(node, &write(value)).await
    }

    /// As a start of the CNI's daemon does.
    async fn translate(&mut self, node: &Node, cni: &CniSpec) -> Result<(), KindError> {
        let network = node.run(&NETWORK).await?;
        let network = network.split_whitespace().next();
        let network = network.and_then(|it| it.parse::<IpNet>().ok());
        let pods = PODS.0.parse().ok();
        let inside: Vec<IpNet> = network.into_iter().chain(pods).collect();
        for rule in vpc_cni::rules(cni, &inside, node.address) {
            let command = |rule: Vec<String>| {
                let program = std::iter::once("iptables".to_owned());
                program.chain(rule).collect::<Vec<_>>()
            };
            self.0.push((node.clone(), command(inverse(&rule))));
            run(node, &command(rule)).await?;
        }
        Ok(())
    }

    /// Sets everything back. Every error.
    pub(super) async fn undo(&self) -> Vec<KindError> {
        let mut errors = Vec::new();
        for (node, argv) in self.0.iter().rev() {
            errors.extend(run(node, argv).await.err());
        }
        errors
    }
}

async fn run(node: &Node, argv: &[String]) -> Result<(), KindError> {
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    node.run(&argv).await.map(drop)
}

/// What takes a rule, or a chain, away again.
fn inverse(rule: &[String]) -> Vec<String> {
    let mut inverse = rule.to_vec();
    for at in 0..inverse.len() {
        match inverse[at].as_str() {
            "-N" => "-X".clone_into(&mut inverse[at]),
            "-A" => "-D".clone_into(&mut inverse[at]),
            // `-I CHAIN NUMBER RULE`.
            "-I" => {
                "-D".clone_into(&mut inverse[at]);
                inverse.remove(at + 2);
            }
            _ => continue,
        }
        break;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_a_rule_away_says_the_rule_without_its_place() {
        let inverse = |rule: &str| {
            let words: Vec<String> = rule.split(' ').map(str::to_owned).collect();
            inverse(&words).join(" ")
        };
        assert_eq!(inverse("-t nat -N C"), "-t nat -X C");
        assert_eq!(inverse("-t nat -A C -j SNAT"), "-t nat -D C -j SNAT");
        assert_eq!(
            inverse("-t nat -I C 1 -d 10.0.0.0/8 -j RETURN"),
            "-t nat -D C -d 10.0.0.0/8 -j RETURN"
        );
    }
}
