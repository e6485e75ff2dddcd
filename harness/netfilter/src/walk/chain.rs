//! The rules of one base chain, and of the chains that they lead to.

use super::{
    matches::{Answer, CASES, Match},
    path::{Effect, End, Step},
    program::{Chain, Program},
    rules::{Action, Indexed, Part},
    walker::{Ends, Walker},
};
use crate::counters::Site;

/// More chains than any packet is led through (Linux 6.18: a jump stack of 16 in nftables, of one place for each chain
/// in iptables). Rules that go in circles are in no kernel, but may be in a dump.
const MOST_CHAINS: usize = 10_000;

/// What comes after a rule.
pub(super) enum Next {
    /// The next rule.
    On,
    /// The base chain is done with the packet.
    Done,
    /// Back to the caller.
    Back,
    Jump(usize),
    Goto(usize),
}

/// Which rule is looked at.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) program: &'a Program,
    pub(super) chain: &'a Chain,
    pub(super) rule: &'a Indexed,
    pub(super) number: usize,
}

impl Walker<'_> {
    /// Goes through a base chain.
    pub(super) fn chain(&mut self, program: &Program, base: usize) -> Ends<()> {
        let mut stack = Vec::new();
        let (mut chain, mut from) = (base, 0);
        loop {
            let Some(current) = program.chains.get(chain) else {
                return Ok(());
            };
            let next = match current.next(from, self.flight.packet.dst) {
                Some(number) => {
                    from = number + 1;
                    self.rule(program, current, number)?
                }
                None => Next::Back,
            };
            match next {
                Next::On => {}
                Next::Done => return Ok(()),
                Next::Back => match stack.pop() {
                    Some(caller) => (chain, from) = caller,
                    None => return self.policy(program, base),
                },
                Next::Jump(to) => {
                    stack.push((chain, from));
                    (chain, from) = self.enter(to)?;
                }
                Next::Goto(to) => (chain, from) = self.enter(to)?,
            }
        }
    }

    fn enter(&mut self, chain: usize) -> Ends<(usize, usize)> {
        self.entered += 1;
        if self.entered > MOST_CHAINS {
            return Err(End::Undecided {
                why: "its rules lead in circles".to_owned(),
            });
        }
        Ok((chain, 0))
    }

    fn policy(&mut self, program: &Program, base: usize) -> Ends<()> {
        let Some(chain) = program.chains.get(base) else {
            return Ok(());
        };
        if !chain.drops {
            return Ok(());
        }
        self.steps.push(Step::Policy {
            table: program.table.clone(),
            chain: chain.name.clone(),
            drops: true,
        });
        Err(End::Dropped)
    }

    fn rule(&mut self, program: &Program, chain: &Chain, number: usize) -> Ends<Next> {
        let Some(rule) = chain.rules.get(number) else {
            return Ok(Next::On);
        };
        let at = At {
            program,
            chain,
            rule,
            number,
        };
        let mut open = Vec::new();
        let mut chance = None;
        for part in &rule.parts {
            match part {
                Part::If(condition) => {
                    if !self.fulfils(condition, &mut open, &mut chance) {
                        return Ok(Next::On);
                    }
                }
                Part::Do(action) => {
                    if !self.settle(at, &mut open, &mut chance) {
                        return Ok(Next::On);
                    }
                    match self.act(at, action)? {
                        Next::On => {}
                        next => return Ok(next),
                    }
                }
            }
        }
        Ok(Next::On)
    }

    /// Whether the condition may be fulfilled. What is not certain is noted, and settled when all others are.
    fn fulfils(&self, condition: &Match, open: &mut Vec<String>, chance: &mut Option<u32>) -> bool {
        match condition.ask(&self.flight, self.state) {
            Answer::Yes => {}
            Answer::No => return false,
            Answer::Chance(cases) => *chance = Some(cases),
            Answer::Open(question) => open.push(question),
        }
        true
    }

    /// Takes one way where it is not certain whether the rule matches.
    fn settle(&mut self, at: At<'_>, open: &mut Vec<String>, chance: &mut Option<u32>) -> bool {
        if let Some(cases) = chance.take() {
            let share = f64::from(cases) / f64::from(CASES);
            if self.script.choose(2) == 1 {
                self.share *= 1.0 - share;
                return false;
            }
            self.happens(share, &at.rule.text);
        }
        if open.is_empty() {
            return true;
        }
        let question = format!(
            "whether rule {} of {} in {} matches: {}",
            at.number + 1,
            at.chain.name,
            at.program.table,
            std::mem::take(open).join(" and ")
        );
        self.assume(question, &["it matches", "it does not match"]) == 0
    }

    /// Notes what a rule did.
    pub(super) fn did(&mut self, at: At<'_>, effect: Effect) {
        self.steps.push(Step::Rule {
            site: Site {
                table: at.program.table.clone(),
                chain: at.chain.name.clone(),
                rule: at.rule.text.clone(),
            },
            number: at.number + 1,
            effect,
        });
    }

    fn act(&mut self, at: At<'_>, action: &Action) -> Ends<Next> {
        let name = |chain: usize| {
            let chain = at.program.chains.get(chain);
            chain.map(|it| it.name.clone()).unwrap_or_default()
        };
        let (effect, next) = match action {
            Action::Count => (Effect::Counted, Ok(Next::On)),
            Action::Accept => (Effect::Accept, Ok(Next::Done)),
            Action::Return => (Effect::Return, Ok(Next::Back)),
            Action::Jump(to) => (Effect::Jump(name(*to)), Ok(Next::Jump(*to))),
            Action::Goto(to) => (Effect::Goto(name(*to)), Ok(Next::Goto(*to))),
            Action::Drop => (Effect::Drop, Err(End::Dropped)),
            Action::Reject(with) => {
                let end = End::Rejected { with: with.clone() };
                (Effect::Reject(with.clone()), Err(end))
            }
            Action::Unknown(words) => return self.unknown(at, words),
            Action::OneOf(actions) => {
                let taken = self.chance(actions.len().max(1), &at.rule.text);
                return match actions.get(taken) {
                    Some(action) => self.act(at, action),
                    None => Ok(Next::On),
                };
            }
            Action::Verdict(fields, elements) => return self.look_up(at, fields, elements),
            Action::Mark { .. }
            | Action::ConnectionMark { .. }
            | Action::SaveMark { .. }
            | Action::RestoreMark { .. }
            | Action::Untrack => (self.marks(action), Ok(Next::On)),
            _ => {
                let effect = self.nat(at, action)?;
                self.did(at, effect);
                return Ok(Next::Done);
            }
        };
        self.did(at, effect);
        next
    }

    fn unknown(&mut self, at: At<'_>, words: &str) -> Ends<Next> {
        let question = format!("what {words} does");
        let passes = self.assume(question, &["the packet goes on", "its way ends there"]);
        self.did(at, Effect::Unknown);
        if passes == 0 {
            return Ok(Next::On);
        }
        Err(End::Undecided {
            why: format!("what {words} does is not known"),
        })
    }

    fn look_up(
        &mut self,
        at: At<'_>,
        fields: &[super::elements::Field],
        elements: &super::elements::Elements,
    ) -> Ends<Next> {
        use super::elements::Found;
        match elements.find(&self.flight, fields) {
            Found::Element(Some(action)) => self.act(at, action),
            Found::Element(None) | Found::Nothing => Ok(Next::On),
            Found::Open(words) => self.unknown(at, &words),
        }
    }
}
