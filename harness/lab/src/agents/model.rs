//! One life of a model: the core, driven on the thread of its node.

use std::{net::IpAddr, rc::Rc};

use chainbreak_agents::{
    driver::{self, header},
    felix, kube_proxy,
    step::LogLine,
};
use chainbreak_engine::{
    log::EventLog,
    supervisor::{Death, Kind},
};
use chainbreak_model::{
    case::{CalicoSpec, ClusterSpec, KubeProxySpec, Programs, ProxyMode},
    names::AgentName,
};
use ipnet::IpNet;
use jiff::Timestamp;

use super::{
    absent,
    lives::Life,
    pausable::run_pausable,
    proxy_config::{Said, own_addresses},
    settings::interface_prefix,
    way,
};
use crate::{
    addresses::block,
    api,
    error::LabError,
    recorder::Recorder,
    wiring,
    world::{Node, World},
};

/// Distance of two nodes' seeds, so that chance does not run in step on all of them.
const STRIDE: u64 = 7919;

fn version<V: std::str::FromStr>(agent: AgentName, text: &str) -> Result<V, LabError>
where
    V::Err: std::fmt::Display,
{
    text.parse().map_err(|error| LabError::Unable {
        what: format!("{agent}'s version {text}: {error}"),
    })
}

/// An agent's model on a node, in that version.
pub(super) fn life(
    cluster: &ClusterSpec,
    (agent, version): (AgentName, &str),
    world: &World,
    node: &Node,
    seed: u64,
    log: &EventLog,
) -> Result<Life, LabError> {
    let absent = || absent(agent);
    let url = api::url(world, way(agent, cluster));
    match agent {
        AgentName::KubeProxy => {
            let spec = cluster.kube_proxy.as_ref().ok_or_else(absent)?;
            kube_proxy(&spec.at(version), url, world, node, seed, log)
        }
        AgentName::Felix => {
            let spec = CalicoSpec {
                version: version.to_owned(),
                ..cluster.calico.clone().ok_or_else(absent)?
            };
            felix(&spec, url, world, node, seed, log)
        }
    }
}

/// kube-proxy's model on a node.
fn kube_proxy(
    spec: &KubeProxySpec,
    url: String,
    world: &World,
    node: &Node,
    seed: u64,
    log: &EventLog,
) -> Result<Life, LabError> {
    let version: kube_proxy::Version = version(AgentName::KubeProxy, &spec.version)?;
    let families = served(world, node, &version);
    let said = Said(spec.config.clone());
    let addresses = world.families.addresses(node.address);
    let mut config = kube_proxy::Config {
        mode: match spec.mode {
            ProxyMode::Iptables => kube_proxy::Mode::Iptables,
            ProxyMode::Nftables => kube_proxy::Mode::Nftables,
            ProxyMode::Ipvs => unreachable!("the lab lacks the capability ipvs"),
        },
        min_sync_period: spec.min_sync_period,
        sync_period: spec.sync_period,
        full_sync_period: spec.full_sync_period,
        seed: seed_of(node, seed),
        ..kube_proxy::Config::new(version, node.name.as_str())
    };
    said.settle(&mut config);
    let recorder = recorder(AgentName::KubeProxy, world, node, log);
    Ok(Life::new(move |writer, control| {
        let (url, mut config, exec) = (url.clone(), config.clone(), Rc::new(recorder.clone()));
        let (families, said, addresses) = (families.clone(), said.clone(), addresses.clone());
        Box::pin(run_pausable(control, async move {
            if let Err(error) = said.write_sysctls(config.version.sets_more_of_conntrack()) {
                let why = "could not set conntrack parameters from kube-proxy configuration";
                return planned(format!("{why}: {error}"));
            }
            // Read once, at the start, as the real one does.
            config.tcp_be_liberal = tcp_be_liberal();
            config.node_addresses = own_addresses();
            let configs = of_families(&config, families, &said, &addresses);
            let mut sink = |line: LogLine| writer.write(header::klog(&line, Timestamp::now()));
            let ended = match api::client(&url) {
                Ok(client) => driver::kube_proxy(client, configs, exec, &mut sink).await,
                Err(error) => error.to_string(),
            };
            planned(ended)
        }))
    }))
}

/// Felix's model on a node.
fn felix(
    spec: &CalicoSpec,
    url: String,
    world: &World,
    node: &Node,
    seed: u64,
    log: &EventLog,
) -> Result<Life, LabError> {
    let programs = spec.programs == Some(Programs::Work);
    let mut env = felix::manifest_environment();
    env.extend(interface_prefix(spec.pods));
    env.extend(spec.env.clone());
    let config = felix::Config {
        version: version(AgentName::Felix, &spec.version)?,
        node_name: node.name.to_string(),
        env,
        ipv6: world.families.has_v6(),
        programs,
        seed: seed_of(node, seed),
    };
    let lost = felix::lost_with_the_pod(&config);
    let interface = wiring::pod_interface(spec.pods);
    let recorder = recorder(AgentName::Felix, world, node, log);
    let life = Life::new(move |writer, control| {
        let (url, config, exec) = (url.clone(), config.clone(), Rc::new(recorder.clone()));
        Box::pin(run_pausable(control, async move {
            let mut sink =
                |line: LogLine| writer.write(header::felix(&line, Timestamp::now(), writer.life()));
            let ended = match api::client(&url) {
                Ok(client) => driver::felix(client, config, Some(interface), exec, &mut sink).await,
                Err(error) => error.to_string(),
            };
            planned(ended)
        }))
    });
    Ok(life.losing(lost))
}

/// The families that a kube-proxy serves, each with its pods, and with the node's. Before 1.21 it knows one only, that of its
/// `--bind-address` (feature gate `IPv6DualStack`).
fn served(world: &World, node: &Node, version: &kube_proxy::Version) -> Vec<[IpNet; 2]> {
    let all = world.families.nets(world.pools.main());
    let own = world.families.nets(block(world.pools.main(), node.number));
    let mut all: Vec<[IpNet; 2]> = all
        .into_iter()
        .zip(own)
        .map(|(all, own)| [all, own])
        .collect();
    if !version.has_dual_stack() {
        all.truncate(1);
    }
    all
}

/// The settings of each family's proxier. Chance does not run in step in both.
fn of_families(
    config: &kube_proxy::Config,
    families: Vec<[IpNet; 2]>,
    said: &Said,
    addresses: &[IpAddr],
) -> Vec<kube_proxy::Config> {
    let families = families.into_iter().zip(0..);
    let of = |([pods, own], number): ([IpNet; 2], u64)| {
        let family = match pods {
            IpNet::V4(_) => kube_proxy::Family::Ipv4,
            IpNet::V6(_) => kube_proxy::Family::Ipv6,
        };
        kube_proxy::Config {
            family,
            cluster_cidr: said.pods(pods, own),
            node_port_addresses: said.node_ports(family, addresses),
            seed: config.seed.wrapping_add(number),
            ..config.clone()
        }
    };
    families.map(of).collect()
}

fn recorder(agent: AgentName, world: &World, node: &Node, log: &EventLog) -> Recorder {
    let recorder = Recorder::new(agent.as_str(), node.name.clone(), log.clone());
    recorder.behind(world.gate.clone())
}

fn planned(reason: String) -> Death {
    Death {
        reason,
        kind: Kind::Planned,
    }
}

fn seed_of(node: &Node, seed: u64) -> u64 {
    seed.wrapping_add(STRIDE.wrapping_mul(u64::from(node.number)))
}

/// The setting of the calling thread's node.
fn tcp_be_liberal() -> bool {
    let file = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";
    std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0")
}
