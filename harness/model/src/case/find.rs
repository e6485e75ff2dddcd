//! How a rule that a promise asks for is found in a table: by observers of the kernel, and in rules that are rebuilt from a history.

use chainbreak_netfilter::{Chain, Rule, nft::NftTable};
use regex::Regex;

use super::{RuleBackend, RuleQuery};

/// A question for rules, ready to be asked.
#[derive(Debug, Clone)]
pub struct Finder {
    query: RuleQuery,
    chain: String,
    matches: Option<Regex>,
}

impl Finder {
    /// Of a query. What a scenario asks for, the reader has seen to have a valid expression; a history may have another.
    pub fn new(query: &RuleQuery) -> Result<Self, regex::Error> {
        Ok(Self {
            matches: query.matches.as_deref().map(Regex::new).transpose()?,
            chain: query.chain_name().into_owned(),
            query: query.clone(),
        })
    }

    /// What is asked.
    pub fn query(&self) -> &RuleQuery {
        &self.query
    }

    /// What the chain is called.
    pub fn chain_name(&self) -> &str {
        &self.chain
    }

    /// How many there are; without a target and an expression, 1 when the chain is there.
    pub fn count(&self, table: Option<&NftTable>) -> usize {
        let Some(chain) = self.chain(table) else {
            return 0;
        };
        match (&self.query.jump, &self.matches) {
            (None, None) => 1,
            _ => self.of(chain).count(),
        }
    }

    /// The chain, where it is there.
    pub fn chain<'t>(&self, table: Option<&'t NftTable>) -> Option<&'t Chain> {
        table?.table.chains.get(&self.chain)
    }

    /// Those of a chain's rules that are meant.
    pub fn of<'c>(&self, chain: &'c Chain) -> impl Iterator<Item = &'c Rule> {
        chain.rules.iter().filter(|rule| self.is(rule))
    }

    /// Whether a rule is meant.
    pub fn is(&self, rule: &Rule) -> bool {
        let jumps = |jump: &String| match self.query.backend {
            Some(RuleBackend::Nftables) => {
                let words: Vec<&str> = rule.text.split_whitespace().collect();
                words
                    .windows(2)
                    .any(|pair| matches!(pair, ["jump" | "goto", to] if to == jump))
            }
            _ => rule.target().as_deref() == Some(jump),
        };
        self.query.jump.as_ref().is_none_or(jumps)
            && self
                .matches
                .as_ref()
                .is_none_or(|matches| matches.is_match(&rule.text))
    }
}
