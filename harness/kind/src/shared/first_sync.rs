//! Whether a kube-proxy that runs as a pod has synced since it began: by its own metrics, which a node has whatever its kube-proxy logs.

use std::time::Duration;

use chainbreak_model::case::IpFamily;

use crate::{error::KindError, shared::nodes::Node, wait};

/// What its first sync may take; below what a step may (30 s), so that the error says what is missing.
const WITHIN: Duration = Duration::from_secs(20);
/// Asks at its default addresses (`metricsBindAddress`: that of IPv6 where the node's first address is one), of whatever a node has with bash.
pub(crate) const ASK: &str = "{ exec 3<>/dev/tcp/127.0.0.1/10249 || exec 3<>/dev/tcp/::1/10249; } 2>/dev/null && \
    printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3 && exec timeout 2 cat <&3";
/// How often it has synced, with and without success, as it logs that a sync is complete: kube-proxy 1.20.2 (one for both families), 1.34.10
/// (one for each family, from that one's first on).
const SYNCS: &str = "kubeproxy_sync_proxy_rules_duration_seconds_count";

/// Whether the node's kube-proxy says how often it has synced.
pub(crate) async fn is_told(node: &Node) -> bool {
    let told = asked(node, &[]).await;
    if told.is_none() {
        tracing::debug!(node = %node.name, "the metrics of kube-proxy cannot be read");
    }
    told.is_some()
}

/// Waits until it has synced each of these families. It is one that tells ([`is_told`]): others are waited for in vain.
pub(crate) async fn seen(node: &Node, families: &[IpFamily]) -> Result<(), KindError> {
    let look = || async {
        match asked(node, families).await {
            Some(true) => Ok(()),
            Some(false) => Err("it has not synced yet".to_owned()),
            None => Err("its metrics do not say".to_owned()),
        }
    };
    let what = format!("kube-proxy on {} has synced", node.name);
    wait::until(&what, WITHIN, look, wait::nothing).await
}

async fn asked(node: &Node, families: &[IpFamily]) -> Option<bool> {
    let metrics = node.run(&["bash", "-c", ASK]).await.ok()?;
    has_synced(&metrics, families)
}

/// Whether it has synced each of these families; `None` where nothing is said of syncs. Where families are counted together it has synced IPv4
/// first.
fn has_synced(metrics: &str, families: &[IpFamily]) -> Option<bool> {
    let counted = metrics.lines().filter_map(|line| {
        let (labels, value) = line.strip_prefix(SYNCS)?.rsplit_once(' ')?;
        Some((labels, value.parse::<usize>().ok()?))
    });
    let counted: Vec<(&str, usize)> = counted.collect();
    let of = |family: &IpFamily| {
        let label = format!("ip_family=\"{family}\"");
        counted
            .iter()
            .any(|(labels, syncs)| labels.contains(&label) && *syncs > 0)
    };
    match counted.as_slice() {
        [] => None,
        [("", syncs)] => Some(*syncs >= families.len()),
        _ => Some(families.iter().all(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of 1.34.10 and of 1.20.2.
    const OF_FAMILIES: &str = "# HELP kubeproxy_sync_proxy_rules_duration_seconds SyncProxyRules latency in seconds\n\
        # TYPE kubeproxy_sync_proxy_rules_duration_seconds histogram\n\
        kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.001\"} 0\n\
        kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family=\"IPv4\"} 0.17\n\
        kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 3\n";
    const OF_ALL: &str = "kubeproxy_sync_proxy_rules_duration_seconds_count 0\n";

    #[test]
    fn a_kube_proxy_has_synced_when_it_counted_each_family_of_the_case() {
        let one = "kubeproxy_sync_proxy_rules_duration_seconds_count 1";
        let (v4, both) = (&[IpFamily::V4][..], &[IpFamily::V4, IpFamily::V6][..]);
        for (metrics, families, synced) in [
            (OF_FAMILIES, v4, Some(true)),
            (OF_FAMILIES, both, Some(false)),
            (OF_FAMILIES, &[IpFamily::V6][..], Some(false)),
            (OF_ALL, v4, Some(false)),
            (one, v4, Some(true)),
            (one, both, Some(false)),
            ("go_goroutines 12\n", v4, None),
            ("", v4, None),
        ] {
            assert_eq!(has_synced(metrics, families), synced, "{metrics}");
        }
    }

    /// A node on which everything that is run says what a file has.
    fn node(file: &std::path::Path) -> Node {
        let cat = format!("cat {}", file.display());
        Node::entered_by(&["sh", "-c", &cat])
    }

    #[tokio::test]
    async fn a_first_sync_is_waited_for_until_the_metrics_count_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("metrics");
        let node = node(&file);
        assert!(!is_told(&node).await);
        std::fs::write(&file, OF_ALL).unwrap();
        assert!(is_told(&node).await);
        let mut waiting = Box::pin(seen(&node, &[IpFamily::V4]));
        let early = tokio::time::timeout(Duration::from_millis(400), &mut waiting).await;
        assert!(early.is_err(), "{early:?}: it has not synced");
        std::fs::write(&file, OF_FAMILIES).unwrap();
        waiting.await.unwrap();
    }
}
