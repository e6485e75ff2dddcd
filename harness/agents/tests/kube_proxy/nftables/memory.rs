//! nft's tables in memory against the real nft: kube-proxy's own transactions, and what others do between them,
//! leave the same in both and are refused by both.

use std::collections::BTreeMap;

use chainbreak_agents::step::{Command, Output};
use chainbreak_netfilter::nft;
use proptest::{collection::vec, prelude::*};

use super::nftables;
use crate::{
    convergence::{Api, happen, step},
    desk::{Desk, HOUR, Kernel, SECOND},
    netns::{BACKENDS, Netns},
};

/// Runs each transaction in both.
struct Both {
    netns: Netns,
    tables: nft::Tables,
    /// How many were refused.
    refused: usize,
}

impl Both {
    fn new() -> Self {
        Self {
            netns: Netns::new(BACKENDS[0]),
            tables: nft::Tables::default(),
            refused: 0,
        }
    }

    /// Somebody else's transaction.
    fn plant(&mut self, input: &str) {
        let argv = ["nft", "-f", "-"].map(str::to_owned).to_vec();
        let input = input.to_owned();
        self.run(&Command { argv, input });
    }

    /// What stands in each, in one spelling.
    fn standing(&mut self) -> [BTreeMap<String, Vec<String>>; 2] {
        let listed = nft::listing(&self.netns.sh("nft list ruleset")).unwrap();
        let listed = listed.iter().flat_map(nft::places).collect();
        [listed, self.tables.places()].map(spelled)
    }
}

impl Kernel for Both {
    fn run(&mut self, command: &Command) -> Output {
        let output = self.netns.run(command);
        if command.argv == ["nft", "-f", "-"] {
            let done = self.tables.apply(&command.input);
            let (input, stderr) = (&command.input, &output.stderr);
            assert_eq!(
                output.exit == 0,
                done.is_ok(),
                "{done:?}: {stderr}\n{input}"
            );
            if let Err(refusal) = done {
                let told = refusal.to_string();
                let reason = told.rsplit(": ").next().unwrap();
                assert!(stderr.contains(reason), "{told}, not {stderr}");
                self.refused += 1;
            }
        }
        output
    }
}

fn spelled(places: Vec<(String, Vec<String>)>) -> BTreeMap<String, Vec<String>> {
    let spelled = places.into_iter().map(|(place, lines)| {
        let mut lines: Vec<String> = lines.iter().map(|it| nft::normal(it)).collect();
        if !place.contains(" chain ") {
            lines.sort();
        }
        (place, lines)
    });
    spelled.collect()
}

/// What somebody else does: a chain or a map is emptied, an element or the whole table goes.
fn harm() -> impl Strategy<Value = Option<&'static str>> {
    prop::option::weighted(
        0.3,
        prop::sample::select(vec![
            "flush chain ip kube-proxy services\n",
            "flush map ip kube-proxy service-ips\n",
            "flush set ip kube-proxy cluster-ips\n",
            "add rule ip kube-proxy masquerading ip saddr { 10.0.0.0/8 , 10.1.0.0/16 } accept\n",
            "delete table ip kube-proxy\n",
            "delete map ip kube-proxy service-ips\n",
        ]),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn memory_and_kernel_have_the_same_after_every_transaction(
        version in prop::sample::select(vec!["1.31", "1.33", "1.34", "1.36"]),
        steps in vec((step(), harm()), 0..12),
    ) {
        let mut desk = Desk::synced(nftables(version), Both::new(), []);
        let mut api = Api::new();
        for (step, harm) in steps {
            happen(step, &mut desk, &mut api);
            if let Some(input) = harm {
                desk.kernel.plant(input);
            }
            desk.pass(2 * SECOND);
            let [kernel, memory] = desk.kernel.standing();
            prop_assert_eq!(kernel, memory, "{}: {}", version, desk.said());
        }
        desk.pass(HOUR + SECOND);
        let [kernel, memory] = desk.kernel.standing();
        prop_assert_eq!(kernel, memory);
    }
}

#[test]
fn what_the_kernel_refuses_memory_refuses_for_the_same_reason() {
    let mut desk = Desk::synced(nftables("1.34"), Both::new(), []);
    for input in [
        "delete chain ip kube-proxy services\n",
        "delete map ip kube-proxy service-ips\n",
        "delete element ip kube-proxy cluster-ips { 10.9.9.9 }\n",
        "add rule ip kube-proxy services jump nowhere\n",
        "add element ip kube-proxy service-ips { 10.9.9.9 . tcp . 80 : goto nowhere }\n",
        "flush chain ip kube-proxy nowhere\n",
        "delete table ip nowhere\n",
    ] {
        desk.kernel.plant(input);
    }
    assert_eq!(desk.kernel.refused, 7);
}
