//! Who stands for an agent: its model, or a real program that a scenario or the command line names.

use std::path::Path;

use crate::{
    case::{AgentSource, ClusterSpec},
    names::AgentName,
    version,
};

impl AgentSource {
    /// What a scenario or a command line means by a word: `model`, or the path of a binary or of an
    /// unpacked root file system. A relative one is relative to `base`, which is absolute. Whether
    /// anything is there is not looked at.
    pub fn parse(text: &str, base: &Path) -> Result<Self, String> {
        match text.strip_prefix("image:") {
            Some(image) => Err(format!(
                "images cannot be pulled yet: unpack {image} and give the folder of its root file system"
            )),
            None if text.is_empty() => {
                Err("an agent's source is model, or the path of the real one".to_owned())
            }
            None if text == "model" => Ok(Self::Model),
            // Taken apart and put together, a path loses what means nothing: `./`, `//`.
            None => Ok(Self::Path(base.join(text).components().collect())),
        }
    }
}

/// An agent as a case has it.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) version: &'a mut String,
    pub(crate) source: &'a mut AgentSource,
}

impl ClusterSpec {
    /// The version of an agent; `None` where it does not run.
    pub fn version(&self, agent: AgentName) -> Option<&str> {
        match agent {
            AgentName::KubeProxy => self.kube_proxy.as_ref().map(|spec| spec.version.as_str()),
            AgentName::Felix => self.calico.as_ref().map(|spec| spec.version.as_str()),
        }
    }

    /// Who stands for an agent; `None` where it does not run.
    pub fn source(&self, agent: AgentName) -> Option<&AgentSource> {
        match agent {
            AgentName::KubeProxy => self.kube_proxy.as_ref().map(|spec| &spec.source),
            AgentName::Felix => self.calico.as_ref().map(|spec| &spec.source),
        }
    }

    pub(crate) fn settings(&mut self, agent: AgentName) -> Option<Settings<'_>> {
        match agent {
            AgentName::KubeProxy => self.kube_proxy.as_mut().map(|spec| Settings {
                version: &mut spec.version,
                source: &mut spec.source,
            }),
            AgentName::Felix => self.calico.as_mut().map(|spec| Settings {
                version: &mut spec.version,
                source: &mut spec.source,
            }),
        }
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
    /// Reads `kube-proxy=PATH`, `felix=model` or `kube-proxy@1.20=PATH`. A relative path is relative to
    /// `base`, which is absolute.
    pub fn parse(text: &str, base: &Path) -> Result<Self, String> {
        let shape = || format!("{text:?} is not NAME=PATH, as in kube-proxy=/usr/bin/kube-proxy");
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
        version.map_or(Ok(()), |version| match agent {
            AgentName::KubeProxy => version::kube_proxy(version),
            AgentName::Felix => version::calico(version),
        })?;
        Ok(Self {
            agent,
            version: version.map(str::to_owned),
            source: AgentSource::parse(source, base)?,
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
        if let Some(settings) = cluster.settings(agent) {
            *settings.source = choice.source.clone();
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
        if let Some(settings) = cluster.settings(agent)
            && *settings.source == AgentSource::Model
        {
            *settings.source = AgentSource::Cluster;
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
    fn what_no_choice_can_be_is_refused_with_what_to_write() {
        for (text, why) in [
            ("kube-proxy", "is not NAME=PATH"),
            (
                "kubeproxy=/x",
                "no agent is called \"kubeproxy\"; write kube-proxy or felix",
            ),
            ("kube-proxy=", "is model, or the path"),
            (
                "kube-proxy@v1.20=/x",
                "is no version of kube-proxy: write 1.32",
            ),
            ("felix@3.28=/x", "is no version of Calico: write v3.28"),
            (
                "felix=image:quay.io/calico/node:v3.28.1",
                "unpack quay.io/calico/node:v3.28.1",
            ),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
