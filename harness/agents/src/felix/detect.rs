//! Which iptables Felix drives, and what it can do (`felix/environment/feature_detect_linux.go`).
//!
//! The IPv6 half is asked only on a node with IPv6. The version is asked once and not at each reading:
//! it cannot change within a life.

use std::time::Duration;

use super::{
    Backend, Event, Family,
    apply::{Panicked, Tools, say},
    log::Line,
    params::Params,
};
use crate::step::{Io, Severity};

/// What was found.
#[derive(Debug, Clone)]
pub(super) struct Iptables {
    pub(super) backend: Backend,
    /// At least 1.6.2: `MASQUERADE --random-fully`, and restore takes the xtables lock itself.
    pub(super) modern: bool,
    /// The command names carry the backend.
    has_variants: bool,
}

impl Iptables {
    /// Asks the node.
    pub(super) async fn detect(
        io: &Io<Event>,
        params: &Params,
        ipv6: bool,
    ) -> Result<Self, Panicked> {
        let families: &[Family] = if ipv6 {
            &[Family::V4, Family::V6]
        } else {
            &[Family::V4]
        };
        let (backend, has_variants) = detect_backend(io, params, families).await?;
        if backend == Backend::Nft {
            say(
                io,
                Line::info(
                    "felix/table.go 462",
                    "Enabling iptables-in-nftables-mode workarounds.",
                ),
            );
        }
        let output = io.run(&["iptables", "--version"], String::new()).await;
        let version = parse_version(&output.stdout);
        if version.is_none() {
            let message =
                "Failed to parse iptables version, assuming old version with no optional features";
            let line = Line::warning("felix/feature_detect_linux.go 270", message);
            say(io, line.text("rawVersion", &output.stdout));
        }
        let version = version.unwrap_or((1, 4, 7));
        let (major, minor, patch) = version;
        let line = Line::info(
            "felix/feature_detect_linux.go 172",
            "Updating detected iptables features",
        );
        say(
            io,
            line.with("iptablesVersion", format!("{major}.{minor}.{patch}")),
        );
        Ok(Self {
            backend,
            modern: version >= (1, 6, 2),
            has_variants,
        })
    }

    /// The commands for a family.
    pub(super) fn tools(&self, family: Family, params: &Params) -> Tools {
        let variant = self.has_variants.then_some(self.backend);
        let mut restore = vec![command(family, variant, "restore")];
        restore.extend(["--noflush", "--verbose"].map(str::to_owned));
        if self.modern {
            let timeout = params.time("IptablesLockTimeoutSecs");
            // Restore would try for the lock only once.
            let timeout = if timeout.is_zero() {
                Duration::from_secs(10)
            } else {
                timeout
            };
            let probe = params.time("IptablesLockProbeIntervalMillis");
            restore.extend([
                "--wait".to_owned(),
                format!("{:.0}", timeout.as_secs_f64()),
                "--wait-interval".to_owned(),
                probe.as_micros().to_string(),
            ]);
        }
        Tools {
            save: command(family, variant, "save"),
            restore,
        }
    }
}

fn command(family: Family, variant: Option<Backend>, verb: &str) -> String {
    let tables = family.command();
    match variant {
        Some(backend) => format!("{tables}-{}-{verb}", backend.word()),
        None => format!("{tables}-{verb}"),
    }
}

/// kubelet's hint decides, nft's before legacy's; without one the backend with more rules wins, and
/// legacy wins a tie. Says too whether there are commands named after the backend.
async fn detect_backend(
    io: &Io<Event>,
    params: &Params,
    families: &[Family],
) -> Result<(Backend, bool), Panicked> {
    let nft = Probe::run(io, Backend::Nft, families, true).await?;
    let legacy = if nft.hinted() {
        None
    } else {
        Some(Probe::run(io, Backend::Legacy, families, true).await?)
    };
    let detected = match &legacy {
        None => Backend::Nft,
        Some(legacy) if legacy.hinted() => Backend::Legacy,
        Some(_) => {
            let legacy = Probe::run(io, Backend::Legacy, families, false).await?;
            let nft = Probe::run(io, Backend::Nft, families, false).await?;
            if legacy.rules() >= nft.rules() {
                Backend::Legacy
            } else {
                Backend::Nft
            }
        }
    };
    let chosen = match params.word("IptablesBackend") {
        "legacy" => Backend::Legacy,
        "nft" => Backend::Nft,
        _ => detected,
    };
    if chosen != detected {
        let message = "Iptables backend specified does not match the detected backend, using specified backend";
        let line = Line::warning("felix/feature_detect_linux.go 379", message)
            .text("detectedBackend", detected.word())
            .text("specifiedBackend", chosen.word());
        say(io, line);
    }
    let has_variants = match chosen {
        Backend::Nft => nft.has_variants,
        Backend::Legacy => legacy.is_none_or(|legacy| legacy.has_variants),
    };
    Ok((chosen, has_variants))
}

/// What `iptables-save` of one backend shows.
struct Probe {
    texts: Vec<String>,
    has_variants: bool,
}

impl Probe {
    async fn run(
        io: &Io<Event>,
        backend: Backend,
        families: &[Family],
        hint: bool,
    ) -> Result<Self, Panicked> {
        let args: &[&str] = if hint { &["-t", "mangle"] } else { &[] };
        let mut probe = Self {
            texts: Vec::new(),
            has_variants: true,
        };
        for &family in families {
            let mut output = None;
            for variant in [Some(backend), None] {
                let name = command(family, variant, "save");
                let argv: Vec<&str> = [name.as_str()].iter().chain(args).copied().collect();
                let ran = io.run(&argv, String::new()).await;
                // 127: there is no such command.
                if ran.exit != 127 {
                    probe.has_variants &= variant.is_some();
                    output = Some(ran);
                    break;
                }
            }
            let Some(output) = output else {
                let message = "Failed to find iptables command";
                say(
                    io,
                    Line::new(
                        Severity::Fatal,
                        "felix/feature_detect_linux.go 417",
                        message,
                    ),
                );
                return Err(Panicked(message.to_owned()));
            };
            probe.texts.push(output.stdout);
        }
        Ok(probe)
    }

    fn hinted(&self) -> bool {
        let hint = |text: &String| {
            text.contains("KUBE-IPTABLES-HINT") || text.contains("KUBE-KUBELET-CANARY")
        };
        self.texts.iter().any(hint)
    }

    fn rules(&self) -> usize {
        let lines = self.texts.iter().flat_map(|text| text.lines());
        lines.filter(|line| line.starts_with('-')).count()
    }
}

/// The first `X.Y.Z` of `iptables --version`.
fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let end = |rest: &str| {
        rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(rest.len())
    };
    let rest = text.get(start..)?;
    let mut parts = rest.get(..end(rest))?.split('.').map(str::parse);
    let mut next = || parts.next()?.ok();
    Some((next()?, next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_iptables_prints() {
        assert_eq!(
            parse_version("iptables v1.8.9 (nf_tables)\n"),
            Some((1, 8, 9))
        );
        assert_eq!(parse_version("iptables v1.4.21\n"), Some((1, 4, 21)));
        assert_eq!(parse_version("command not found"), None);
    }
}
