//! Rules and chains as Felix writes them (`felix/iptables/rules.go` and actions.go, v3.28.1).

use std::fmt::Write;

use super::hashes::rule_ids;

const LONGEST_COMMENT: usize = 256;

/// One rule. It has no chain and no number yet: its text depends on the verb it is written with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Rule {
    comments: Vec<String>,
    matches: Vec<String>,
    action: Option<Action>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Jump(String),
    Goto(String),
    Verdict(String),
}

impl Rule {
    /// Jumps to one of Felix's own chains.
    pub(super) fn jump(chain: impl Into<String>) -> Self {
        Self::with(Action::Jump(chain.into()))
    }

    /// Goes to one of Felix's own chains without coming back.
    pub(super) fn goto(chain: impl Into<String>) -> Self {
        Self::with(Action::Goto(chain.into()))
    }

    /// Jumps to a target of the kernel, with its options: `DROP`, `MARK --set-mark 0x1/0x1`.
    pub(super) fn then(target: impl Into<String>) -> Self {
        Self::with(Action::Verdict(target.into()))
    }

    fn with(action: Action) -> Self {
        Self {
            action: Some(action),
            ..Self::default()
        }
    }

    /// Adds a match; matches keep their order.
    #[must_use]
    pub(super) fn when(mut self, criterion: impl Into<String>) -> Self {
        self.matches.push(criterion.into());
        self
    }

    /// Adds a comment, made safe for `iptables-restore` the way Felix does.
    #[must_use]
    pub(super) fn saying(mut self, comment: &str) -> Self {
        let safe = |c: char| if c == '_' || is_safe(c) { c } else { '_' };
        self.comments
            .push(comment.chars().map(safe).take(LONGEST_COMMENT).collect());
        self
    }

    /// The chain of Felix that this rule keeps alive.
    pub(super) fn refers_to(&self) -> Option<&str> {
        match self.action.as_ref()? {
            Action::Jump(chain) | Action::Goto(chain) => Some(chain),
            Action::Verdict(_) => None,
        }
    }

    /// The rule's line: the verb with its chain and number, a prefix that carries the id, and the rule.
    pub(super) fn render(&self, verb: &str, prefix: &str) -> String {
        let mut line = format!("{verb} {prefix}");
        let mut put = |text: std::fmt::Arguments<'_>| {
            line.write_fmt(text).expect("a String takes everything");
        };
        for comment in &self.comments {
            put(format_args!(" -m comment --comment \"{comment}\""));
        }
        for criterion in &self.matches {
            put(format_args!(" {criterion}"));
        }
        match &self.action {
            Some(Action::Jump(target) | Action::Verdict(target)) => {
                put(format_args!(" --jump {target}"));
            }
            Some(Action::Goto(chain)) => put(format_args!(" --goto {chain}")),
            None => {}
        }
        line
    }
}

/// Felix's `[\w @%+=:,./-]`; Go's `\w` is ASCII.
fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || " @%+=:,./-".contains(c)
}

/// A chain with its rules and their ids. Two chains are equal when their rules are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    /// Its name; for always-appended rules the kernel chain's.
    pub(super) name: String,
    /// Its rules in order.
    pub(super) rules: Vec<Rule>,
    /// The rules' ids in order.
    pub(super) ids: Vec<String>,
}

impl Chain {
    /// A chain and the ids of its rules.
    pub(super) fn new(name: impl Into<String>, rules: Vec<Rule>) -> Self {
        let name = name.into();
        let ids = rule_ids(&name, &rules);
        Self { name, rules, ids }
    }

    /// Rules that are always appended to a kernel chain. Their ids come from a name of their own, so
    /// that the same rule inserted and appended has two ids.
    pub(super) fn appended(kernel_chain: &str, rules: Vec<Rule>) -> Self {
        let ids = rule_ids(&format!("{kernel_chain}*appends*"), &rules);
        Self {
            name: kernel_chain.to_owned(),
            rules,
            ids,
        }
    }

    /// Rule `index`'s line with the given verb.
    pub(super) fn line(&self, index: usize, verb: &str) -> String {
        let id = &self.ids[index];
        self.rules[index].render(verb, &format!("-m comment --comment \"cali:{id}\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_written_comment_match_action() {
        let rule = Rule::goto("cali-wl-to-host")
            .saying("a \"b\" [c]")
            .when("--in-interface cali+");
        let chain = Chain::new("cali-INPUT", vec![rule]);
        let id = &chain.ids[0];
        assert_eq!(
            chain.line(0, "-R cali-INPUT 1"),
            format!(
                "-R cali-INPUT 1 -m comment --comment \"cali:{id}\" -m comment --comment \"a _b_ _c_\" \
                 --in-interface cali+ --goto cali-wl-to-host"
            )
        );
    }
}
