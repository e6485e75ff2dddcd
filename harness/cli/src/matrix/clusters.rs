//! What of a selection is about real clusters.

use super::quoted;
use crate::args::selection::{CalicoInstall, Cluster, Selection};

/// As each job is given it.
pub(super) fn passed_on(selection: &Selection) -> Vec<String> {
    let kind = &selection.kind;
    let switches = [("--reuse", kind.reuse), ("--preload", kind.preload)];
    let on = switches.into_iter().filter(|(_, on)| *on);
    let mut words: Vec<String> = on.map(|(flag, _)| flag.to_owned()).collect();
    if kind.calico_install == CalicoInstall::Operator {
        words.push("--calico-install operator".to_owned());
    }
    let manifest = kind.calico_manifest.as_ref();
    let manifest = manifest.map(|it| it.display().to_string());
    let Cluster {
        kubeconfig,
        context,
        node_image,
        allow_disruption,
    } = &selection.cluster;
    let kubeconfig = kubeconfig.as_ref().map(|it| it.display().to_string());
    let options = [
        ("--kind-image", &kind.image),
        ("--nginx-image", &kind.nginx_image),
        ("--calico-manifest", &manifest),
        ("--kubeconfig", &kubeconfig),
        ("--context", context),
        ("--node-image", node_image),
        ("--allow-disruption", allow_disruption),
    ];
    let given = options
        .iter()
        .filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
    words.extend(given.map(|(flag, value)| format!("{flag} {}", quoted(value))));
    words
}
