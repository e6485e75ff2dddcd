//! What passes through unchanged, and what happens where nothing can.

use std::time::Duration;

use serde_json::json;

use crate::bench::{Bench, User};

#[tokio::test]
async fn exit_codes_and_signals_are_those_of_the_program() {
    let script = "case $1 in -*) kill $1 $$;; *) exit $1;; esac";
    let mut bench = Bench::with(User::Myself, &[("nft", script)]).await;
    for code in [0, 1, 2, 3, 4, 126, 127, 255] {
        let done = bench.run(&["nft", &code.to_string()], "").await;
        assert_eq!((done.exit, done.signal), (Some(code), None), "{done:?}");
        assert_eq!(bench.command().await.exit, code);
    }
    for signal in [6, 9, 11, 13, 15] {
        let done = bench.run(&["nft", &format!("-{signal}")], "").await;
        assert_eq!((done.exit, done.signal), (None, Some(signal)), "{done:?}");
        assert_eq!(bench.command().await.exit, 128 + signal);
    }
}

#[tokio::test]
async fn arguments_environment_and_place_are_what_the_program_would_have_got() {
    let script = "printf '%s|' \"$0\" \"$@\"; pwd; env | sort; echo $PPID > /tmp/parent";
    let mut bench = Bench::with(User::Myself, &[("nft", script)]).await;
    let argv = ["sh", "-c", "cd /etc; A='x y' nft -f 'a b' '' '*'"];
    let (with, without) = (bench.run(&argv, "").await, bench.run_bare(&argv, "").await);
    assert_eq!(with.stdout, without.stdout);
    assert!(
        with.stdout
            .starts_with("/tmp/own/nft|-f|a b||*|/etc\nA=x y\n"),
        "{with:?}"
    );
    assert_eq!(bench.command().await.argv, ["nft", "-f", "a b", "", "*"]);
    // Whoever looks the program up before is shown the shim; the event has what it would have found.
    let by_path = bench.sh("exec $(command -v nft) -v").await;
    assert!(
        by_path.stdout.starts_with("/tmp/own/nft|-v|"),
        "{by_path:?}"
    );
    assert_eq!(bench.command().await.argv, ["/tmp/own/nft", "-v"]);
}

#[tokio::test]
async fn outputs_keep_their_bytes_and_in_one_pipe_their_order() {
    let script =
        "for n in 1 2 3 4 5 6 7 8 9; do echo out $n; echo err $n >&2; done; printf '\\0\\001x'";
    let mut bench = Bench::with(User::Myself, &[("nft", script)]).await;
    for argv in [["nft", "", ""], ["sh", "-c", "nft 2>&1"]] {
        let (with, without) = (bench.run(&argv, "").await, bench.run_bare(&argv, "").await);
        assert_eq!(with.without_time(), without.without_time());
        assert!(with.stdout.ends_with("\0\u{1}x"));
    }
    let events = bench.recorded(2).await;
    assert!(events[0].command.stderr.starts_with("err 1\nerr 2\n"));
    // One pipe does not say what came from where.
    assert!(
        events[1]
            .command
            .stderr
            .starts_with("out 1\nerr 1\nout 2\n")
    );
}

#[tokio::test]
async fn input_that_a_command_does_not_read_is_left_to_others() {
    let mut bench = Bench::new().await;
    let script =
        "printf 'A\\nB\\nC\\n' | while read chain; do iptables -N $chain; done; iptables -S";
    let done = bench.sh(script).await;
    assert!(done.stdout.ends_with("-N A\n-N B\n-N C\n"), "{done:?}");
    assert_eq!(bench.recorded(4).await.len(), 4);
}

#[tokio::test]
async fn who_feeds_a_program_that_has_heard_enough_is_told_so() {
    let script = "head -c 10; exit 1";
    let mut bench = Bench::with(User::Myself, &[("iptables-restore", script)]).await;
    let input = "0123456789".repeat(1 << 20);
    let (argv, begin) = (["iptables-restore"], "0123456789");
    let (with, without) = (
        bench.run(&argv, &input).await,
        bench.run_bare(&argv, &input).await,
    );
    assert_eq!(with.without_time(), without.without_time());
    assert_eq!(
        (with.fed, with.exit, with.stdout.as_str()),
        (false, Some(1), begin)
    );
    assert!(bench.command().await.input.starts_with(begin));
}

#[tokio::test]
async fn a_signal_for_the_command_is_one_for_the_program() {
    let script = "trap 'echo caught; exit 5' TERM; echo > /tmp/ready; while :; do sleep 0.01; done";
    let mut bench = Bench::with(User::Myself, &[("nft", script)]).await;
    let term = "mkfifo /tmp/ready; nft & read x < /tmp/ready; kill -TERM $!; wait $!; echo $?";
    assert_eq!(bench.sh(term).await.stdout, "caught\n5\n");
    assert_eq!(bench.command().await.exit, 5);
}

#[tokio::test]
async fn a_signal_that_comes_as_soon_as_the_program_runs_reaches_it() {
    let script = "trap 'echo -n .; exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.01; done";
    let mut bench = Bench::with(User::Myself, &[("nft", script)]).await;
    let often = "for i in $(seq 50); do nft || echo $?; done";
    assert_eq!(bench.sh(often).await.stdout, ".".repeat(50));
}

#[tokio::test]
async fn a_shim_needs_nothing_of_the_root_file_system_that_it_runs_in() {
    let mut bench = Bench::new().await;
    // Neither a loader nor a library; the program behind the shim is none.
    let image = "mkdir -p /tmp/root/run /tmp/root/proc /tmp/root/bin; cd /tmp/root; \
                 echo nonsense > bin/nft; chmod +x bin/nft; \
                 mount --rbind /run run; mount --rbind /proc proc";
    assert_eq!(bench.sh(image).await.exit, Some(0));
    bench.bare = "/bin".to_owned();
    bench.install("/tmp/root").await;
    let path = bench.path.clone();
    let inside =
        format!("chroot=$(command -v chroot); PATH={path} exec $chroot /tmp/root nft -f rules");
    bench.path = crate::bench::MACHINE.to_owned();
    let done = bench.sh(&inside).await;
    // What is no program is a shell's script (execvp(3)), and there is no shell either.
    let problem = "nft: /bin/nft: No such file or directory (os error 2)\n";
    assert_eq!((done.exit, done.stderr.as_str()), (Some(127), problem));
    let event = bench.command().await;
    assert_eq!(
        (event.argv.join(" ").as_str(), event.exit),
        ("nft -f rules", 127)
    );
}

#[tokio::test]
async fn without_a_recorder_a_command_fails_with_a_line_that_says_so() {
    let mut bench = Bench::new().await;
    bench.ask(json!("uninstall")).await;
    let done = bench.run(&["iptables", "-N", "MINE"], "").await;
    let line = "iptables: nobody records this command any more: ";
    assert_eq!(done.exit, Some(127), "{done:?}");
    assert!(
        done.stderr.starts_with(line) && done.stderr.lines().count() == 1,
        "{done:?}"
    );
    let rules = bench.run_bare(&["iptables-save"], "").await;
    assert!(!rules.stdout.contains("MINE"));
}

#[tokio::test]
async fn a_command_costs_at_most_two_milliseconds_more() {
    let mut bench = Bench::new().await;
    let cost = bench.cost(&["iptables", "--version"], "", 100).await;
    // On a machine, or beside others, where a process takes n milliseconds, n times as much.
    let bound = Duration::from_millis(2).max(2 * cost.process);
    let (added, alone) = (cost.added, cost.alone);
    assert!(added <= bound, "{added:?} after {alone:?}, bound {bound:?}");
}
