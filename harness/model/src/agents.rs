//! Who stands for an agent: its model, or a real program that a scenario or the command line names.

use std::{collections::BTreeMap, path::Path};

use crate::{
    agent::AgentSpecMut,
    case::{AgentSource, ClusterSpec, Fault, Step},
    names::AgentName,
    version,
};

/// What is written before a path, where somebody wants to be sure that it is one.
const PATH: &str = "path:";
/// What is written before an image's name.
const IMAGE: &str = "image:";

impl AgentSource {
    /// What a scenario or a command line means by a word: `model`, `build`, `image`, `image:` with the name of one, or the path of
    /// a binary or of an unpacked root file system, with or without `path:`. A relative one is relative to `base`, which is absolute. Whether anything is there is not
    /// looked at.
    pub fn parse(agent: AgentName, text: &str, base: &Path) -> Result<Self, String> {
        let path = text.strip_prefix(PATH).unwrap_or(text);
        match text {
            "build" if agent.kind().is_built => Ok(Self::Build),
            "build" => Err(format!(
                "{agent} is not built here: give image, a path, or model"
            )),
            "model" => Ok(Self::Model),
            "image" => Ok(Self::Image(None)),
            _ if text.starts_with(IMAGE) => match text.get(IMAGE.len()..) {
                Some(name) if !name.is_empty() && !name.contains(char::is_whitespace) => {
                    Ok(Self::Image(Some(name.to_owned())))
                }
                _ => Err(format!(
                    "{text:?} is no image: write {IMAGE}HOST/NAME:TAG, or image for that of the version"
                )),
            },
            _ if path.is_empty() => Err(
                "an agent's source is model, build, image, or the path of the real one".to_owned(),
            ),
            // Taken apart and put together, a path loses what means nothing: `./`, `//`.
            _ => Ok(Self::Path(base.join(path).components().collect())),
        }
    }

    /// Whether the agent has the version that is written, before anybody asks the program.
    pub(crate) fn has_the_written_version(&self) -> bool {
        match self {
            Self::Model | Self::Cluster | Self::Build | Self::Image(None) => true,
            Self::Path(_) | Self::Image(Some(_)) => false,
        }
    }
}

impl ClusterSpec {
    /// The version of an agent; `None` where it does not run.
    pub fn version(&self, agent: AgentName) -> Option<&str> {
        (agent.kind().spec)(self).map(|spec| spec.version)
    }

    /// Who stands for an agent; `None` where it does not run.
    pub fn source(&self, agent: AgentName) -> Option<&AgentSource> {
        (agent.kind().spec)(self).map(|spec| spec.source)
    }

    /// Both, to be set; `None` where the agent does not run.
    pub fn agent_mut(&mut self, agent: AgentName) -> Option<AgentSpecMut<'_>> {
        (agent.kind().spec_mut)(self)
    }

    /// The agents that it has.
    pub fn agents(&self) -> impl Iterator<Item = AgentName> {
        let runs = move |agent: &AgentName| self.version(*agent).is_some();
        AgentName::ALL.into_iter().filter(runs)
    }
}

/// `--agents real`: which versions of which agents can be had, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AtHand(BTreeMap<(AgentName, String), AgentSource>);

impl AtHand {
    /// One more.
    pub fn add(&mut self, agent: AgentName, version: &str, source: AgentSource) {
        self.0.insert((agent, version.to_owned()), source);
    }

    /// The source of a version, `1.34.2`, or of any patch of `1.34`.
    fn get(&self, agent: AgentName, version: &str) -> Option<&AgentSource> {
        let mut of_agent = self.0.iter().filter(|((whose, _), _)| *whose == agent);
        let found = of_agent.rfind(|((_, have), _)| version::is(have, version));
        found.map(|(_, source)| source)
    }
}

/// `--agent`: who stands for an agent, whatever the scenario says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentChoice {
    /// Which agent.
    pub agent: AgentName,
    /// Only where it has this version, or a patch version of it.
    pub version: Option<String>,
    /// Who.
    pub source: AgentSource,
}

impl AgentChoice {
    /// Reads `kube-proxy=PATH`, `felix=model` or `kube-proxy@1.34=build`. A relative path is relative to
    /// `base`, which is absolute.
    pub fn parse(text: &str, base: &Path) -> Result<Self, String> {
        let shape = || {
            format!(
                "{text:?} is not NAME=SOURCE, as in kube-proxy=/usr/bin/kube-proxy or kube-proxy@1.34=build"
            )
        };
        let (who, source) = text.split_once('=').ok_or_else(shape)?;
        let (name, version) = match who.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (who, None),
        };
        let agent = AgentName::ALL.into_iter().find(|a| a.as_str() == name);
        let agent = agent.ok_or_else(|| {
            let names = AgentName::ALL.map(AgentName::as_str).join(" or ");
            format!("no agent is called {name:?}; write {names}")
        })?;
        version.map_or(Ok(()), agent.kind().check_version)?;
        Ok(Self {
            agent,
            version: version.map(str::to_owned),
            source: AgentSource::parse(agent, source, base)?,
        })
    }

    /// Whether it is about the agent as the cluster has it.
    pub(crate) fn concerns(&self, cluster: &ClusterSpec) -> bool {
        let wanted = self.version.as_deref();
        cluster
            .version(self.agent)
            .is_some_and(|version| wanted.is_none_or(|wanted| version::is(version, wanted)))
    }
}

/// Gives the agents the chosen sources. Of several choices the one with the longest version wins, of
/// equals the last.
pub(crate) fn choose(cluster: &mut ClusterSpec, choices: &[AgentChoice]) {
    for agent in AgentName::ALL {
        let about = choices.iter().filter(|choice| choice.agent == agent);
        let about = about.filter(|choice| choice.concerns(cluster));
        let length = |choice: &&AgentChoice| choice.version.as_ref().map_or(0, String::len);
        let Some(choice) = about.max_by_key(length) else {
            continue;
        };
        if let Some(spec) = cluster.agent_mut(agent) {
            *spec.source = choice.source.clone();
        }
    }
}

/// Gives kube-proxy the real one where one of each version that it goes through is at hand, its model plays it, and nobody chose that.
pub(crate) fn take(
    cluster: &mut ClusterSpec,
    timeline: &[Step],
    choices: &[AgentChoice],
    at_hand: &AtHand,
) {
    for agent in AgentName::ALL {
        let mut about = choices.iter().filter(|choice| choice.agent == agent);
        if about.any(|choice| choice.concerns(cluster)) {
            continue;
        }
        let later = timeline.iter().filter_map(|step| match step {
            Step::Fault {
                fault: Fault::Upgrade { to, .. },
                ..
            } => to.get(&agent).map(String::as_str),
            _ => None,
        });
        let mut all = cluster.version(agent).into_iter().chain(later);
        let found = all
            .clone()
            .next()
            .and_then(|first| at_hand.get(agent, first));
        let whole = all.all(|version| at_hand.get(agent, version) == found);
        if let Some(source) = found.filter(|_| whole).cloned()
            && let Some(spec) = cluster.agent_mut(agent)
            && *spec.source == AgentSource::Model
        {
            *spec.source = source;
        }
    }
}

/// Leaves agents that nobody chose to the cluster, which brings them along.
pub(crate) fn leave_to_the_cluster(cluster: &mut ClusterSpec, choices: &[AgentChoice]) {
    for agent in AgentName::ALL {
        let mut about = choices.iter().filter(|choice| choice.agent == agent);
        if about.any(|choice| choice.concerns(cluster)) {
            continue;
        }
        if let Some(spec) = cluster.agent_mut(agent)
            && *spec.source == AgentSource::Model
        {
            *spec.source = AgentSource::Cluster;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AgentChoice, String> {
        AgentChoice::parse(text, Path::new("/here"))
    }

    #[test]
    fn a_choice_names_an_agent_its_version_and_a_path_from_here() {
        let choice = parse("kube-proxy@1.20=./bin//kube-proxy").unwrap();
        assert_eq!(choice.agent, AgentName::KubeProxy);
        assert_eq!(choice.version.as_deref(), Some("1.20"));
        let path = "/here/bin/kube-proxy".into();
        assert_eq!(choice.source, AgentSource::Path(path));
        let path = "/opt/a=b@c".into();
        let felix = parse("felix=/opt/a=b@c").unwrap();
        assert_eq!(
            (felix.version, felix.source),
            (None, AgentSource::Path(path))
        );
        assert_eq!(parse("felix=model").unwrap().source, AgentSource::Model);
    }

    #[test]
    fn a_source_is_a_word_or_a_path_and_path_makes_sure_of_it() {
        let source = |text: &str| parse(&format!("kube-proxy={text}")).unwrap().source;
        assert_eq!(source("build"), AgentSource::Build);
        let path = |path: &str| AgentSource::Path(path.into());
        assert_eq!(source("./build"), path("/here/build"));
        assert_eq!(source("images/x"), path("/here/images/x"));
        assert_eq!(source("image"), AgentSource::Image(None));
        let name = "registry.k8s.io/kube-proxy:v1.34.2";
        let image = AgentSource::Image(Some(name.to_owned()));
        assert_eq!(source(&format!("image:{name}")), image);
        assert_eq!(source("path:build"), path("/here/build"));
        assert_eq!(source("path:/opt/x"), path("/opt/x"));
    }

    #[test]
    fn what_no_choice_can_be_is_refused_with_what_to_write() {
        for (text, why) in [
            ("kube-proxy", "is not NAME=SOURCE"),
            (
                "kubeproxy=/x",
                "no agent is called \"kubeproxy\"; write kube-proxy or felix",
            ),
            ("kube-proxy=", "is model, build, image, or the path"),
            ("kube-proxy=path:", "is model, build, image, or the path"),
            (
                "kube-proxy=image:",
                "\"image:\" is no image: write image:HOST/NAME:TAG",
            ),
            ("felix=build", "felix is not built here"),
            (
                "kube-proxy@v1.20=/x",
                "is no version of kube-proxy: write 1.32",
            ),
            ("felix@3.28=/x", "is no version of Calico: write v3.28"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
