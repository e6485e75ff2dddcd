//! Rules that a third party deletes, and packets that are lost.

use chainbreak_model::{
    case::{ADMIN, Family, RuleBackend, TableRef},
    names::NodeName,
};
use regex::Regex;

use super::{
    Injection,
    undo::{How, Undo},
};
use crate::{cluster::Place, infra_error::InfraError};

/// Who puts a fault's own rules there and takes them away.
pub(super) const TOOL: &str = "chainbreak";
/// Seconds for which the lock of iptables is waited for.
const WAIT: &str = "10";

impl Injection<'_> {
    /// Deletes every rule of a chain or of a table.
    pub(super) async fn flush(
        &mut self,
        node: Option<&NodeName>,
        rules: &TableRef,
        chain: Option<&str>,
    ) -> Result<(), InfraError> {
        let (table, family) = (rules.table.as_str(), rules.family.to_string());
        let program = program(rules);
        let mut argv: Vec<&str> = match rules.backend {
            Some(RuleBackend::Nftables) => {
                let what = if chain.is_some() { "chain" } else { "table" };
                vec!["nft", "flush", what, &family, table]
            }
            _ => vec![&program, "-w", WAIT, "-t", table, "-F"],
        };
        argv.extend(chain);
        for node in self.nodes(node) {
            let what = chain.map_or_else(|| table.to_owned(), |chain| format!("{table} {chain}"));
            self.say(format!("flush {what} on {node}"));
            self.run_as(ADMIN, &Place::Node(node), &argv, "").await?;
        }
        Ok(())
    }

    /// Deletes every rule of a chain that the expression matches: on each node all at once, and on some node
    /// at least one.
    pub(super) async fn delete_rule(
        &mut self,
        node: Option<&NodeName>,
        rules: &TableRef,
        chain: &str,
        matches: &str,
    ) -> Result<(), InfraError> {
        let doing = format!("delete the rules of {} {chain} with {matches}", rules.table);
        let trouble = |why: &dyn std::fmt::Display| InfraError::new(doing.clone(), why);
        let matches = Regex::new(matches).map_err(|error| trouble(&error))?;
        let mut deleted = 0;
        for node in self.nodes(node) {
            let at = Place::Node(node);
            let (argv, input) = if rules.backend == Some(RuleBackend::Nftables) {
                let list = self.list_chain(&at, rules, chain).await?;
                let delete = deletions_of_handles(&list, rules, chain, &matches);
                (["nft", "-f", "-"].map(str::to_owned).to_vec(), delete)
            } else {
                let (save, restore) = (of(rules, "-save"), of(rules, "-restore"));
                let saved = self.run(&at, &[&save, "-t", &rules.table]).await?;
                let delete = deletions(&saved, rules, chain, &matches);
                let argv = [restore.as_str(), "-w", WAIT, "--noflush"];
                (argv.map(str::to_owned).to_vec(), delete)
            };
            let Some((count, input)) = input else {
                continue;
            };
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            self.say(format!("delete {count} of {} {chain} in {at}", rules.table));
            self.run_as(ADMIN, &at, &argv, &input).await?;
            deleted += count;
        }
        if deleted == 0 {
            return Err(trouble(&"there is none"));
        }
        Ok(())
    }

    async fn list_chain(
        &self,
        at: &Place,
        rules: &TableRef,
        chain: &str,
    ) -> Result<String, InfraError> {
        let family = rules.family.to_string();
        let argv = ["nft", "-a", "list", "chain", &family, &rules.table, chain];
        self.run(at, &argv).await
    }

    /// Loses a share of the packets that arrive in a place, before anything else sees them.
    pub(super) async fn loss(&mut self, at: &Place, share: f64) -> Result<(), InfraError> {
        let probability = (share / 100.0).to_string();
        let mut programs = vec!["iptables"];
        let v6 = self.run(at, &["cat", "/proc/sys/net/ipv6/conf/all/disable_ipv6"]);
        if v6.await.is_ok_and(|disabled| disabled.trim() == "0") {
            programs.push("ip6tables");
        }
        for program in programs {
            let rule = |verb| -> Vec<&str> {
                let mut argv = vec![program, "-w", WAIT, "-t", "raw", verb, "PREROUTING"];
                argv.extend(["-m", "statistic", "--mode", "random", "--probability"]);
                argv.extend([probability.as_str(), "-j", "DROP"]);
                argv
            };
            let delete = rule("-D");
            // Only what is there can be deleted.
            let check = rule("-C").join(" ");
            let script = format!("if {check} 2>&-; then exec {}; fi", delete.join(" "));
            self.undo.push(Undo {
                text: format!("{at} loses no packets any more"),
                how: How::Command {
                    who: TOOL,
                    at: at.clone(),
                    argv: ["sh".to_owned(), "-c".to_owned(), script].to_vec(),
                    input: String::new(),
                },
            });
            self.run_as(TOOL, at, &rule("-I"), "").await?;
        }
        self.say(format!("{at} loses {share}% of the packets that arrive"));
        Ok(())
    }
}

/// The iptables backend of the table: `iptables`, `ip6tables-legacy`.
fn program(rules: &TableRef) -> String {
    of(rules, "")
}

/// The same with `-save` or `-restore`.
fn of(rules: &TableRef, kind: &str) -> String {
    let family = match rules.family {
        Family::Ip | Family::Inet => "iptables",
        Family::Ip6 => "ip6tables",
    };
    let backend = match rules.backend {
        Some(RuleBackend::Legacy) => "-legacy",
        Some(RuleBackend::Nft) => "-nft",
        Some(RuleBackend::Nftables) | None => "",
    };
    format!("{family}{backend}{kind}")
}

/// How many rules of the chain match, and the restore that deletes them; `None` without any.
fn deletions(
    saved: &str,
    rules: &TableRef,
    chain: &str,
    matches: &Regex,
) -> Option<(usize, String)> {
    let of_chain = format!("-A {chain} ");
    let found = saved.lines().filter(|line| line.starts_with(&of_chain));
    let found = found.filter(|line| matches.is_match(line));
    let found: Vec<String> = found.map(|line| line.replacen("-A", "-D", 1)).collect();
    let input = format!("*{}\n{}\nCOMMIT\n", rules.table, found.join("\n"));
    (!found.is_empty()).then_some((found.len(), input))
}

/// The same for `nft`, whose rules have handles.
fn deletions_of_handles(
    list: &str,
    rules: &TableRef,
    chain: &str,
    matches: &Regex,
) -> Option<(usize, String)> {
    let (family, table) = (rules.family, &rules.table);
    let rules = list
        .lines()
        .filter_map(|line| line.rsplit_once(" # handle "));
    let rules = rules.filter(|(rule, _)| !rule.ends_with('{') && matches.is_match(rule.trim()));
    let delete =
        rules.map(|(_, handle)| format!("delete rule {family} {table} {chain} handle {handle}\n"));
    let delete: Vec<String> = delete.collect();
    (!delete.is_empty()).then(|| (delete.len(), delete.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(backend: Option<RuleBackend>) -> TableRef {
        TableRef {
            backend,
            family: Family::Ip,
            table: "nat".to_owned(),
        }
    }

    #[test]
    fn the_matching_rules_of_the_chain_are_deleted_as_they_are_written() {
        let saved = "*nat\n:KUBE-SERVICES - [0:0]\n\
             -A PREROUTING -j KUBE-SERVICES\n\
             -A KUBE-SERVICES -d 10.1.2.3/32 -m comment --comment \"a b\" -j KUBE-SVC-X\n\
             -A KUBE-SERVICES-2 -d 10.1.2.3/32 -j KUBE-SVC-X\n\
             -A KUBE-SERVICES -j KUBE-NODEPORTS\nCOMMIT\n";
        let with = |matches: &str| {
            let matches = Regex::new(matches).unwrap();
            deletions(saved, &table(None), "KUBE-SERVICES", &matches)
        };
        let input = "*nat\n-D KUBE-SERVICES -d 10.1.2.3/32 -m comment --comment \"a b\" \
                     -j KUBE-SVC-X\nCOMMIT\n";
        assert_eq!(with("KUBE-SVC-X$"), Some((1, input.to_owned())));
        assert_eq!(with("KUBE-SEP"), None);
        assert_eq!(with("").map(|(count, _)| count), Some(2));
    }

    #[test]
    fn native_rules_are_deleted_by_their_handles() {
        let list = "table ip kube-proxy { # handle 3\n\
             \tchain services { # handle 7\n\
             \t\tip daddr . meta l4proto vmap @service-ips # handle 12\n\
             \t\tfib daddr type local goto nodeports # handle 13\n\t}\n}\n";
        let native = TableRef {
            table: "kube-proxy".to_owned(),
            ..table(Some(RuleBackend::Nftables))
        };
        let found = deletions_of_handles(
            list,
            &native,
            "services",
            &Regex::new("vmap|chain").unwrap(),
        );
        let input = "delete rule ip kube-proxy services handle 12\n";
        assert_eq!(found, Some((1, input.to_owned())));
    }

    #[test]
    fn each_table_has_its_backend() {
        assert_eq!(program(&table(None)), "iptables");
        let six = TableRef {
            family: Family::Ip6,
            ..table(Some(RuleBackend::Legacy))
        };
        assert_eq!(of(&six, "-restore"), "ip6tables-legacy-restore");
    }
}
