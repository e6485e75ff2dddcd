//! `chainbreak agents`: the real agents that are here, and more of them.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use chainbreak_model::{agent::programs, agents::AtHand, case::AgentSource, names::AgentName};
use chainbreak_sources::{
    Builder, Cache, Kept, Pins, Release, Source, SourceError,
    pinned::{calicos, kube_proxies},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    args::{Agents, AgentsVerb},
    cases::invalid,
};

/// Lists, or makes.
pub(crate) async fn agents(args: Agents) -> anyhow::Result<ExitCode> {
    match args.verb {
        None => list().await,
        Some(AgentsVerb::Build { versions, .. }) => build(&versions).await,
        #[cfg(feature = "images")]
        Some(AgentsVerb::Pull { images }) => {
            crate::images::pull(&images).await?;
            Ok(ExitCode::SUCCESS)
        }
        #[cfg(not(feature = "images"))]
        Some(AgentsVerb::Pull { images }) => {
            let why = crate::without_features::IMAGES;
            Err(invalid(format!("{}: {why}", images.join(", "))))
        }
    }
}

/// The releases that this program pins.
pub(crate) fn pins() -> anyhow::Result<Pins> {
    Ok(kube_proxies()?)
}

/// The same of every agent, the oldest first.
pub(crate) fn pinned_of_each() -> anyhow::Result<BTreeMap<AgentName, Vec<String>>> {
    let kube_proxies = pins()?.all().iter().map(ToString::to_string).collect();
    Ok(BTreeMap::from([
        (AgentName::KubeProxy, kube_proxies),
        (AgentName::Felix, calicos()?),
    ]))
}

/// What `--agents real` takes: every agent that is in the cache; of one version, what is built rather than what is pulled.
pub(crate) fn at_hand() -> anyhow::Result<AtHand> {
    let mut at_hand = AtHand::default();
    // What is built stands first, and the last one counts.
    for kept in Cache::of_environment()?.kept()?.into_iter().rev() {
        let source = match kept.source {
            Source::Image => AgentSource::Path(kept.path),
            Source::Build | Source::Scripts if kept.path == kept.program => AgentSource::Build,
            Source::Build | Source::Scripts => continue,
        };
        at_hand.add(kept.agent, &kept.version, source);
    }
    Ok(at_hand)
}

/// Does work that may take minutes, unless the person ends it: then nothing is left that counts.
pub(crate) async fn patiently<T>(
    work: impl Future<Output = Result<T, SourceError>>,
) -> anyhow::Result<T> {
    let (mut int, mut term) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::select! {
        done = work => Ok(done?),
        _ = int.recv() => Err(SourceError::Interrupted.into()),
        _ = term.recv() => Err(SourceError::Interrupted.into()),
    }
}

async fn build(versions: &[String]) -> anyhow::Result<ExitCode> {
    let pins = pins()?;
    let meant = versions.iter().map(|it| pins.meant(it).map_err(invalid));
    let releases = meant.collect::<anyhow::Result<Vec<Release>>>()?;
    let cache = Cache::of_environment()?;
    let builder = Builder::new(&cache);
    for release in releases {
        let path = patiently(builder.build(release, &say)).await?;
        crate::say(&format!("{}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line of progress.
pub(crate) fn say(line: &str) {
    crate::note(&format!("chainbreak: {line}"));
}

/// A line of the list.
struct Row {
    agent: AgentName,
    version: String,
    source: &'static str,
    sha256: String,
    path: PathBuf,
    image: Option<String>,
}

async fn list() -> anyhow::Result<ExitCode> {
    let cache = Cache::of_environment()?;
    let kept = cache.kept()?;
    let mut rows = Vec::new();
    for kept in &kept {
        rows.push(of_cache(kept)?);
    }
    rows.extend(installed().await);
    let mut text = table(&rows);
    if rows.is_empty() {
        text += "no real agent is here: a model stands in for each\n";
    }
    text += &pinned(&pins()?, &kept);
    crate::say(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn of_cache(kept: &Kept) -> anyhow::Result<Row> {
    Ok(Row {
        agent: kept.agent,
        version: kept.version.trim_start_matches('v').to_owned(),
        source: kept.source.as_str(),
        sha256: kept.sha256()?,
        path: kept.path.clone(),
        image: kept.image.clone(),
    })
}

/// Programs of the machine's `PATH`. One that does not say which version it is, is told of.
async fn installed() -> Vec<Row> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path)
        .filter(|it| it.is_absolute())
        .collect();
    let mut rows = BTreeMap::new();
    for (agent, name) in programs() {
        let mut found = folders.iter().map(|folder| folder.join(name));
        let Some(path) = found.find(|path| path.is_file()) else {
            continue;
        };
        match chainbreak_lab::identify(&path, agent).await {
            Ok(identity) => {
                let row = Row {
                    agent,
                    version: identity.version.trim_start_matches('v').to_owned(),
                    source: "path",
                    sha256: identity.sha256,
                    path: path.clone(),
                    image: None,
                };
                rows.insert((agent, path), row);
            }
            Err(error) => crate::note(&error.to_string()),
        }
    }
    rows.into_values().collect()
}

fn table(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| {
        let Row {
            agent,
            version,
            source,
            sha256,
            path,
            image,
        } = row;
        let path = at_home(path);
        let image = image.as_ref().map(|it| format!("  ({it})"));
        let image = image.unwrap_or_default();
        format!("{agent:<11} {version:<9} {source:<8} {sha256}  {path}{image}\n")
    });
    lines.collect()
}

/// A path as a person writes it.
fn at_home(path: &Path) -> String {
    let home = env::var_os("HOME").filter(|home| !home.is_empty());
    let below = home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned));
    match below {
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

/// Which pinned releases are here, and the command that makes the others.
fn pinned(pins: &Pins, kept: &[Kept]) -> String {
    let is_here = |release: &&Release| kept.iter().any(|it| it.release() == Some(**release));
    let (here, others): (Vec<&Release>, Vec<&Release>) = pins.all().iter().partition(is_here);
    let words = |releases: &[&Release]| {
        let words: Vec<String> = releases.iter().map(ToString::to_string).collect();
        if words.is_empty() {
            "none".to_owned()
        } else {
            words.join(" ")
        }
    };
    let hint = others.last();
    let hint = hint.map(|newest| format!("chainbreak agents build kube-proxy {newest}\n"));
    format!(
        "pinned, and here:     {}\npinned, and not here: {}\n{}",
        words(&here),
        words(&others),
        hint.unwrap_or_default()
    )
}
