//! What is recorded.

use serde_json::json;

use crate::bench::{Bench, Recorded, User};

const RESTORE: &str = "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n";

#[tokio::test]
async fn each_command_of_both_backends_is_an_event_with_all_that_it_was() {
    for user in [User::Myself, User::Ordinary] {
        let mut bench = Bench::with(user, &[]).await;
        for backend in ["legacy", "nft"] {
            let program = |kind: &str| format!("iptables-{backend}{kind}");
            let restore = program("-restore");
            let done = bench.run(&[&restore, "--noflush"], RESTORE).await;
            assert_eq!((done.exit, done.fed), (Some(0), true), "{done:?}");
            let event = bench.command().await;
            assert_eq!(
                (event.who.as_str(), event.node.as_str()),
                ("kube-proxy", "n1")
            );
            assert_eq!(event.argv, [&restore, "--noflush"]);
            assert_eq!((event.input.as_str(), event.exit), (RESTORE, 0));
            let again = [&program(""), "-t", "nat", "-N", "KUBE-SERVICES"];
            let done = bench.run(&again, "").await;
            assert_eq!(done.exit, Some(1), "{done:?}");
            let event = bench.command().await;
            assert_eq!((event.exit, event.stderr), (1, done.stderr));
            let done = bench.run(&[&program("-save"), "-t", "nat"], "").await;
            assert!(done.stdout.contains(":KUBE-SERVICES"), "{done:?}");
            assert_eq!(bench.command().await.input, "");
        }
    }
}

#[tokio::test]
async fn every_name_that_the_machine_has_is_recorded_and_answers_as_ever() {
    let mut bench = Bench::new().await;
    for name in bench.names.clone() {
        let argv = [name.as_str(), "--version"];
        let (with, without) = (bench.run(&argv, "").await, bench.run_bare(&argv, "").await);
        assert_eq!(with.without_time(), without.without_time(), "{name}");
        assert_eq!(bench.command().await.argv, argv);
    }
}

#[tokio::test]
async fn only_what_the_agent_can_find_in_its_root_gets_a_shim() {
    let mut bench = Bench::new().await;
    // As in Debian's images: absolute links, which mean something else outside of the root.
    let image = "mkdir -p /tmp/root/usr/sbin /tmp/root/etc; cd /tmp/root; \
                 ln -s /etc/iptables usr/sbin/iptables; ln -s /usr/sbin/multi etc/iptables; \
                 ln -s /usr/sbin/ipset usr/sbin/ipset; \
                 touch usr/sbin/multi usr/sbin/conntrack; chmod +x usr/sbin/multi";
    assert_eq!(bench.sh(image).await.exit, Some(0));
    bench.install("/tmp/root").await;
    assert_eq!(bench.names, ["iptables"]);
}

#[tokio::test]
async fn a_wrapper_that_runs_another_program_is_one_event() {
    // As iptables-wrappers does it, by name.
    let script = "exec iptables-nft \"$@\"";
    let mut bench = Bench::with(User::Myself, &[("iptables", script)]).await;
    let done = bench.sh("iptables -N MINE; iptables -S MINE").await;
    assert_eq!(done.stdout, "-N MINE\n");
    let events = bench.recorded(2).await;
    let lines = events.iter().map(|event| event.command.argv.join(" "));
    assert!(
        lines.eq(["iptables -N MINE", "iptables -S MINE"]),
        "{events:?}"
    );
}

#[tokio::test]
async fn ten_megabytes_pass_and_are_recorded_whole() {
    let script = "wc -c; seq 200000; seq 200000 >&2";
    let mut bench = Bench::with(User::Myself, &[("iptables-restore", script)]).await;
    let line = "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -j KUBE-SVC-X\n";
    let input = line.repeat((10 << 20) / line.len());
    let done = bench.run(&["iptables-restore"], &input).await;
    let length = format!("{}\n", input.len());
    assert_eq!(done.stdout.lines().next(), length.lines().next());
    assert!(done.stdout.ends_with("\n200000\n") && done.stderr.ends_with("\n200000\n"));
    let event = bench.command().await;
    assert!(event.input == input, "{} bytes", event.input.len());
    assert!(event.stderr == done.stderr, "{} bytes", event.stderr.len());
}

#[tokio::test]
async fn an_event_has_the_commands_own_times_whenever_they_overlap() {
    let script = "read x < /tmp/$1; exit 0";
    let mut bench = Bench::with(User::Myself, &[("nft", script)]).await;
    bench.sh("mkfifo /tmp/long /tmp/short").await;
    bench.start(&["nft", "long"]).await;
    bench.start(&["sh", "-c", "nft short"]).await;
    bench.sh("echo > /tmp/short; echo > /tmp/long").await;
    let events = bench.recorded(2).await;
    let long = events.iter().find(|event| event.command.argv[1] == "long");
    let short = events.iter().find(|event| event.command.argv[1] == "short");
    let (long, short) = (long.unwrap(), short.unwrap());
    let began = |event: &Recorded| event.at_us - event.command.took_us;
    assert!(began(long) < short.at_us && began(short) < long.at_us);
    assert_eq!(
        (bench.end().await.exit, bench.end().await.exit),
        (Some(0), Some(0))
    );
}

#[tokio::test]
async fn a_delay_is_what_the_agent_waits_and_not_the_commands_own_time() {
    let mut bench = Bench::new().await;
    bench.ask(json!({ "delay": ["nft", 300] })).await;
    let done = bench.run(&["nft", "--version"], "").await;
    let event = bench.command().await;
    assert!(done.took_us >= 300_000, "{done:?}");
    // Without the delay, as little as any other process; with it, at least as much.
    assert!(event.took_us < 300_000, "{event:?}");
    let done = bench.run(&["conntrack", "--version"], "").await;
    assert!(done.took_us < 300_000, "{done:?}");
}

#[tokio::test]
async fn a_held_command_does_nothing_until_it_is_released() {
    let mut bench = Bench::new().await;
    bench.ask(json!({ "hold": "iptables" })).await;
    bench.start(&["iptables-legacy", "-N", "MINE"]).await;
    let waiting = bench.ask(json!("waiting")).await;
    assert_eq!(waiting, json!(["iptables-legacy", "-N", "MINE"]));
    let rules = bench.run(&["iptables-legacy-save"], "").await;
    assert!(!rules.stdout.contains("MINE"), "{rules:?}");
    bench.ask(json!("release")).await;
    assert_eq!(bench.end().await.exit, Some(0));
    let rules = bench.run(&["iptables-legacy-save"], "").await;
    assert!(rules.stdout.contains("MINE"), "{rules:?}");
}

#[tokio::test]
async fn a_shim_that_is_killed_takes_its_program_along_and_is_an_event() {
    let script = "echo some >&2; echo $$ > /tmp/pid; exec sleep 1000";
    let mut bench = Bench::with(User::Myself, &[("nft", script)]).await;
    // What the shim has passed on it has told before.
    let kill = "mkfifo /tmp/pid /tmp/said; nft -f rules 2> /tmp/said & shim=$!; read said < /tmp/said; \
                read program < /tmp/pid; kill -9 $shim; wait $shim; echo $?; \
                exec tail -s 0.01 --pid $program -f /dev/null";
    let done = bench.sh(kill).await;
    assert_eq!((done.exit, done.stdout.as_str()), (Some(0), "137\n"));
    let event = bench.command().await;
    assert_eq!(
        (event.argv.join(" ").as_str(), event.exit),
        ("nft -f rules", 137)
    );
    assert_eq!(event.stderr, "some\n");
}

#[tokio::test]
async fn a_command_that_is_killed_while_it_is_held_never_runs_and_is_an_event() {
    let mut bench = Bench::with(User::Myself, &[("nft", "touch /tmp/ran")]).await;
    bench.ask(json!({ "hold": "nft" })).await;
    // Who is to be killed is written before there is a command to hold.
    let named = "sh -c 'echo $$ > /tmp/shim; exec nft'; exit $?";
    bench.start(&["sh", "-c", named]).await;
    bench.ask(json!("waiting")).await;
    assert_eq!(bench.sh("kill -9 $(cat /tmp/shim)").await.exit, Some(0));
    let event = bench.command().await;
    assert_eq!((event.argv[0].as_str(), event.exit), ("nft", 137));
    bench.ask(json!("release")).await;
    assert_eq!(bench.end().await.exit, Some(137));
    assert_eq!(bench.sh("test -e /tmp/ran").await.exit, Some(1));
}
