//! Calico by its operator: what it is asked for, and what it says.

use std::sync::Arc;

use chainbreak_model::{
    case::{AgentSource, CalicoSpec, PodOwner},
    names::AgentName,
};
use serde_json::json;

use super::cluster::{Fate, custom, endpoint, installed, node_set};
use crate::{
    made::{
        calico::{Way, operator::writes_otherwise},
        spec::tests::with_calico,
    },
    served,
    shared::felix_config,
};

#[tokio::test]
async fn the_operator_is_asked_for_the_dataplane_and_told_where_the_api_is() {
    let client = served::api();
    let mut cluster = with_calico(PodOwner::Calico);
    Arc::make_mut(&mut cluster.felix).insert("bpfEnabled".to_owned(), true.into());
    cluster.kube_proxy = None;
    let done = installed(&client, &cluster, Way::Operator, Fate::Ready, Vec::new()).await;
    done.unwrap();
    let installations = custom(&client, "operator.tigera.io", "Installation");
    let asked = installations.get("default").await.unwrap();
    insta::assert_snapshot!(serde_yaml::to_string(&asked.data["spec"]).unwrap());
    // The operator takes bpfEnabled for its own.
    let felix = felix_config::get(&client).await.unwrap();
    assert_eq!(felix["iptablesBackend"], "NFT");
    assert!(!felix.contains_key("bpfEnabled"), "{felix:?}");
    let endpoint = endpoint(&client, "tigera-operator").await.unwrap();
    assert_eq!(endpoint["KUBERNETES_SERVICE_PORT"], "6443");
    let set = node_set(&client, "calico-system").await;
    assert_eq!(set["status"]["numberReady"], 2, "it was waited for");
    let found = crate::shared::logs::DaemonPod::of(&client, AgentName::Felix).await;
    assert_eq!(
        found.unwrap(),
        crate::shared::logs::DaemonPod::by_operator()
    );
}

#[tokio::test]
async fn what_the_operator_cannot_do_is_said_in_its_own_words() {
    let client = served::api();
    let cluster = with_calico(PodOwner::Calico);
    let done = installed(&client, &cluster, Way::Operator, Fate::Degraded, Vec::new()).await;
    let said = done.unwrap_err().to_string();
    let why = "calico is not available: Could not resolve CalicoNetwork IPPool";
    assert!(said.contains(why), "{said}");
}

#[test]
fn a_felix_in_ebpf_mode_that_writes_nftables_by_the_operator_alone_is_not_what_a_case_asks_for() {
    for (version, felix, refused) in [
        ("v3.32.1", json!({ "bpfEnabled": true }), true),
        (
            "v3.31.0",
            json!({ "bpfEnabled": true, "nftablesMode": "Auto" }),
            true,
        ),
        (
            "v3.32.1",
            json!({ "bpfEnabled": true, "nftablesMode": "Enabled" }),
            false,
        ),
        ("v3.32.1", json!({}), false),
        ("v3.30.7", json!({ "bpfEnabled": true }), false),
    ] {
        let mut cluster = with_calico(PodOwner::Calico);
        cluster.calico = Some(CalicoSpec::new(
            version,
            AgentSource::Cluster,
            PodOwner::Calico,
        ));
        cluster.felix = Arc::new(felix.as_object().unwrap().clone());
        let why = writes_otherwise(&cluster);
        assert_eq!(why.is_some(), refused, "{version} {felix}: {why:?}");
    }
}
