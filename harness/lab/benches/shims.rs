//! What a shim adds to a command of a real agent: `cargo bench -p chainbreak-lab --profile dev`.

#![expect(
    dead_code,
    clippy::print_stdout,
    reason = "made of parts of tests, and the figures are what it is for"
)]

#[path = "../tests/shims/bench.rs"]
mod bench;

use bench::Bench;

/// How often each command runs.
const TIMES: usize = 200;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut bench = Bench::new().await;
    let rules = "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -j ACCEPT\n".repeat(10_000);
    let input = format!("*nat\n:KUBE-SERVICES - [0:0]\n{rules}COMMIT\n");
    for (what, argv, input) in [
        ("iptables --version", &["iptables", "--version"][..], ""),
        (
            "iptables-legacy -S",
            &["iptables-legacy", "-w", "5", "-S"],
            "",
        ),
        ("iptables-nft -S", &["iptables-nft", "-w", "5", "-S"], ""),
        ("ipset list", &["ipset", "list"], ""),
        (
            "iptables-legacy-restore, 10,000 rules",
            &["iptables-legacy-restore"],
            &input,
        ),
    ] {
        let times = if input.is_empty() { TIMES } else { TIMES / 10 };
        let cost = bench.cost(argv, input, times).await;
        println!(
            "{what}: {:?} alone, {:?} more with a shim ({times} runs each; a process takes {:?})",
            cost.alone, cost.added, cost.process
        );
    }
}
