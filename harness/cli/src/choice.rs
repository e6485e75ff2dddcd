//! What a person chose on the command line: variants, the matrix, and who plays the agents.

use std::collections::BTreeSet;

use anyhow::Context;
use chainbreak_engine::backend::Ground;
use chainbreak_model::{
    agents::AgentChoice,
    case::AgentSource,
    matrix::MatrixKey,
    names::AgentName,
    plan::{Choice, Exclude, Real, is_used, real_agents},
    scenario::Scenario,
};
use indexmap::IndexMap;

use crate::{
    args::{Players, selection::Selection},
    backend_choice::BackendChoice,
    cases::invalid,
    images::Absent,
};

/// The choice for these scenarios. Each real agent is asked once which version it is. One that was given on the command line and does
/// not say it is a mistake there; of a scenario's own the version stays as written: its cases meet the same trouble and tell of it.
pub(crate) async fn of(
    selection: &Selection,
    scenarios: &[Scenario],
    absent: Absent,
) -> anyhow::Result<Choice> {
    for wanted in &selection.variants {
        let known = |scenario: &Scenario| scenario.variants.keys().any(|v| v.as_str() == wanted);
        if !scenarios.iter().any(known) {
            return Err(invalid(format!(
                "no scenario has a variant \"{wanted}\"; `chainbreak list` names them"
            )));
        }
    }
    let backend = BackendChoice::of(selection);
    let mut choice = Choice {
        undisturbed: backend
            .undisturbed()
            .map_err(|error| invalid(error.to_string()))?,
        backend: backend.factory().name().to_owned(),
        real_clusters: backend.factory().ground() == Ground::Real,
        matrix: matrix(&selection.matrix)?,
        varying: selection.varying.clone(),
        agents: agents(&selection.agents)?,
        exclude: excludes(&selection.exclude)?,
        seed: (selection.seed != 0).then_some(selection.seed),
        variants: selection
            .variants
            .iter()
            .map(|v| v.as_str().into())
            .collect(),
        ..Choice::default()
    };
    choice.pinned = crate::agents::pinned_of_each()?;
    if selection.players == Players::Real {
        choice.at_hand = crate::agents::at_hand()?;
    }
    for (agent, text) in choice.agents.iter().zip(&selection.agents) {
        if !scenarios.iter().any(|it| is_used(agent, it, &choice)) {
            let who = text.split('=').next().unwrap_or_default();
            return Err(invalid(format!("--agent {text}: no case has {who}")));
        }
    }
    let real = scenarios.iter().flat_map(|it| real_agents(it, &choice));
    let real: BTreeSet<Real> = real.collect();
    for (agent, source) in real {
        let given = choice.agents.iter().any(|it| it.source == source);
        if let Some(version) = version(agent, &source, (absent, given)).await? {
            let version = agent.kind().as_written(&version).to_owned();
            choice.versions.insert((agent, source), version);
        }
    }
    Ok(choice)
}

/// What a real agent says that its version is. Of one that does not say it, why is told.
async fn version(
    agent: AgentName,
    source: &AgentSource,
    (absent, given): (Absent, bool),
) -> anyhow::Result<Option<String>> {
    match source {
        AgentSource::Path(path) => match chainbreak_lab::identify(path, agent).await {
            Ok(identity) => Ok(Some(identity.version)),
            Err(error) if given => Err(invalid(error.to_string())),
            Err(error) => {
                crate::note(&error.to_string());
                Ok(None)
            }
        },
        #[cfg(feature = "images")]
        AgentSource::Image(Some(name)) => {
            let kept = crate::images::named(agent, name, absent).await?;
            if kept.is_none() {
                crate::note(&format!(
                    "{name} is not here yet: {agent} has the version that is written until it is pulled"
                ));
            }
            Ok(kept.map(|it| it.version))
        }
        #[cfg(not(feature = "images"))]
        AgentSource::Image(_) if absent == Absent::Pulled => {
            Err(invalid(crate::without_features::IMAGES))
        }
        _ => Ok(None),
    }
}

/// The settings of every `--matrix`; those of one key add up.
pub(crate) fn matrix(texts: &[String]) -> anyhow::Result<IndexMap<MatrixKey, Vec<String>>> {
    let mut matrix = IndexMap::<MatrixKey, Vec<String>>::new();
    for text in texts {
        let wrong = |why: String| invalid(format!("--matrix {text}: {why}"));
        let (key, values) = MatrixKey::parse_values(text).map_err(wrong)?;
        let known = matrix.entry(key).or_default();
        if let Some(twice) = values.iter().find(|value| known.contains(value)) {
            return Err(wrong(format!("{twice:?} is given twice")));
        }
        known.extend(values);
    }
    let keys: Vec<MatrixKey> = matrix.keys().copied().collect();
    match MatrixKey::twice(&keys) {
        Some(why) => Err(invalid(format!("--matrix: {why}"))),
        None => Ok(matrix),
    }
}

/// Every `--exclude`.
fn excludes(texts: &[String]) -> anyhow::Result<Vec<Exclude>> {
    let excludes = texts.iter().map(|text| {
        Exclude::parse(text).map_err(|why| invalid(format!("--exclude {text:?}: {why}")))
    });
    excludes.collect()
}

/// Every `--agent`; paths are the current folder's.
fn agents(texts: &[String]) -> anyhow::Result<Vec<AgentChoice>> {
    let base = match texts {
        [] => return Ok(Vec::new()),
        _ => std::env::current_dir().context("could not find the current folder")?,
    };
    let agents = texts.iter().map(|text| {
        AgentChoice::parse(text, &base).map_err(|why| invalid(format!("--agent {text}: {why}")))
    });
    agents.collect()
}
