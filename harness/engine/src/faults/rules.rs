//! Rules that a third party deletes, and packets that are lost.

use chainbreak_model::{
    case::{ADMIN, Family, RuleBackend, TableRef},
    names::NodeName,
};
use regex::Regex;

use super::{Injection, command};
use crate::{
    cluster::{Debt, Place},
    infra_error::InfraError,
};

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
        let table = rules.table.as_str();
        let argv = flush(rules, chain);
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
            let [list, argv] = list_and_delete(rules, chain);
            let listed = self.run(&at, &list).await?;
            let input = if rules.backend == Some(RuleBackend::Nftables) {
                deletions_of_handles(&listed, rules, chain, &matches)
            } else {
                deletions(&listed, rules, chain, &matches)
            };
            let Some((count, input)) = input else {
                continue;
            };
            self.say(format!("delete {count} of {} {chain} in {at}", rules.table));
            self.run_as(ADMIN, &at, &argv, &input).await?;
            deleted += count;
        }
        if deleted == 0 {
            return Err(trouble(&"there is none"));
        }
        Ok(())
    }

    /// Whether a place has IPv6.
    pub(super) async fn has_v6(&self, at: &Place) -> bool {
        let disabled = self.run(at, &HAS_V6).await;
        disabled.is_ok_and(|disabled| disabled.trim() == "0")
    }

    /// Loses a share of the packets that arrive in a place, before anything else sees them.
    pub(super) async fn loss(&mut self, at: &Place, share: f64) -> Result<(), InfraError> {
        for program in &LOSING[..=usize::from(self.has_v6(at).await)] {
            let [begin, end] = lose(program, share);
            let debt = Debt {
                text: format!("{at} loses no packets any more"),
                at: at.clone(),
                command: command(&end),
                input: String::new(),
            };
            self.undo_by(debt).await?;
            self.run_as(TOOL, at, &begin, "").await?;
        }
        self.say(format!("{at} loses {share}% of the packets that arrive"));
        Ok(())
    }
}

/// Says whether a place has IPv6.
pub(super) const HAS_V6: [&str; 2] = ["cat", "/proc/sys/net/ipv6/conf/all/disable_ipv6"];
/// What packets are lost with; the second where there is IPv6.
pub(super) const LOSING: [&str; 2] = ["iptables", "ip6tables"];

/// What begins and ends a loss. Only what is there can be ended.
pub(super) fn lose(program: &str, share: f64) -> [Vec<String>; 2] {
    let probability = (share / 100.0).to_string();
    let rule = |verb| {
        let rule = [program, "-w", WAIT, "-t", "raw", verb, "PREROUTING"];
        let statistic = ["-m", "statistic", "--mode", "random", "--probability"];
        let drop = [probability.as_str(), "-j", "DROP"];
        [&rule[..], &statistic, &drop].concat()
    };
    let (check, delete) = (rule("-C").join(" "), rule("-D").join(" "));
    let end = format!("if {check} 2>&-; then exec {delete}; fi");
    let words = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect();
    [words(&rule("-I")), words(&["sh", "-c", &end])]
}

/// What deletes every rule.
pub(super) fn flush(rules: &TableRef, chain: Option<&str>) -> Vec<String> {
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
    argv.into_iter().map(str::to_owned).collect()
}

/// What lists a chain's rules, and what then reads which of them to delete.
pub(super) fn list_and_delete(rules: &TableRef, chain: &str) -> [Vec<String>; 2] {
    let (table, family) = (rules.table.as_str(), rules.family.to_string());
    let (save, restore) = (of(rules, "-save"), of(rules, "-restore"));
    let (list, delete) = if rules.backend == Some(RuleBackend::Nftables) {
        let list = vec!["nft", "-a", "list", "chain", &family, table, chain];
        (list, vec!["nft", "-f", "-"])
    } else {
        let delete = vec![restore.as_str(), "-w", WAIT, "--noflush"];
        (vec![save.as_str(), "-t", table], delete)
    };
    [list, delete].map(|argv| argv.into_iter().map(str::to_owned).collect())
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
