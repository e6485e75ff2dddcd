//! A kept world: the dumps of a node in it, collected now.

use std::{
    net::IpAddr,
    process::{Child, Stdio},
};

use anyhow::{Context, Result};
use chainbreak_lab::registry;
use chainbreak_netfilter::dumps::Dumps;

use super::{
    Known,
    asked::{self, End, Ends, Input, address},
    service::Asked,
};
use crate::{args::Explain, cases::invalid, collect::SCRIPT, fed::fed};

/// The node that is looked at unless another is named.
const NODE: &str = "n1";

/// A kept world, and the node in it that is looked at.
pub(super) struct World {
    worker: Option<i32>,
    pub(super) node: String,
}

/// What a node lists.
pub(super) struct Listed {
    text: String,
    pub(super) dumps: Dumps,
}

impl World {
    /// The one of that worker; of 0, which no process has as its number, the one that `shell` looks into.
    pub(super) fn of(args: &Explain, worker: i32) -> Self {
        Self {
            worker: Some(worker).filter(|it| *it != 0),
            node: args.node.clone().unwrap_or_else(|| NODE.to_owned()),
        }
    }

    pub(super) fn known(&self, args: &Explain) -> Result<Known> {
        let Listed { text, dumps } = self.listed()?;
        // Of what is always left out nothing is asked.
        let left = text
            .lines()
            .filter(|it| it.starts_with("left out: ") && !it.contains("key or secret"));
        let about = left.map(str::to_owned).collect();
        let dst = end_to(args, &text)?;
        let src = match address(&args.from) {
            Some(end) => end,
            None => (self.address_of(&args.from, dst.0.is_ipv4())?, None),
        };
        Ok(Known {
            ends: Ends {
                src,
                dst,
                input: Input::AsRoutesLead,
            },
            states: vec![(None, dumps)],
            later: None,
            at: Some(format!("now on {}", self.node)),
            about,
            sure: true,
            among: "listed there",
        })
    }

    /// What its node lists now.
    pub(super) fn listed(&self) -> Result<Listed> {
        let node = &self.node;
        let text = self.run(node, &["sh", "-s", "--", "-"], SCRIPT)?;
        let mut dumps = Dumps::default();
        dumps
            .add(&text)
            .map_err(|why| invalid(format!("what {node} lists cannot be read: {why}")))?;
        Ok(Listed { text, dumps })
    }

    /// The address of a place.
    fn address_of(&self, place: &str, v4: bool) -> Result<IpAddr> {
        let listed = self.run(place, &["ip", "-o", "addr", "show", "scope", "global"], "")?;
        let addresses = listed.lines().filter_map(|line| {
            let mut words = line
                .split_whitespace()
                .skip_while(|it| !it.starts_with("inet"));
            let net = words.nth(1)?;
            net.split('/').next()?.parse::<IpAddr>().ok()
        });
        let mut of_family = addresses.filter(|it| it.is_ipv4() == v4);
        of_family
            .next()
            .ok_or_else(|| invalid(format!("FROM: {place} has no address of that family")))
    }

    /// Starts a command in a place, its input and output piped.
    pub(super) fn start(&self, place: &str, command: &[&str], stderr: Stdio) -> Result<Child> {
        let place = place.strip_prefix("node/").unwrap_or(place);
        let mut entered = registry::command(self.worker, place, command)
            .map_err(|why| invalid(why.to_string()))?;
        entered
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .context("could not start nsenter")
    }

    /// What a command in a place prints.
    fn run(&self, place: &str, command: &[&str], input: &str) -> Result<String> {
        let child = self.start(place, command, Stdio::piped())?;
        let output = fed(child, input).with_context(|| format!("could not look into {place}"))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.lines().last().unwrap_or_default();
            anyhow::bail!("{} in {place} failed: {why}", command.join(" "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// An address, or a service by its rules.
fn end_to(args: &Explain, dumps: &str) -> Result<End> {
    if let Some(end) = address(&args.to) {
        return Ok(end);
    }
    let name = args.to.strip_prefix("service/").unwrap_or(&args.to);
    let parts = name.rsplit_once(':').and_then(|(service, port)| {
        let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
        Some((namespace, name, port.parse().ok()?))
    });
    let Some((namespace, name, port)) = parts else {
        let words =
            "TO:PORT: an address or a service and its port, as 10.96.0.10:80 or test/web:80";
        return Err(invalid(words));
    };
    let asked = Asked {
        namespace,
        name,
        port,
        protocol: asked::protocol(args)?,
    };
    let found = dumps.lines().find_map(|line| asked.cluster_ip(line));
    let found = found.ok_or_else(|| asked.unnamed("of the node"))?;
    Ok((found, Some(port)))
}
