//! Who plays kube-proxy in a place.

use std::{net::IpAddr, path::PathBuf, process::Stdio, rc::Rc, sync::Arc, thread, time::Duration};

use chainbreak_agents::{
    driver::{self, Exec, header},
    kube_proxy::{Config, Family, Mode, Version},
    step::{Command, LogLine, Output},
};
use chainbreak_model::case::ProxyMode;
use futures::{FutureExt, future::LocalBoxFuture};
use ipnet::IpNet;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;

use crate::{
    REAL,
    side::{Log, Side},
    text,
};

/// A kube-proxy. Both are told the same, whoever plays.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Player {
    /// Nobody: the place is empty.
    Nobody,
    /// The binary that the environment names.
    Real,
    /// The model of that release.
    Model(String),
    /// A model that somebody broke: every `find` in the inputs of its commands becomes `replace`.
    Broken {
        version: String,
        find: String,
        replace: String,
    },
}

/// What both are told.
pub(crate) struct Settings {
    pub(crate) api: String,
    pub(crate) mode: ProxyMode,
    /// The node's, of the default family.
    pub(crate) node: IpAddr,
    /// Of each family, the default first.
    pub(crate) cluster_cidrs: Vec<IpNet>,
    pub(crate) sync_period: Duration,
    pub(crate) seed: u64,
    pub(crate) real: Option<PathBuf>,
}

impl Player {
    /// Starts playing. The end of the world is the end of it.
    pub(crate) async fn start(&self, side: &Side, settings: &Settings) -> Result<(), String> {
        match self {
            Self::Nobody => Ok(()),
            Self::Real => start_real(side, settings).await,
            Self::Model(version) => start_model(side, settings, version, None).await,
            Self::Broken {
                version,
                find,
                replace,
            } => {
                let defect = (find.clone(), replace.clone());
                start_model(side, settings, version, Some(defect)).await
            }
        }
    }
}

/// The flags that a namespace asks for: conntrack's limits are the machine's. Without `-v` nothing would
/// be said of syncs.
fn flags(settings: &Settings) -> Vec<String> {
    let Settings {
        api,
        mode,
        node,
        cluster_cidrs,
        sync_period,
        ..
    } = settings;
    let period = sync_period.as_millis();
    let mode = match mode {
        ProxyMode::Iptables => "iptables",
        ProxyMode::Nftables => "nftables",
        ProxyMode::Ipvs => unreachable!("no model plays it"),
    };
    let cidrs: Vec<String> = cluster_cidrs.iter().map(IpNet::to_string).collect();
    let mut flags = vec![
        format!("--master={api}"),
        "--hostname-override=n1".to_owned(),
        format!("--proxy-mode={mode}"),
        format!("--cluster-cidr={}", cidrs.join(",")),
        "--iptables-min-sync-period=0s".to_owned(),
        format!("--iptables-sync-period={period}ms"),
        "--conntrack-max-per-core=0".to_owned(),
        "--conntrack-tcp-timeout-established=0".to_owned(),
        "--conntrack-tcp-timeout-close-wait=0".to_owned(),
        "-v=2".to_owned(),
    ];
    if node.is_ipv6() {
        flags.push(format!("--bind-address={node}"));
    }
    flags
}

async fn start_real(side: &Side, settings: &Settings) -> Result<(), String> {
    let missing = || format!("{REAL} is not set: it names the binary of a real kube-proxy");
    let program = settings.real.as_ref().ok_or_else(missing)?;
    let mut argv = vec![program.display().to_string()];
    argv.extend(flags(settings));
    let child = side.place.spawn(&argv, |command| {
        command.stdin(Stdio::null()).stdout(Stdio::null());
    });
    let mut child = child.await.map_err(text)?;
    side.plays(child.id());
    let stderr = child.stderr.take().expect("standard error is piped");
    let log = side.log.clone();
    tokio::spawn(async move {
        log.clone().follow(stderr).await;
        let status = child
            .wait()
            .await
            .map_or_else(text, |status| status.to_string());
        log.died(format!("the real kube-proxy ended: {status}"));
    });
    Ok(())
}

async fn start_model(
    side: &Side,
    settings: &Settings,
    version: &str,
    defect: Option<(String, String)>,
) -> Result<(), String> {
    let version: Version = version.parse().map_err(text)?;
    let configs = configs(settings, &version);
    let (api, log) = (settings.api.clone(), side.log.clone());
    let started = side.place.run(move || {
        thread::Builder::new()
            .name("model".to_owned())
            .spawn(move || {
                let reason = play(&api, configs, defect, log.clone());
                log.died(format!(
                    "the model ended: {}",
                    reason.unwrap_or_else(|it| it)
                ));
            })
    });
    started.await.map(drop).map_err(text)
}

/// A proxier for each family; up to 1.20 for the first.
fn configs(settings: &Settings, version: &Version) -> Vec<Config> {
    let mut cidrs = settings.cluster_cidrs.clone();
    if !version.has_dual_stack() {
        cidrs.truncate(1);
    }
    let of = |(cidr, number): (IpNet, u64)| Config {
        mode: match settings.mode {
            ProxyMode::Iptables => Mode::Iptables,
            ProxyMode::Nftables => Mode::Nftables,
            ProxyMode::Ipvs => unreachable!("no model plays it"),
        },
        family: match cidr {
            IpNet::V4(_) => Family::Ipv4,
            IpNet::V6(_) => Family::Ipv6,
        },
        cluster_cidr: Some(cidr),
        min_sync_period: Duration::ZERO,
        sync_period: settings.sync_period,
        seed: settings.seed.wrapping_add(number),
        ..Config::new(version.clone(), "n1")
    };
    cidrs.into_iter().zip(0..).map(of).collect()
}

fn play(
    api: &str,
    configs: Vec<Config>,
    defect: Option<(String, String)>,
    log: Log,
) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(text)?.block_on(async move {
        let client = kube::Config::new(api.parse().map_err(text)?);
        let client = Client::try_from(client).map_err(text)?;
        let mut sink = |line: LogLine| {
            let entry = header::klog(&line, Timestamp::now());
            entry.lines().for_each(|line| log.line(line.to_owned()));
        };
        let exec = Rc::new(Hands {
            defect: defect.map(Arc::new),
        });
        Ok(driver::kube_proxy(client, configs, exec, &mut sink).await)
    })
}

/// Runs the model's commands in the place of its thread.
#[derive(Debug, Clone)]
struct Hands {
    defect: Option<Arc<(String, String)>>,
}

impl Exec for Hands {
    fn run(&self, mut command: Command) -> LocalBoxFuture<'static, Output> {
        if let Some((find, replace)) = self.defect.as_deref() {
            command.input = command.input.replace(find, replace);
        }
        async move {
            if let Some(output) = driver::netlink::answer(&command) {
                return output;
            }
            let failed = |error: std::io::Error| Output {
                exit: 127,
                stderr: error.to_string(),
                ..Output::default()
            };
            run(&command).await.unwrap_or_else(failed)
        }
        .boxed_local()
    }
}

async fn run(command: &Command) -> std::io::Result<Output> {
    let (program, arguments) = command.argv.split_first().expect("a command has a program");
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let feed = async move {
        // A command that does not read to the end says itself what was wrong.
        drop(stdin.write_all(command.input.as_bytes()).await);
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    let output = output?;
    Ok(Output {
        exit: output.status.code().unwrap_or(128),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        ..Output::default()
    })
}
