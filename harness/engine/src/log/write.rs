//! Which recorded commands may have changed rules of either IP family, and in which tables.
//!
//! In doubt a command may have: to look once more does no harm.

use std::sync::Arc;

use chainbreak_model::{event, names::NodeName};
use chainbreak_netfilter::{Command, Invocation};

use crate::gate::base_name;

/// A recorded command may just have changed rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    at_us: u64,
    node: NodeName,
    /// Empty when the command does not say which.
    tables: Vec<String>,
    /// What a restore, or an `nft -f -`, that succeeded was given.
    committed: Arc<str>,
}

impl Write {
    /// What the command may have done; `None` when it only looked, or failed as a whole.
    pub(super) fn of(at_us: u64, command: &event::Command) -> Option<Self> {
        let tables = tables(command)?;
        let whole = (restores(command) || reads_transaction(command)) && command.exit == 0;
        Some(Self {
            at_us,
            node: command.node.clone(),
            tables,
            committed: if whole { &command.input } else { "" }.into(),
        })
    }

    /// When the command ended, in microseconds since the case began.
    pub fn at_us(&self) -> u64 {
        self.at_us
    }

    /// The input of a restore, or of an `nft -f -`, that succeeded; empty for any other command.
    pub fn committed(&self) -> &str {
        &self.committed
    }

    /// Whether it may have changed one of these tables of that node.
    pub fn concerns(&self, node: &NodeName, tables: &[&str]) -> bool {
        let any = self.tables.is_empty()
            || self
                .tables
                .iter()
                .any(|table| tables.contains(&table.as_str()));
        self.node == *node && any
    }
}

/// The tables that it may have changed: `None` for no table, an empty list for any.
fn tables(command: &event::Command) -> Option<Vec<String>> {
    // A restore commits table by table, any other command does all it was asked to or nothing. (One that
    // was killed has a code above 128, and may have done its work.)
    let in_vain = (1..128).contains(&command.exit) && !restores(command);
    let (program, arguments) = command.argv.split_first()?;
    match base_name(program) {
        // Sets, connections and counters are no rules.
        "ipset" | "conntrack" | "netlink" => return None,
        _ if in_vain => return None,
        "nft" => return (!nft_looks(arguments)).then(Vec::new),
        _ => {}
    }
    match Invocation::parse(&command.argv) {
        Ok(
            Invocation::NoChange
            | Invocation::Restore { test: true, .. }
            | Invocation::Single {
                command: Command::NoChange,
                ..
            },
        ) => None,
        Ok(Invocation::Single { table, .. }) => Some(vec![table]),
        Ok(Invocation::Restore { only, .. }) => Some(only.map_or_else(
            || named(&command.input).map(str::to_owned).collect(),
            |table| vec![table],
        )),
        Err(_) => Some(Vec::new()),
    }
}

/// The tables of a restore's input.
fn named(input: &str) -> impl Iterator<Item = &str> {
    let tables = input.lines().filter_map(|line| line.strip_prefix('*'));
    tables.map(str::trim)
}

fn restores(command: &event::Command) -> bool {
    let invocation = Invocation::parse(&command.argv);
    matches!(invocation, Ok(Invocation::Restore { test: false, .. }))
}

/// Whether it is an `nft` that is told by its input what to do.
fn reads_transaction(command: &event::Command) -> bool {
    let Some((program, arguments)) = command.argv.split_first() else {
        return false;
    };
    let file = arguments
        .iter()
        .position(|word| word == "-f" || word == "--file");
    let input = file.and_then(|at| arguments.get(at + 1));
    base_name(program) == "nft" && input.is_some_and(|input| input == "-")
}

/// Whether an `nft` with these arguments changes nothing: it checks, or its command is one that looks.
/// Options stand before the command, and what stands there alone may be all of it (`nft "list ruleset"`).
fn nft_looks(arguments: &[String]) -> bool {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix('-') else {
            let verb = word.split_whitespace().next();
            return matches!(
                verb,
                Some("list" | "get" | "describe" | "monitor" | "export" | "reset")
            );
        };
        match option.strip_prefix('-') {
            Some("check" | "version" | "help") => return true,
            Some("file" | "includepath" | "define" | "debug") => drop(words.next()),
            Some(_) => {}
            // Letters in a bundle, until one that takes the rest or the next word for its value.
            None => {
                let mut letters = option.chars().skip_while(|c| !"cvVhfIDd".contains(*c));
                match letters.next() {
                    Some('c' | 'v' | 'V' | 'h') => return true,
                    Some(_) if letters.next().is_none() => drop(words.next()),
                    _ => {}
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: &str =
        "*filter\nCOMMIT\n# one more\n*nat\n-A KUBE-SERVICES -j KUBE-SVC-X\nCOMMIT\n";

    fn write(line: &str, exit: i32) -> Option<Write> {
        let command = event::Command {
            who: "felix".to_owned(),
            node: NodeName::from("n1"),
            argv: line.split(' ').map(str::to_owned).collect(),
            input: INPUT.to_owned(),
            exit,
            stderr: String::new(),
            took_us: 1,
            named: Vec::new(),
        };
        Write::of(0, &command)
    }

    fn written(line: &str, exit: i32) -> Option<Vec<String>> {
        write(line, exit).map(|write| write.tables)
    }

    #[test]
    fn what_only_looks_writes_nothing() {
        for line in [
            "iptables-legacy-save -t nat",
            "/usr/sbin/iptables-save -c",
            "xtables-nft-multi iptables-save",
            "iptables -w 5 -C PREROUTING -t nat -j KUBE-SERVICES",
            "iptables -w 5 -W 100000 -S KUBE-SERVICES -t nat",
            "iptables -t nat --list",
            "iptables -nvL",
            "iptables --list-rules",
            "iptables --version",
            "iptables-legacy -V",
            "iptables-restore --test",
            "iptables-nft-restore --version",
            "nft list ruleset",
            "nft --json list tables ip",
            "nft -j -a list table ip calico",
            "nft -c -f -",
            "nft -cf -",
            "nft --check --file -",
            "nft --version",
            "ipset restore",
            "ipset list",
            "conntrack -D -p udp --orig-dst 10.96.0.10",
            "netlink conntrack delete ipv4",
        ] {
            assert_eq!(written(line, 0), None, "{line}");
        }
    }

    #[test]
    fn a_single_command_writes_the_one_table_unless_it_failed() {
        for line in [
            "iptables -w 5 -W 100000 -N KUBE-SERVICES -t nat",
            "/usr/sbin/iptables-legacy -t nat -F",
            "iptables-nft --table=nat --delete-chain KUBE-SEP-X",
            "xtables-legacy-multi iptables -tnat -A KUBE-SERVICES -j RETURN",
            "ip6tables -t nat -N KUBE-SERVICES",
            // A comment is no command.
            "iptables -t nat -A KUBE-SERVICES -m comment --comment -L -j RETURN",
        ] {
            assert_eq!(written(line, 0), Some(vec!["nat".to_owned()]), "{line}");
            assert_eq!(written(line, 1), None, "{line}: the chain is there already");
            assert!(
                written(line, 137).is_some(),
                "{line} may have done its work"
            );
        }
        assert_eq!(
            written("iptables -F FORWARD", 0),
            Some(vec!["filter".to_owned()])
        );
        assert_eq!(written("iptables --unheard-of", 0), Some(Vec::new()));
    }

    #[test]
    fn a_restore_writes_the_tables_of_its_input_also_when_it_failed() {
        for line in [
            "iptables-restore -w 5 -W 100000 --noflush --counters",
            "iptables-legacy-restore --noflush --verbose",
            "/usr/sbin/iptables-nft-restore",
            "ip6tables-restore -w 5 -W 100000 --noflush --counters",
        ] {
            let both = Some(vec!["filter".to_owned(), "nat".to_owned()]);
            assert_eq!(written(line, 0), both, "{line}");
            assert_eq!(
                written(line, 2),
                both,
                "{line}: before the line that failed"
            );
            assert_eq!(write(line, 0).unwrap().committed(), INPUT, "{line}");
            assert_eq!(write(line, 2).unwrap().committed(), "", "{line}");
        }
        assert_eq!(
            written("iptables-restore -T nat", 0),
            Some(vec!["nat".to_owned()])
        );
    }

    #[test]
    fn nft_may_write_any_table_at_once_or_none() {
        for line in [
            "nft flush ruleset",
            "nft -f -",
            "nft --file -",
            "nft -jf -",
            "nft -I list -f -",
            "nft -f/etc/calico.nft",
            "nft add table ip list",
        ] {
            assert_eq!(written(line, 0), Some(Vec::new()), "{line}");
            let transaction = matches!(line, "nft -f -" | "nft --file -" | "nft -I list -f -");
            let committed = if transaction { INPUT } else { "" };
            assert_eq!(write(line, 0).unwrap().committed(), committed, "{line}");
            assert_eq!(written(line, 1), None, "{line}");
        }
    }
}
