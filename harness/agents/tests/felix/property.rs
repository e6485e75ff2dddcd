//! Whatever others did to the tables and whatever failed: in the end Felix's chains are what a Felix
//! would write that knows only the end, everybody else's rules are as they were left, and all is quiet.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use chainbreak_agents::{
    felix::Event,
    step::{Command, Output},
};
use chainbreak_netfilter::{Rule, Ruleset, apply};
use proptest::{collection::vec, prelude::*};
use serde_json::json;

use crate::{
    kube_proxy,
    node::{Exec, Node, config, workload},
};

const TABLES: [&str; 4] = ["raw", "mangle", "nat", "filter"];
const INTERFACES: [&str; 3] = ["cali1a", "cali1b", "cali2a"];

/// One thing that happens. Numbers choose among what is there.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Someone deletes a rule, Felix's or not.
    Delete { table: usize, rule: usize },
    /// Someone flushes a chain.
    Flush { table: usize, chain: usize },
    /// Someone puts a rule of its own at the top or the end of a chain.
    Put {
        table: usize,
        chain: usize,
        top: bool,
    },
    /// Someone makes a chain that looks like Felix's.
    Stray { table: usize },
    /// kube-proxy writes all it has.
    KubeProxy,
    /// A pod comes or goes.
    Pod { pod: usize, there: bool },
    /// So many writes fail from now on.
    Fail { writes: u8 },
    /// Time passes.
    Pass { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let table = || 0..4_usize;
    prop_oneof![
        3 => (table(), any::<usize>()).prop_map(|(table, rule)| Step::Delete { table, rule }),
        1 => (table(), any::<usize>()).prop_map(|(table, chain)| Step::Flush { table, chain }),
        3 => (table(), any::<usize>(), any::<bool>())
            .prop_map(|(table, chain, top)| Step::Put { table, chain, top }),
        1 => table().prop_map(|table| Step::Stray { table }),
        1 => Just(Step::KubeProxy),
        2 => (0..3_usize, any::<bool>()).prop_map(|(pod, there)| Step::Pod { pod, there }),
        1 => (0..5_u8).prop_map(|writes| Step::Fail { writes }),
        3 => (0..20_u64).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// A kernel made of text.
#[derive(Debug, Default)]
struct Kernel {
    rules: Ruleset,
    failing: u8,
    /// Numbers the rules that others put in.
    put: usize,
}

impl Kernel {
    fn run(&mut self, command: &Command) -> Output {
        let mut output = Output::default();
        match command.argv.last().map(String::as_str) {
            Some("--version") => "iptables v1.8.9 (legacy)".clone_into(&mut output.stdout),
            Some(table) if command.argv[0].ends_with("-save") => {
                let tables = self.rules.tables.get_key_value(table).into_iter();
                let tables = tables
                    .map(|(name, table)| (name.clone(), table.clone()))
                    .collect();
                output.stdout = Ruleset { tables }.to_string();
            }
            _ if self.failing > 0 => {
                self.failing -= 1;
                output.exit = 4;
            }
            _ => {
                if let Err(refusal) = apply(&mut self.rules, &command.argv, &command.input) {
                    output.exit = 1;
                    output.stderr = refusal.to_string();
                }
            }
        }
        output
    }

    fn disturb(&mut self, step: Step) {
        let rules = |table: usize| {
            self.rules
                .tables
                .get(TABLES[table])
                .map(|table| &table.chains)
        };
        match step {
            Step::Delete { table, rule } => {
                let chains = rules(table).into_iter().flatten();
                let all = chains.flat_map(|(name, chain)| {
                    (1..=chain.rules.len()).map(move |n| (name.clone(), n))
                });
                if let Some((chain, number)) = pick(all, rule) {
                    self.sh(&["-t", TABLES[table], "-D", &chain, &number.to_string()]);
                }
            }
            Step::Flush { table, chain } => {
                if let Some(chain) = pick(
                    rules(table)
                        .into_iter()
                        .flatten()
                        .map(|(name, _)| name.clone()),
                    chain,
                ) {
                    self.sh(&["-t", TABLES[table], "-F", &chain]);
                }
            }
            Step::Put { table, chain, top } => {
                let chains = rules(table).into_iter().flatten();
                let built_in = chains
                    .filter(|(_, chain)| chain.policy.is_some())
                    .map(|(name, _)| name.clone());
                if let Some(chain) = pick(built_in, chain) {
                    self.put += 1;
                    let comment = format!("foreign {}", self.put);
                    let verb = if top { "-I" } else { "-A" };
                    self.sh(&[
                        "-t",
                        TABLES[table],
                        verb,
                        &chain,
                        "-m",
                        "comment",
                        "--comment",
                        &comment,
                        "-j",
                        "ACCEPT",
                    ]);
                }
            }
            Step::Stray { table } => self.restore(&format!(
                "*{}\n:cali-stray - [0:0]\n-A cali-stray -j DROP\nCOMMIT\n",
                TABLES[table]
            )),
            Step::KubeProxy => self.restore(kube_proxy::RULES),
            Step::Fail { writes } => self.failing = writes,
            Step::Pod { .. } | Step::Pass { .. } => {}
        }
    }

    fn sh(&mut self, arguments: &[&str]) {
        let argv: Vec<&str> = ["iptables"].iter().chain(arguments).copied().collect();
        apply(&mut self.rules, &argv, "").unwrap();
    }

    fn restore(&mut self, input: &str) {
        apply(&mut self.rules, &["iptables-restore", "--noflush"], input).unwrap();
    }

    /// The rules that are neither Felix's nor in Felix's chains, in order.
    fn others(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (table, chain, rule) in self.all() {
            if !is_felix(&chain) && !rule.text.contains("cali:") {
                lines.push(format!("{table} {chain} {}", rule.text));
            }
        }
        lines
    }

    /// Felix's chains, and its rules in the order of their chain.
    fn felix(&self) -> BTreeMap<(String, String), Vec<String>> {
        let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for (name, table) in &self.rules.tables {
            let own = table.chains.keys().filter(|chain| is_felix(chain));
            found.extend(own.map(|chain| ((name.clone(), chain.clone()), Vec::new())));
        }
        for (table, chain, rule) in self.all() {
            if is_felix(&chain) || rule.text.contains("cali:") {
                found.entry((table, chain)).or_default().push(rule.text);
            }
        }
        found
    }

    fn all(&self) -> Vec<(String, String, Rule)> {
        let mut all = Vec::new();
        for (table, contents) in &self.rules.tables {
            for (chain, contents) in &contents.chains {
                let rules = contents.rules.iter().cloned();
                all.extend(rules.map(|rule| (table.clone(), chain.clone(), rule)));
            }
        }
        all
    }
}

fn is_felix(chain: &str) -> bool {
    chain.starts_with("cali-")
}

fn pick<T>(all: impl Iterator<Item = T>, number: usize) -> Option<T> {
    let all: Vec<T> = all.collect();
    let index = number.checked_rem(all.len())?;
    all.into_iter().nth(index)
}

fn start(kernel: &Rc<RefCell<Kernel>>, backend: &str, seed: u64, pods: &BTreeSet<usize>) -> Node {
    let kernel = Rc::clone(kernel);
    let exec: Exec = Rc::new(RefCell::new(move |command: &Command| {
        kernel.borrow_mut().run(command)
    }));
    let mut config = config("v3.28.1");
    config.seed = seed;
    let mut node = Node::new(config, exec);
    node.configure(json!({"iptablesBackend": backend}));
    for &pod in pods {
        node.tell(Event::Workload(workload(INTERFACES[pod])));
    }
    node.tell(Event::InSync);
    node
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn felix_ends_where_a_new_one_would_and_leaves_others_alone(
        steps in vec(step(), 0..25),
        nft in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let backend = if nft { "nft" } else { "legacy" };
        let kernel = Rc::new(RefCell::new(Kernel::default()));
        let mut pods = BTreeSet::new();
        let mut node = start(&kernel, backend, seed, &pods);
        for step in steps {
            kernel.borrow_mut().disturb(step);
            let others = kernel.borrow().others();
            match step {
                Step::Pod { pod, there: true } if pods.insert(pod) => {
                    node.tell(Event::Workload(workload(INTERFACES[pod])));
                }
                Step::Pod { pod, there: false } if pods.remove(&pod) => {
                    let (namespace, name) = ("default".to_owned(), INTERFACES[pod].to_owned());
                    node.tell(Event::WorkloadGone { namespace, name });
                }
                Step::Pass { seconds } => node.pass(Duration::from_secs(seconds)),
                _ => {}
            }
            prop_assert_eq!(kernel.borrow().others(), others);
        }
        // By then the refresh timer has run out at least once after the last disturbance.
        node.pass(Duration::from_secs(200));
        prop_assert_eq!(&node.exited, &None);
        let fresh = Rc::new(RefCell::new(Kernel::default()));
        start(&fresh, backend, 0, &pods);
        prop_assert_eq!(kernel.borrow().felix(), fresh.borrow().felix());
        let writes = node.restores();
        node.pass(Duration::from_secs(1000));
        prop_assert_eq!(node.restores(), writes);
    }
}
