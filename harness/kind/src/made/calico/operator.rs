//! Calico by its operator: the operator's manifest, then an Installation, by which the operator makes calico-node and tells by
//! `TigeraStatus`es how far that has come.

use chainbreak_engine::evidence::of_labelled;
use chainbreak_model::{
    case::{Case, ClusterSpec, Fault, IpFamily, Step},
    names::AgentName,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};

use super::{
    Install, Order,
    apply::{apply, definitions, deployed},
    is, patch,
};
use crate::{
    error::KindError,
    made::{config, crds},
    shared::{logs::DaemonPod, signal::rolled_out},
    versions::Version,
    wait::{self, left},
};

/// The operator's Deployment, and its namespace.
pub(super) const NAME: &str = "tigera-operator";
/// From this Calico on its operator (v1.40, `IsNftables` in `api/v1/installation_types.go`; seen of v1.42.3) sets `nftablesMode` of a Felix in eBPF mode.
const NFTABLES_SINCE: Version = Version::of(3, 31, 0);
/// The label `k8s-app` of Typha's pods, beside calico-node.
const TYPHA: &str = "calico-typha";
/// The statuses of what an Installation asks for. Others wait for what nobody asks for here, as that of tiers for an API server of Calico's own
/// (v3.32.1).
const OF_INSTALLATION: [&str; 2] = ["calico", "ippools"];
/// The definitions without which nothing can be asked for. From v3.30 on the operator makes them.
const DEFINED: [&str; 4] = [
    "felixconfigurations.crd.projectcalico.org",
    "ippools.crd.projectcalico.org",
    "installations.operator.tigera.io",
    "tigerastatuses.operator.tigera.io",
];

/// Applies the operator and what it is asked for, and waits until calico-node is ready on every node.
pub(super) async fn install(install: &Install<'_>, manifest: &[Value]) -> Result<(), KindError> {
    let (client, until) = (install.client, install.until);
    let order = &install.order;
    let others = definitions(client, manifest.to_vec()).await?;
    for object in others {
        apply(client, &object).await?;
        if is(&object, "Namespace", NAME)
            && let Some(endpoint) = patch::services_endpoint(order, NAME)
        {
            apply(client, &endpoint).await?;
        }
    }
    deployed(client, NAME, NAME, left(until)).await?;
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for name in DEFINED {
        crds::established(&api, name).await?;
    }
    install.configure().await?;
    apply(client, &installation(order)).await?;
    available(install).await?;
    rolled_out(client, DaemonPod::by_operator(), left(until)).await
}

/// Whether the operator can make Calico for that case.
pub(crate) fn operator_can(case: &Case) -> Result<(), KindError> {
    let why = undoes(case).or_else(|| writes_otherwise(&case.cluster));
    why.map_or(Ok(()), |why| Err(KindError::Unable(why.to_owned())))
}

/// What rules the operator would have Felix write, where the case looks for others.
pub(super) fn writes_otherwise(cluster: &ClusterSpec) -> Option<&'static str> {
    let version = cluster.version(AgentName::Felix).and_then(Version::parse);
    let is_late = version.is_some_and(|it| it >= NFTABLES_SINCE);
    let asks = cluster.felix.get(patch::NFTABLES).and_then(Value::as_str) == Some("Enabled");
    (is_late && patch::bpf(&cluster.felix) && !asks).then_some(
        "from v3.31 on Calico's operator has Felix write its rules to nftables where it is in eBPF mode, and the case does not ask for that: \
         --calico-install manifest, or `felix: { nftablesMode: Enabled }`",
    )
}

/// What of a case the operator would undo: the fields by which agents are stopped and dataplanes chosen are its own.
fn undoes(case: &Case) -> Option<&'static str> {
    let undone = |step: &Step| match step {
        Step::Fault { fault, .. } => match fault {
            Fault::Agent { agent, what, .. } => *agent == AgentName::Felix && what.ends(),
            Fault::Switch { .. } => true,
            _ => false,
        },
        _ => false,
    };
    case.timeline.iter().any(undone).then_some(
        "Calico's operator would undo what the case does to calico-node: --calico-install manifest",
    )
}

/// The Installation `default`.
fn installation(order: &Order<'_>) -> Value {
    let dataplane = if patch::bpf(order.felix) {
        "BPF"
    } else if order.felix.get(patch::NFTABLES).and_then(Value::as_str) == Some("Enabled") {
        "Nftables"
    } else {
        "Iptables"
    };
    let annotations = json!({ patch::NEW: patch::generation(order) });
    let mut template = json!({ "metadata": { "annotations": annotations } });
    if dataplane == "BPF" {
        let limits = json!({ "limits": { "memory": patch::BPF_MEMORY } });
        let containers = json!([{ "name": "calico-node", "resources": limits }]);
        template["spec"] = json!({ "containers": containers });
    }
    json!({
        "apiVersion": "operator.tigera.io/v1",
        "kind": "Installation",
        "metadata": { "name": "default" },
        "spec": {
            "variant": "Calico",
            // Of what these would add, no case speaks.
            "flexVolumePath": "None",
            "kubeletVolumePluginPath": "None",
            "controlPlaneReplicas": 1,
            "calicoNetwork": {
                "linuxDataplane": dataplane,
                "bgp": "Enabled",
                "ipPools": pools(order),
            },
            "calicoNodeDaemonSet": { "spec": { "template": template } },
        },
    })
}

/// As by the manifest: nothing is encapsulated. A case's own pools are not the operator's.
fn pools(order: &Order<'_>) -> Vec<Value> {
    if !order.pools.is_empty() {
        return Vec::new();
    }
    let pool = |family: &IpFamily| {
        let (name, cidr) = match family {
            IpFamily::V4 => ("default-ipv4-ippool", config::PODS.0),
            IpFamily::V6 => ("default-ipv6-ippool", config::PODS.1),
        };
        let nat = match family {
            IpFamily::V4 => "Enabled",
            IpFamily::V6 => "Disabled",
        };
        json!({ "name": name, "cidr": cidr, "encapsulation": "None", "natOutgoing": nat, "nodeSelector": "all()" })
    };
    order.spec.ip_families.iter().map(pool).collect()
}

/// Waits until the operator says that all it was asked for by this Installation is there.
async fn available(install: &Install<'_>) -> Result<(), KindError> {
    let statuses = of_tigera(install.client, "TigeraStatus", "tigerastatuses");
    let installations = of_tigera(install.client, "Installation", "installations");
    let look = || async {
        let asked = installations.get("default").await;
        let asked = asked.map_err(|error| error.to_string())?;
        let listed = statuses.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| error.to_string())?.items;
        if !listed.iter().any(|status| status.name_any() == "calico") {
            return Err("the operator has said nothing of calico yet".to_owned());
        }
        let generation = asked.metadata.generation.unwrap_or_default();
        let of_ours = listed
            .iter()
            .filter(|it| OF_INSTALLATION.contains(&&*it.name_any()));
        let mut missing = of_ours.filter_map(|status| missing(status, generation));
        missing.next().map_or(Ok(()), Err)
    };
    let evidence = || async {
        let (client, operators) = (install.client, DaemonPod::by_operator());
        // calico-node waits for Typha, and is not ready before that.
        let mut text = of_labelled(client, operators.namespace, TYPHA).await;
        text += &operators.evidence(client).await;
        text += &of_labelled(client, NAME, NAME).await;
        text
    };
    let what = "the operator says that Calico is available";
    wait::until(what, left(install.until), look, evidence).await
}

/// What a status lacks to be Available; of calico's own, for that generation of the Installation.
fn missing(status: &DynamicObject, generation: i64) -> Option<String> {
    let name = status.name_any();
    let conditions = status.data["status"]["conditions"].as_array();
    let of = |kind: &str| {
        let mut all = conditions.into_iter().flatten();
        all.find(|it| it["type"] == kind)
    };
    let newest = |it: &Value| {
        let seen = it["observedGeneration"].as_i64().unwrap_or(generation);
        name != "calico" || seen >= generation
    };
    if of("Available").is_some_and(|it| it["status"] == "True" && newest(it)) {
        return None;
    }
    let told = ["Degraded", "Progressing"].map(|kind| of(kind).filter(|it| it["status"] == "True"));
    let told = told.into_iter().flatten().next();
    let why = told.and_then(|it| it["message"].as_str());
    Some(format!(
        "{name} is not available: {}",
        why.unwrap_or("it does not say why")
    ))
}

fn of_tigera(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("operator.tigera.io", "v1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::all_with(client.clone(), &resource)
}
