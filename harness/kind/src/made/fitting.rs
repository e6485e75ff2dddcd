//! What a case has of its nodes beside the cluster: kernel settings, and a third-party CNI's rules. Where the cluster is kept, settings are set
//! back after the case; rules are with all others ([`super::leftovers::scrub`]).

use std::collections::BTreeMap;

use chainbreak_engine::{shell::quoted, vpc_cni};
use chainbreak_model::case::{Case, CniSpec};
use futures::future::{join_all, try_join_all};
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

/// Makes settings of a node, `NAME=VALUE` each, and prints in the same words what they were.
const SET: &str = r#"for setting; do
        name=${setting%%=*}
        before=$(sysctl -n "$name") || exit 1
        echo "$name=$before"
    done
    sysctl -q -w "$@""#;

/// Whether kube-proxy reads or writes it when it starts, in one mode or another (1.20 to 1.36).
pub(super) fn is_of_kube_proxy(setting: &str) -> bool {
    const PARTS: [&str; 7] = [
        ".nf_conntrack_",
        ".route_localnet",
        ".ip_forward",
        ".forwarding",
        ".arp_",
        ".vs.",
        ".bridge-nf-call-",
    ];
    PARTS.iter().any(|part| setting.contains(part))
}

/// How settings are set back: a command for each node.
#[derive(Debug, Default)]
pub(super) struct Fitting(Vec<(Node, Vec<String>)>);

impl Fitting {
    /// Makes the nodes what the case asks for.
    pub(super) async fn of(case: &Case, nodes: &Nodes) -> Result<Self, KindError> {
        let fitted = nodes.0.iter().map(async |node| {
            let back = Self::set(node, &case.cluster.sysctls).await?;
            if let Some(cni) = &case.cluster.cni {
                Self::translate(node, cni).await?;
            }
            Ok(back.map(|back| (node.clone(), back)))
        });
        let fitted = try_join_all(fitted).await?;
        Ok(Self(fitted.into_iter().flatten().collect()))
    }

    /// Makes settings of a node. What sets them back, where there are any.
    async fn set(
        node: &Node,
        settings: &BTreeMap<String, String>,
    ) -> Result<Option<Vec<String>>, KindError> {
        if settings.is_empty() {
            return Ok(None);
        }
        if let Some(name) = settings.keys().find(|name| !name.starts_with("net.")) {
            return Err(KindError::Unable(format!(
                "{name} is the whole machine's on a cluster of containers, and not a node's"
            )));
        }
        let written = settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let script = ["sh", "-c", SET, "sh"].map(str::to_owned).into_iter();
        let argv: Vec<String> = script.chain(written).collect();
        let before = node.run(&argv).await?;
        // The last one first: some write others.
        let back = ["sysctl", "-q", "-w"].into_iter();
        let back = back.chain(before.lines().rev());
        Ok(Some(back.map(str::to_owned).collect()))
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

    /// Sets them back, on all nodes at a time. Every error.
    pub(super) async fn undo(&self) -> Vec<KindError> {
        let undone = self.0.iter().map(|(node, argv)| node.run(argv));
        let undone = join_all(undone).await.into_iter();
        undone.filter_map(Result::err).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fake_programs;

    #[test]
    fn kube_proxy_begins_anew_for_the_settings_that_it_knows_alone() {
        for (setting, is_its) in [
            ("net.netfilter.nf_conntrack_tcp_be_liberal", true),
            ("net.ipv4.conf.all.route_localnet", true),
            ("net.ipv4.conf.all.forwarding", true),
            ("net.ipv4.vs.conntrack", true),
            ("net.ipv4.conf.all.rp_filter", false),
            ("net.ipv4.ip_local_port_range", false),
        ] {
            assert_eq!(is_of_kube_proxy(setting), is_its, "{setting}");
        }
    }

    /// A setting is a file with its value.
    const SYSCTL: &str = r#"#!/bin/sh
        cd "${0%/*}"
        case $1 in
        -n) cat "$2";;
        -q) shift 2; for it; do echo "${it#*=}" > "${it%%=*}"; echo "${it%%=*}" >> written; done;;
        esac
    "#;

    #[tokio::test]
    async fn settings_of_a_node_are_made_and_set_back_to_what_each_was() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fake_programs::put(folder.path(), "sysctl", SYSCTL);
        let path = format!("PATH={}", fake_programs::path(folder.path()));
        let node = Node::entered_by(&["env", &path]);
        let (ports, filter) = (
            "net.ipv4.ip_local_port_range",
            "net.ipv4.conf.all.rp_filter",
        );
        fs::write(at(ports), "32768\t60999\n").unwrap();
        fs::write(at(filter), "1\n").unwrap();
        let is = |name: &str| fs::read_to_string(at(name)).unwrap();
        let settings = [(ports, "1024 2048"), (filter, "2")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let back = Fitting::set(&node, &settings.into()).await.unwrap();
        let fitting = Fitting(vec![(node.clone(), back.unwrap())]);
        assert_eq!(
            (is(ports), is(filter)),
            ("1024 2048\n".to_owned(), "2\n".to_owned())
        );
        fs::remove_file(at("written")).unwrap();
        assert!(fitting.undo().await.is_empty());
        // A setting may write others, as that of all interfaces does: the last one first.
        assert_eq!(is("written"), format!("{ports}\n{filter}\n"));
        assert_eq!(
            (is(ports), is(filter)),
            ("32768\t60999\n".to_owned(), "1\n".to_owned())
        );
        let of_the_machine = [("kernel.panic".to_owned(), "1".to_owned())];
        let refused = Fitting::set(&node, &of_the_machine.into())
            .await
            .unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("kernel.panic is the whole machine's")
        );
    }
}
