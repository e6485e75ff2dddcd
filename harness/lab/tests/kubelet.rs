//! What a node's kubelet does to the node's rules.

mod support;

use chainbreak_netfilter::Ruleset;
use serde_json::json;
use support::{User, World, case};

/// Both write `KUBE-MARK-DROP`: kube-proxy makes sure that there is one, the kubelet says what it does.
#[tokio::test]
async fn an_old_nodes_kubelet_drops_what_its_kube_proxy_marks() {
    for variant in ["legacy", "nft"] {
        let mut case = case(1);
        case["cluster"]["iptables"] = json!(variant);
        case["cluster"]["kube-proxy"]["iptables"] = json!(variant);
        case["cluster"]["kube-proxy"]["version"] = json!("1.20.2");
        case["cluster"]["calico"] = json!(null);
        let mut world = World::raise(User::Ordinary, &case).await;
        let written =
            "until iptables-save -t nat | grep -q KUBE-POSTROUTING; do :; done; iptables-save";
        let saved = Ruleset::parse(&world.sh("node/n1", written).await).unwrap();
        let texts = |table, chain| -> Vec<String> {
            let chain = saved.chain(table, chain).expect("the chain is there");
            chain.rules.iter().map(|rule| rule.text.clone()).collect()
        };
        assert_eq!(
            texts("nat", "KUBE-MARK-DROP"),
            ["-j MARK --set-xmark 0x8000/0x8000"],
            "{variant}"
        );
        let drops = texts("filter", "KUBE-FIREWALL");
        assert!(
            drops[0].ends_with("-m mark --mark 0x8000/0x8000 -j DROP"),
            "{drops:?}"
        );
        for chain in ["INPUT", "OUTPUT"] {
            assert_eq!(
                saved.count("filter", chain, Some("KUBE-FIREWALL")),
                1,
                "{variant}"
            );
        }
        assert!(
            saved.chain("mangle", "KUBE-IPTABLES-HINT").is_none(),
            "1.24 brought the hint"
        );
        world.stop().await;
    }
}
