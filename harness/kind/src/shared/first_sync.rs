//! Whether a kube-proxy that runs as a pod has synced since it began: by its own metrics, which a node has whatever its kube-proxy logs.

use std::time::Duration;

use crate::{error::KindError, shared::nodes::Node, wait};

/// What its first sync may take, with as many Services as somebody's cluster has.
const WITHIN: Duration = Duration::from_secs(60);
/// Asks at its default address (`metricsBindAddress`), of whatever a node has with bash.
const ASK: &str = "exec 3<>/dev/tcp/127.0.0.1/10249 && printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3 && exec timeout 5 cat <&3";
/// How often it has synced, with and without success, as it logs that a sync is complete: kube-proxy 1.20.2 (one for all), 1.34.10 (one
/// for each family, from that one's first on).
const SYNCS: &str = "kubeproxy_sync_proxy_rules_duration_seconds_count";

/// Whether the node's kube-proxy says how often it has synced.
pub(crate) async fn is_told(node: &Node) -> bool {
    asked(node).await.is_some()
}

/// Waits for it. It has been seen by [`is_told`] before it was started again.
pub(crate) async fn seen(node: &Node) -> Result<(), KindError> {
    let look = || async {
        match asked(node).await {
            Some(true) => Ok(()),
            Some(false) => Err("it has not synced yet".to_owned()),
            None => Err("its metrics do not say".to_owned()),
        }
    };
    let what = format!("kube-proxy on {} has synced", node.name);
    wait::until(&what, WITHIN, look, wait::nothing).await
}

async fn asked(node: &Node) -> Option<bool> {
    let metrics = node.run(&["bash", "-c", ASK]).await.ok()?;
    has_synced(&metrics)
}

/// `None` where nothing is said of it.
fn has_synced(metrics: &str) -> Option<bool> {
    let values = metrics.lines().filter_map(|line| {
        let after = line.strip_prefix(SYNCS)?;
        let (_labels, value) = after.rsplit_once(' ')?;
        value.parse::<f64>().ok()
    });
    values.map(|syncs| syncs > 0.0).reduce(|a, b| a || b)
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
    fn a_kube_proxy_has_synced_when_it_counted_one_of_any_family() {
        for (metrics, synced) in [
            (OF_FAMILIES, Some(true)),
            (OF_ALL, Some(false)),
            (
                "kubeproxy_sync_proxy_rules_duration_seconds_count 1",
                Some(true),
            ),
            ("go_goroutines 12\n", None),
            ("", None),
        ] {
            assert_eq!(has_synced(metrics), synced, "{metrics}");
        }
    }

    /// A node on which everything that is run says what a file has.
    fn node(file: &std::path::Path) -> Node {
        let cat = format!("cat {}", file.display());
        Node {
            name: "n1".into(),
            registered: "n1".to_owned(),
            address: [127, 0, 0, 1].into(),
            entry: ["sh", "-c", &cat].map(str::to_owned).to_vec(),
            program: String::new(),
        }
    }

    #[tokio::test]
    async fn a_first_sync_is_waited_for_until_the_metrics_count_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("metrics");
        let node = node(&file);
        assert!(!is_told(&node).await);
        std::fs::write(&file, OF_ALL).unwrap();
        assert!(is_told(&node).await);
        let mut waiting = Box::pin(seen(&node));
        let early = tokio::time::timeout(Duration::from_millis(400), &mut waiting).await;
        assert!(early.is_err(), "{early:?}: it has not synced");
        std::fs::write(&file, OF_FAMILIES).unwrap();
        waiting.await.unwrap();
    }
}
