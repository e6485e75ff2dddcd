//! From a case to its cluster: found or made, and brought to where the engine takes over.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use chainbreak_engine::{log::EventLog, logbook::Logbook};
use chainbreak_model::{
    case::{Case, Step},
    event::EventKind,
    names::AgentName,
};
use futures::future::join;
use jiff::Timestamp;
use kube::Client;
use serde_json::json;
use tokio::{sync::Notify, time::Instant};

use crate::{
    agent::Order,
    error::KindError,
    hash::short,
    made::{
        balancers,
        calico::{
            self, Way, own_cgroup,
            own_images::{self, OwnImage},
            pools::pools,
        },
        crds, docker,
        end::EndOfCase,
        fitting::{self, Fitting},
        images,
        journal::Journal,
        owned_cluster::OwnedCluster,
        spec::{Felix, Options, Spec},
        standing::{Origin, Plan, Standing, kubeconfig_of_nodes},
        survey,
        upgrades::Upgrades,
    },
    shared::{
        cluster::{Ours, Raised},
        felix::Models,
        felix_config,
        iptables_backend::restart,
        nodes::Nodes,
        pods::Pods,
        signal, telling,
    },
    versions::{CalicoRelease, Versions},
};

/// Distance of two nodes' seeds, as in the lab.
const STRIDE: u64 = 7919;

/// A cluster that is being raised.
pub(crate) struct Raising<'a> {
    pub(crate) case: &'a Case,
    pub(crate) log: &'a EventLog,
    pub(crate) options: &'a Options,
    /// When what is waited for is given up. After that there is still time to ask why it is not there.
    pub(crate) until: Instant,
    pub(crate) journal: &'a Journal,
    /// Where the cluster is noted as soon as it is ours to delete.
    pub(crate) held: &'a Mutex<Option<Arc<OwnedCluster>>>,
}

impl Raising<'_> {
    pub(crate) fn say(&self, text: impl Into<String>) {
        self.log.append(EventKind::Step { text: text.into() });
    }

    pub(crate) fn fact(&self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        self.log.append(EventKind::Fact { name, value });
    }

    /// Everything up to where manifests are applied.
    pub(crate) async fn raise(&self) -> Result<Raised, KindError> {
        let pins = Versions::pinned()?;
        let kind = survey::kind(&pins).await?;
        self.fact("kind", kind);
        let image = images::of_nodes(self.case, self.options, &pins).await?;
        let mut spec = Spec::of(self.case, image, self.options)?;
        // Before anything is made for it.
        let (manifest, own) = self.calico(&mut spec, &pins).await?;
        let wanted = self.images_of_calico(&spec, &manifest, &pins);
        let pinned = || pins.host_nginx.name();
        let plan = Plan {
            spec: &spec,
            manifest: &manifest,
            images: &wanted,
            own: &own_images::places(&own, &wanted)?,
            nginx: &self.options.nginx_image.clone().unwrap_or_else(pinned),
        };
        let Standing {
            owned,
            client,
            nodes,
            mut hosts,
            since,
        } = self.stand(plan).await?;
        let is_foreseen = spec.is_foreseen();
        if !is_foreseen && self.case.cluster.cni.is_some() {
            // Nothing would take its rules away.
            owned.keep_no_longer();
        }
        let (wired, fitting) = join(
            self.wire_hosts(&mut hosts, &client, &nodes, &spec),
            self.fit(&client, &nodes, &spec),
        )
        .await;
        wired?;
        let fitting = fitting?;
        self.facts(&spec, &own);
        let logbook = Logbook::default();
        let raised = Raised {
            pods: Pods::default(),
            ip_families: self.case.cluster.ip_families.clone(),
            hosts: hosts.all.clone(),
            models: Models::new(logbook.clone()),
            ours: Some(Ours::of(self.case, &client, &nodes)),
            logbook,
            felix: self.case.cluster.source(AgentName::Felix).cloned(),
            namespaces: None,
            end: Arc::new(EndOfCase {
                upgrades: self.upgrades(&client, &nodes, &owned),
                owned,
                hosts,
                fitting,
                nodes: nodes.clone(),
                is_foreseen,
                manifests: telling::dress(&objects(self.case), &self.case.cluster.ip_families),
            }),
            tasks: Mutex::default(),
            client,
            nodes,
        };
        self.begin(raised, &spec, since).await
    }

    /// Has nodes and agents as the case wants them.
    async fn fit(&self, client: &Client, nodes: &Nodes, spec: &Spec) -> Result<Fitting, KindError> {
        signal::prepare(client, self.case).await?;
        let fitting = Fitting::of(self.case, nodes).await?;
        let mut settings = self.case.cluster.sysctls.keys();
        if spec.proxy.is_some() && settings.any(|name| fitting::is_of_kube_proxy(name)) {
            restart(client, nodes, AgentName::KubeProxy).await?;
        }
        Ok(fitting)
    }

    fn upgrades(&self, client: &Client, nodes: &Nodes, owned: &Arc<OwnedCluster>) -> Upgrades {
        Upgrades {
            client: client.clone(),
            nodes: nodes.clone(),
            owned: Arc::clone(owned),
            stops_kube_proxy: signal::has_label(self.case, AgentName::KubeProxy),
            ip_families: self.case.cluster.ip_families.clone(),
            chosen: self.options.image.clone(),
            brought: tokio::sync::Mutex::default(),
        }
    }

    /// Calico's manifest, if there is to be a Calico, and what a person gave in place of its images.
    async fn calico(
        &self,
        spec: &mut Spec,
        pins: &Versions,
    ) -> Result<(Vec<serde_json::Value>, Vec<OwnImage>), KindError> {
        let Some(Felix::Calico(version)) = &spec.felix else {
            return Ok((Vec::new(), Vec::new()));
        };
        let manifest = calico::manifest(version, self.options, pins).await?;
        let own = own_images::read(&self.options.calico_images).await?;
        let pools = self.pools();
        let made_of = json!([manifest, own_images::identity(&own), pools]);
        spec.calico_made_of = Some(short(&made_of.to_string()));
        Ok((manifest, own))
    }

    /// The case's own, in the families of its cluster.
    fn pools(&self) -> Vec<serde_json::Value> {
        pools(&self.case.manifests, &self.case.cluster.ip_families)
    }

    fn images_of_calico(
        &self,
        spec: &Spec,
        manifest: &[serde_json::Value],
        pins: &Versions,
    ) -> BTreeSet<String> {
        let mut wanted = images::of_pods(manifest);
        // The operator's manifest does not say what it makes.
        if let (Some(Felix::Calico(version)), Way::Operator) =
            (&spec.felix, self.options.calico_install)
        {
            let release = pins.calico(version);
            wanted.extend(release.into_iter().flat_map(CalicoRelease::of_operator));
        }
        wanted
    }

    /// Images that pods want, and those that a person gave in place of Calico's.
    pub(super) async fn load(
        &self,
        nodes: &Nodes,
        origin: Origin,
        plan: Plan<'_>,
    ) -> Result<(), KindError> {
        if origin == Origin::Made {
            for (own, names) in plan.own {
                self.say(format!("{} is {}", own.told(), names.join(", ")));
            }
            own_images::load(plan.own, nodes).await?;
        }
        if !self.options.preload {
            return Ok(());
        }
        let mut wanted = images::of_pods(&objects(self.case));
        wanted.extend(plan.images.iter().cloned());
        wanted.retain(|name| !plan.own.iter().any(|(_, names)| names.contains(name)));
        for image in wanted {
            self.say(format!("loading {image} into the nodes"));
            docker::have(&image).await?;
            images::load(&image, nodes).await?;
        }
        Ok(())
    }

    /// FelixConfiguration, before Felix starts, and Calico.
    pub(super) async fn configure(
        &self,
        client: &Client,
        nodes: &Nodes,
        origin: Origin,
        Plan { spec, manifest, .. }: Plan<'_>,
        gone: &Notify,
    ) -> Result<(), KindError> {
        let configured = match &spec.felix {
            None => Ok(()),
            Some(Felix::Model) => {
                crds::of_felix(client).await?;
                felix_config::set(client, &self.case.cluster.felix)
                    .await
                    .map(drop)
            }
            Some(Felix::Calico(version)) => {
                if own_cgroup::is_attached_to(self.case) {
                    own_cgroup::prove(nodes).await?;
                }
                let api = nodes.0.first().map(|first| first.address.to_string());
                self.say(match origin {
                    Origin::Made => format!("installing Calico {version}"),
                    Origin::Found => format!("Calico {version} gets the case's FelixConfiguration"),
                });
                let install = calico::Install {
                    client,
                    order: calico::Order {
                        spec,
                        way: self.options.calico_install,
                        felix: &self.case.cluster.felix,
                        pools: self.pools(),
                        api: api.filter(|_| spec.asks_directly()),
                    },
                    until: self.until,
                };
                match origin {
                    Origin::Made => install.apply(manifest).await?,
                    Origin::Found => install.renew(nodes, manifest, gone).await?,
                }
                calico::version::is(nodes, version).await
            }
        };
        // It has in any case now.
        gone.notify_one();
        configured
    }

    fn facts(&self, spec: &Spec, own: &[OwnImage]) {
        let image = &spec.image;
        self.fact("node image", &image.name);
        for own in own {
            self.fact(format!("image of Calico's {}", own.part()), own.told());
        }
        if spec.proxy.is_some() {
            let value = format!("real {}, the cluster's own", image.version);
            self.fact(AgentName::KubeProxy.to_string(), value);
        }
        let felix = match &spec.felix {
            None => return,
            Some(Felix::Calico(version)) => {
                let file = self.options.calico_install.file();
                format!("real {version}, Calico's {file}")
            }
            Some(Felix::Model) => {
                let version = self.case.cluster.version(AgentName::Felix);
                format!("model {} (asked for)", version.unwrap_or_default())
            }
        };
        self.fact(AgentName::Felix.to_string(), felix);
    }

    /// Starts what lives beside the case: logs and models.
    async fn begin(
        &self,
        mut raised: Raised,
        spec: &Spec,
        since: Timestamp,
    ) -> Result<Raised, KindError> {
        let mut tasks = raised.following(self.case, since);
        tasks.spawn(balancers::run(raised.client.clone(), self.log.clone()));
        if spec.felix == Some(Felix::Model) {
            let kubeconfig = kubeconfig_of_nodes(&spec.name()).await?;
            for (node, number) in raised.nodes.0.iter().zip(0..) {
                let order = Order {
                    version: self
                        .case
                        .cluster
                        .version(AgentName::Felix)
                        .unwrap_or_default()
                        .to_owned(),
                    node: node.registered.clone(),
                    seed: self.case.seed.wrapping_add(STRIDE.wrapping_mul(number)),
                    life: 1,
                    ipv6: spec
                        .ip_families
                        .contains(&chainbreak_model::case::IpFamily::V6),
                    kubeconfig: kubeconfig.clone(),
                };
                raised.models.start(node, order, self.log, &mut tasks);
            }
        }
        raised.tasks = Mutex::new(tasks);
        Ok(raised)
    }
}

/// Everything that a case makes, in order.
pub(crate) fn objects(case: &Case) -> Vec<serde_json::Value> {
    let later = case.timeline.iter().filter_map(|step| match step {
        Step::Apply(objects) => Some(objects),
        _ => None,
    });
    let later = later.flatten();
    case.manifests.iter().chain(later).cloned().collect()
}
