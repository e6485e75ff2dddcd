//! What a node's kubelet does: to the node's rules, and before it calls a pod ready.

mod support;

use std::time::{Duration, Instant};

use chainbreak_netfilter::Ruleset;
use serde_json::json;
use support::{User, World, address, case, pod};

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

/// It takes a moment before it has its socket, and then says who it is and whom it sees.
const SLOW_ANSWERER: &str = r#"
    select(undef, undef, undef, 0.5);
    my $socket = IO::Socket::INET->new(LocalPort => 8125, Proto => "udp") or die "$!";
    while (defined($socket->recv(my $said, 512))) {
        $socket->send("${said}x-chainbreak-backend: $ENV{POD}\nx-chainbreak-client: " . $socket->peerhost . "\n");
    }
"#;

/// One question over UDP, and the answer to it.
const ASK: &str = r#"
    my $socket = IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => 8125, Proto => "udp") or die "$!";
    $socket->send("chainbreak-probe 7\n");
    $SIG{ALRM} = sub { die "no answer" };
    alarm 5;
    defined($socket->recv(my $answer, 512)) or die "$!";
    print $answer;
"#;

#[tokio::test]
async fn a_pod_that_answers_over_udp_is_ready_when_its_port_is_bound() {
    let mut world = World::raise(User::Ordinary, &case(1)).await;
    let container = json!({
        "image": "perl:5.36",
        "command": ["perl", "-MIO::Socket::INET", "-e", SLOW_ANSWERER],
        "env": [{ "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
        "ports": [{ "containerPort": 8125, "protocol": "UDP" }],
    });
    let statsd = pod("statsd", "n1", &container);
    world.ask(json!({ "create": statsd })).await;
    let ready = world.ask(json!({ "ready": 1 })).await;
    let at = address(ready.as_array().unwrap(), "statsd");
    let ask = ["perl", "-MIO::Socket::INET", "-e", ASK, &at];
    assert_eq!(
        world.exec("node/n1", &ask).await,
        "chainbreak-probe 7\nx-chainbreak-backend: statsd\nx-chainbreak-client: 10.0.1.1\n"
    );
    world.stop().await;
}

/// It ends while a process of a session of its own holds its standard error.
const LEAVES_ANOTHER: &str = "
    setsid sh -c 'echo up > /run/left; exec sleep 1000' &
    until [ -s /run/left ]; do sleep 0.01; done
    echo no good >&2
    exit 3
";
/// A container's end is told within a second or two.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_container_that_leaves_a_process_in_another_session_ends_and_its_pod_can_be_deleted() {
    let mut world = World::raise(User::Myself, &case(1)).await;
    let container = json!({ "image": "tool", "command": ["sh", "-c", LEAVES_ANOTHER] });
    let mut tool = pod("tool", "n1", &container);
    tool["spec"]["restartPolicy"] = json!("Never");
    world.ask(json!({ "create": tool })).await;
    let said = "container main of pod tool ended with 3: no good";
    let begin = Instant::now();
    loop {
        let events = world.ask(json!("events")).await.to_string();
        if events.contains(said) {
            break;
        }
        assert!(begin.elapsed() < SOON, "the container goes on: {events}");
    }
    world.ask(json!({ "delete": tool })).await;
    world.ask(json!({ "pods": 0 })).await;
    world.stop().await;
}
