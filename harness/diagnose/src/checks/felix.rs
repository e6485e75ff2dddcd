//! Felix beside kube-proxy.

use chainbreak_model::case::Symptom;

use super::Context;
use crate::{
    Finding,
    reproduction::Made,
    tables::{KubeProxy, Tables},
};

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let wrote = |it: &Tables| matches!(it.kube_proxy(), KubeProxy::Iptables | KubeProxy::Canary);
    let is_kube_proxys = context.tables.iter().any(wrote);
    let configuration = context.evidence.objects.felix_configuration();
    let cleans_up = configuration.map(|spec| spec["bpfKubeProxyIptablesCleanupEnabled"] != false);
    // By default it does.
    if !context.ebpf || !is_kube_proxys || cleans_up == Some(false) {
        return Vec::new();
    }
    let what = "Felix in eBPF mode and kube-proxy share this node: Felix deletes kube-proxy's jumps and chains, which kube-proxy writes again";
    let evidence = match cleans_up {
        Some(_) => "FelixConfiguration does not say bpfKubeProxyIptablesCleanupEnabled: false",
        None => {
            "FelixConfiguration was not attached: bpfKubeProxyIptablesCleanupEnabled is true by default"
        }
    };
    let noise = "kube-proxy's restores fail by it, which is noise as long as Felix's programs answer; services die when the programs go blind or go, for the jumps are deleted then";
    vec![
        Finding::odd(Symptom::FelixCleansUp, what)
            .on([evidence, noise].map(str::to_owned))
            .mended_by("remove kube-proxy, or set bpfKubeProxyIptablesCleanupEnabled: false, and lead Felix to the API by its own address (ConfigMap kubernetes-services-endpoint)")
            .made_by(Made {
                // It ends itself for that, and has begun again seconds later.
                steps: ["felix: { bpfEnabled: true }", "settle: 9s"].map(str::to_owned).into(),
                ..Made::default()
            }),
    ]
}

#[cfg(test)]
mod tests {
    use crate::checks::tests::kinds;

    #[test]
    fn felix_beside_kube_proxy_is_found_unless_it_leaves_its_rules_alone() {
        let save = include_str!("../../../netfilter/tests/data/felix-3.28.1-ebpf.save");
        let says = |cleans: bool| {
            format!(
                "{{\"kind\": \"FelixConfiguration\", \"metadata\": {{\"name\": \"default\"}}, \"spec\": {{\"bpfEnabled\": true, \"bpfKubeProxyIptablesCleanupEnabled\": {cleans}}}}}"
            )
        };
        let finds = |texts: &[&str]| kinds(texts).iter().any(|it| it == "felix-cleans-up");
        let has_kube_proxy = save.contains("KUBE-");
        assert_eq!(finds(&[save]), has_kube_proxy);
        assert_eq!(finds(&[save, &says(true)]), has_kube_proxy);
        assert!(!finds(&[save, &says(false)]));
        let beside =
            include_str!("../../../netfilter/tests/data/felix-3.28.1-with-kube-proxy-1.32.3.save");
        assert!(!finds(&[beside]), "in iptables mode both live side by side");
        assert!(finds(&[beside, &says(true)]));
    }
}
