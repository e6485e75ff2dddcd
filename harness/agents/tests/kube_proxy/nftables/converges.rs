//! Whatever happened before, kube-proxy leaves the table that one would write that knows only the end: on
//! the real nft, with transactions that fail.

use chainbreak_agents::step::{Command, Output};
use proptest::{collection::vec, prelude::*};

use super::nftables;
use crate::{
    convergence::{Api, Step, happen, step},
    desk::{Desk, HOUR, Kernel, SECOND, failed},
    netns::{BACKENDS, Netns},
};

/// An nft that refuses transactions while it is told to.
struct Moody {
    netns: Netns,
    refuses: bool,
}

impl Moody {
    fn new() -> Self {
        Self {
            netns: Netns::new(BACKENDS[0]),
            refuses: false,
        }
    }
}

impl Kernel for Moody {
    fn run(&mut self, command: &Command) -> Output {
        if self.refuses && command.argv == ["nft", "-f", "-"] {
            return failed(1, "Error: Could not process rule: Resource busy\n");
        }
        self.netns.run(command)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn any_history_ends_in_the_table_of_its_end(
        version in prop::sample::select(vec!["1.32", "1.33", "1.34", "1.36"]),
        steps in vec(step(), 0..16),
    ) {
        let mut desk = Desk::synced(nftables(version), Moody::new(), []);
        let mut api = Api::new();
        for step in steps {
            match step {
                Step::Restores { fail } => desk.kernel.refuses = fail,
                step => happen(step, &mut desk, &mut api),
            }
        }
        desk.kernel.refuses = false;
        desk.pass(HOUR + SECOND);
        let mut fresh = Desk::synced(nftables(version), Moody::new(), api.into_values());
        let (ends, shall) = (desk.kernel.netns.table(), fresh.kernel.netns.table());
        prop_assert_eq!(ends, shall, "{}: {}", version, desk.said());
    }
}
