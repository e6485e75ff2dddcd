//! kube-proxy's models on a stage: stepped in virtual time, their commands run by a kernel in memory.

use std::{net::IpAddr, time::Duration};

use chainbreak_agents::{
    driver::{concerns, header},
    kube_proxy::{Config, Event, Family, Mode as Dataplane, Version, run},
    step::{Command, Reply, RequestId, Stepper, Wanted},
};
use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    kernel::Kernel,
    world::{Mode, Setup},
};

/// Distance of two orders' seeds, so that chance does not run in step.
const STRIDE: u64 = 7919;

/// The proxiers of one kube-proxy, and what they did.
#[derive(Debug)]
pub(crate) struct Stage {
    proxiers: Vec<Proxier>,
    now: Duration,
    pub(crate) kernel: Kernel,
    /// Everything said, as a log has it.
    pub(crate) log: Vec<String>,
    /// Every command that was run.
    pub(crate) ran: Vec<Command>,
    /// Commands that have not ended yet: nothing ends while this is there.
    under_way: Option<Vec<(usize, RequestId, Command)>>,
}

#[derive(Debug)]
struct Proxier {
    family: Family,
    follows_service_cidrs: bool,
    stepper: Stepper<Event>,
    wake_at: Option<Duration>,
}

impl Stage {
    /// A kube-proxy of that release in that world, which has heard nothing of the API yet. Its maps have the
    /// order of that number.
    pub(crate) fn new(version: &Version, mode: Mode, setup: &Setup, order: u64) -> Self {
        let configs = configs(version, mode, setup, order).into_iter();
        let proxiers = configs.map(|config| Proxier {
            family: config.family,
            follows_service_cidrs: config.follows_service_cidrs(),
            stepper: Stepper::new(|io| run(io, config, |_health| ())),
            wake_at: None,
        });
        let mut stage = Self {
            proxiers: proxiers.collect(),
            now: Duration::ZERO,
            kernel: Kernel::new(setup.backend, mode),
            log: Vec::new(),
            ran: Vec::new(),
            under_way: None,
        };
        for number in 0..stage.proxiers.len() {
            stage.step(number, Reply::Tick);
        }
        stage
    }

    /// How many proxiers it has.
    pub(crate) fn proxiers(&self) -> usize {
        self.proxiers.len()
    }

    /// Tells all whom it concerns.
    pub(crate) fn tell(&mut self, event: &Event) {
        for number in 0..self.proxiers.len() {
            if concerns(event, self.proxiers[number].family) {
                self.step(number, Reply::Event(event.clone()));
            }
        }
    }

    /// Tells some of those who follow them the networks of cluster IPs.
    pub(crate) fn tell_service_cidrs(&mut self, cidrs: &[IpNet], whom: impl Fn(usize) -> bool) {
        for number in 0..self.proxiers.len() {
            if self.proxiers[number].follows_service_cidrs && whom(number) {
                self.step(number, Reply::Event(Event::ServiceCidrs(cidrs.to_vec())));
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some((due, number)) = self.next().filter(|(due, _)| *due <= until) {
            self.now = self.now.max(due);
            self.step(number, Reply::Tick);
        }
        self.now = until;
    }

    /// From now on no command ends: what is told meanwhile is taken over all at once.
    pub(crate) fn hold(&mut self) {
        self.under_way.get_or_insert_default();
    }

    /// Lets them end.
    pub(crate) fn release(&mut self) {
        for (number, id, command) in self.under_way.take().unwrap_or_default() {
            let output = self.kernel.run(&command);
            self.ran.push(command);
            self.step(number, Reply::Ran(id, output));
        }
    }

    /// Who wakes next, and when.
    fn next(&self) -> Option<(Duration, usize)> {
        let proxiers = self.proxiers.iter().enumerate();
        let due = proxiers.filter_map(|(number, it)| Some((it.wake_at?, number)));
        due.min()
    }

    /// How many lines have that text.
    pub(crate) fn said(&self, text: &str) -> usize {
        self.log.iter().filter(|line| line.contains(text)).count()
    }

    fn step(&mut self, number: usize, reply: Reply<Event>) {
        let mut replies = vec![reply];
        while let Some(reply) = replies.pop() {
            let proxier = &mut self.proxiers[number];
            let Wanted {
                run,
                points,
                logs,
                wake_at,
                exited,
            } = proxier.stepper.step(self.now, reply);
            proxier.wake_at = wake_at;
            for line in &logs {
                let entry = header::klog(line, Timestamp::UNIX_EPOCH);
                self.log.extend(entry.lines().map(str::to_owned));
            }
            self.log.extend(exited);
            for (id, command) in run {
                if let Some(under_way) = &mut self.under_way {
                    under_way.push((number, id, command));
                    continue;
                }
                let output = self.kernel.run(&command);
                self.ran.push(command);
                replies.push(Reply::Ran(id, output));
            }
            let reached = points.into_iter();
            replies.extend(reached.map(|(id, _)| Reply::Ran(id, Default::default())));
        }
    }
}

/// A proxier for each family; up to 1.20 for the first.
fn configs(version: &Version, mode: Mode, setup: &Setup, order: u64) -> Vec<Config> {
    let mut cidrs = setup.cluster_cidrs.clone();
    if !version.has_dual_stack() {
        cidrs.truncate(1);
    }
    let of = |(number, cidr): (usize, IpNet)| {
        let family = match cidr {
            IpNet::V4(_) => Family::Ipv4,
            IpNet::V6(_) => Family::Ipv6,
        };
        let chance = setup.seed.wrapping_add(number as u64);
        let config = Config {
            mode: match mode {
                Mode::Iptables => Dataplane::Iptables,
                Mode::Nftables => Dataplane::Nftables,
            },
            family,
            cluster_cidr: Some(cidr),
            min_sync_period: Duration::ZERO,
            sync_period: Duration::from_millis(setup.sync_period_ms),
            seed: chance.wrapping_add(order * STRIDE),
            ..Config::new(version.clone(), "n1")
        };
        let assumed = config.assumed_node_ip(number);
        Config {
            node_ip: assumed.or_else(|| node_ip(&setup.node, family)),
            ..config
        }
    };
    cidrs.into_iter().enumerate().map(of).collect()
}

/// The node's first internal address of the family, which a kube-proxy asks for before anything else.
fn node_ip(node: &Value, family: Family) -> Option<IpAddr> {
    let addresses = node["status"]["addresses"].as_array()?.iter();
    let addresses = addresses.filter(|it| it["type"] == "InternalIP");
    let mut ips = addresses.filter_map(|it| it["address"].as_str()?.parse().ok());
    ips.find(|ip| family.has(*ip))
}
