//! Which command took away a rule or an element that was seen missing, or made one that was not to be there: the node's rules are rebuilt
//! from the history's commands, and asked before and after each of that moment as observers ask the kernel. What the rebuilt rules do
//! not show names nobody.

use chainbreak_model::{
    case::{Case, ElementQuery, Family, Finder, Query, RuleBackend, RuleQuery},
    event::{Event, EventKind},
    names::{AgentName, NodeName},
    verdict::Span,
};
use chainbreak_netfilter::{
    self as netfilter, Change,
    replay::{Backend, Replay},
};

use crate::{
    attribution::{Cause, SEEN_LATE_US, removal},
    deeds::Verb,
    edits::{self, EditIndex, Link, RuleEdit},
};

/// What a promise asked observers for, and in which history.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) case: &'a Case,
    pub(crate) events: &'a [Event],
    pub(crate) index: &'a EditIndex<'a>,
    pub(crate) query: Query<'a>,
    /// It was promised not to be there.
    pub(crate) forbidden: bool,
}

impl Asked<'_> {
    /// Who began each of the times at which it was not as promised on a node.
    pub(crate) fn causes(&self, node: &NodeName, spans: &[Span]) -> Vec<Option<Cause>> {
        let looks = self.looks(node);
        let moments = spans.iter().map(|span| self.moment(&looks, span.from_us));
        let moments: Vec<Moment> = moments.collect();
        let course = self.course(node, &moments);
        let cause = |moment: &Moment| match &course {
            Some(course) if course.is_known(moment) => self.turned(node, course, moment),
            _ => self.removed(node, moment.until_us),
        };
        moments.iter().map(cause).collect()
    }

    /// Whether it was seen to be as promised on a node before then.
    pub(crate) fn was_otherwise(&self, node: &NodeName, before_us: u64) -> bool {
        let mut looks = self.looks(node).into_iter();
        looks.any(|(at_us, is_wrong)| at_us < before_us && !is_wrong)
    }

    /// When a node was looked at, and whether it was not as promised then.
    fn looks(&self, node: &NodeName) -> Vec<(u64, bool)> {
        let asked = chainbreak_model::Asked::new(self.case, self.query);
        let looks = self.events.iter().filter_map(|event| match &event.what {
            EventKind::Rules(seen) if seen.node == *node && asked.is(&seen.query) => {
                Some((event.at_us, (seen.count > 0) == self.forbidden))
            }
            _ => None,
        });
        looks.collect()
    }

    /// What may have begun a time that is judged from then on. What is judged may begin later than it was wrong. Nothing is older than looks
    /// are apart, where it was seen to be otherwise before.
    fn moment(&self, looks: &[(u64, bool)], judged_us: u64) -> Moment {
        let is_good = |&(at_us, is_wrong): &(u64, bool)| at_us < judged_us && !is_wrong;
        let good = looks.iter().rposition(is_good);
        let wrong = looks.iter().skip(good.map_or(0, |at| at + 1));
        let first = wrong.map(|look| look.0).find(|at_us| *at_us <= judged_us);
        let until_us = first.unwrap_or(judged_us);
        let apart = self.events.iter().find_map(|event| match event.what {
            EventKind::Watching { within_us, .. } => Some(within_us),
            _ => None,
        });
        let apart_us = apart.unwrap_or_default() + SEEN_LATE_US;
        let since_us = good.map(|at| {
            let seen_us = looks[at].0.saturating_sub(SEEN_LATE_US);
            seen_us.max(until_us.saturating_sub(apart_us))
        });
        Moment {
            since_us: since_us.unwrap_or_default(),
            until_us,
        }
    }

    /// The commands of those moments after which it was there and was not before, or the other way round. None where not all that wrote on the
    /// node was recorded.
    fn course(&self, node: &NodeName, moments: &[Moment]) -> Option<Course<'_>> {
        let sought = Sought::of(self.query)?;
        let edits: Vec<&RuleEdit<'_>> = self.index.on(node).collect();
        let mut by_kube_proxy = edits.iter().filter(|it| it.is_by(AgentName::KubeProxy));
        if self.case.cluster.kube_proxy.is_some() {
            by_kube_proxy.next()?;
        }
        let is_asked = |edit: &RuleEdit<'_>| edit.writes() && moments.iter().any(|it| it.has(edit));
        let last = edits.iter().rposition(|edit| is_asked(edit));
        let mut course = Course::default();
        let mut replay = edits::before(self.case, &edits);
        let mut before = Some(false);
        let asked = edits.into_iter().take(last.map_or(0, |at| at + 1));
        for edit in asked.filter(|edit| edit.writes()) {
            if is_asked(edit) && before.is_none() {
                before = Some(sought.is_in(&replay));
            }
            if replay.take(edit.ran()).is_err() {
                if self.is_elsewhere(edit) {
                    continue;
                }
                course.known_until_us = Some(edit.began_us());
                break;
            }
            let after = is_asked(edit).then(|| sought.is_in(&replay));
            if let (Some(was), Some(is_there)) = (before, after)
                && was != is_there
            {
                course.turns.push((edit, is_there));
            }
            before = after;
        }
        Some(course)
    }

    /// The last command of the moment that made it so.
    fn turned(&self, node: &NodeName, course: &Course<'_>, moment: &Moment) -> Option<Cause> {
        let settled_us = moment.until_us.saturating_sub(SEEN_LATE_US);
        let of_moment = course.turns.iter().filter(|(edit, _)| moment.has(edit));
        // What was put right again while nobody looked began nothing.
        let began = of_moment
            .rev()
            .take_while(|(edit, is_there)| *is_there == self.forbidden || edit.at_us > settled_us);
        let mut began = began.filter(|(_, is_there)| *is_there == self.forbidden);
        let (edit, _) = began.next()?;
        let is_sure = began.all(|(other, _)| other.command.who == edit.command.who);
        let mut others = self.index.on(node);
        let beside = others.any(|other| edit.is_beside(other) && self.may_touch(other));
        let verb = if self.forbidden {
            Verb::Added
        } else {
            Verb::Deleted
        };
        (is_sure && !beside).then(|| Cause::of(edit, self.link(), verb))
    }

    /// Whether a command may have written to the table.
    fn may_touch(&self, edit: &RuleEdit<'_>) -> bool {
        let (table, family) = match self.query {
            Query::Rule(rule) => (&rule.table, rule.family),
            Query::Element(element) => (&element.table, element.family),
            Query::Counter(_) => return false,
        };
        let argv = edit.command.argv.join(" ");
        let flushes = [&argv, &edit.command.input].map(|it| it.contains("flush ruleset"));
        let is_it = |change: &Change| change.table == *table && change.family == of(family);
        // Of tables for both families, and of blocks, nothing is told.
        let is_told = family != Family::Inet && !edit.changes.is_empty();
        let writes = edit.writes() && edit.command.exit == 0;
        writes && (!is_told || flushes.contains(&true) || edit.changes.iter().any(is_it))
    }

    /// Whether nft was told something of other tables alone: what that made of them is not asked for.
    fn is_elsewhere(&self, edit: &RuleEdit<'_>) -> bool {
        let table = match self.query {
            Query::Rule(rule) => &rule.table,
            Query::Element(element) => &element.table,
            Query::Counter(_) => return false,
        };
        let (argv, input) = (&edit.command.argv, &edit.command.input);
        // What a file has is not known.
        let file = argv.iter().position(|it| it == "-f" || it == "--file");
        let is_told = file.is_none_or(|at| argv.get(at + 1).is_some_and(|it| it == "-"));
        let names = [table.as_str(), "ruleset", "include"];
        let mut texts = argv.iter().skip(1).chain([input]);
        let is_alone = texts.all(|text| !names.iter().any(|name| text.contains(name)));
        edit.program() == "nft" && is_told && is_alone
    }

    /// The command that says itself that it removes what is asked for, also where nobody knows what rules there were.
    fn removed(&self, node: &NodeName, seen_us: u64) -> Option<Cause> {
        let Query::Rule(rule) = self.query else {
            return None;
        };
        // Which rule of a text was deleted no command says; nor is it known whose iptables backend wrote.
        let is_told = rule.matches.is_none() && rule.backend.is_none();
        if self.forbidden || !is_told || rule.family != Family::Ip {
            return None;
        }
        let since_us = seen_us.saturating_sub(SEEN_LATE_US);
        let (link, family) = (self.link(), of(rule.family));
        let effect = |edit: &RuleEdit<'_>| edit.effect_in(family, &link);
        let edit = removal(self.index.on(node), effect, seen_us, since_us)?;
        Some(Cause::removal(edit, link))
    }

    fn link(&self) -> Link {
        let Query::Rule(rule @ RuleQuery { matches: None, .. }) = self.query else {
            return Link::Asked(self.query.to_string());
        };
        let (table, chain) = (rule.table.clone(), rule.chain_name().into_owned());
        match rule.jump.clone() {
            Some(target) => Link::Jump {
                table,
                chain,
                target,
            },
            None => Link::Chain { table, chain },
        }
    }
}

/// Which iptables a family is; tables for both are nft's alone.
pub(crate) fn of(family: Family) -> netfilter::Family {
    match family {
        Family::Ip6 => netfilter::Family::V6,
        Family::Ip | Family::Inet => netfilter::Family::V4,
    }
}

/// In which time a command ran that began something.
#[derive(Debug)]
struct Moment {
    since_us: u64,
    until_us: u64,
}

impl Moment {
    fn has(&self, edit: &RuleEdit<'_>) -> bool {
        edit.began_us() <= self.until_us && edit.at_us >= self.since_us
    }
}

#[derive(Debug, Default)]
struct Course<'a> {
    /// Each with whether it was there afterwards.
    turns: Vec<(&'a RuleEdit<'a>, bool)>,
    /// When a command began that could not be followed.
    known_until_us: Option<u64>,
}

impl Course<'_> {
    /// Whether each command up to the moment could be followed.
    fn is_known(&self, moment: &Moment) -> bool {
        self.known_until_us
            .is_none_or(|known_us| known_us > moment.until_us)
    }
}

/// What is looked for in rebuilt rules.
#[derive(Debug)]
enum Sought {
    Rule(Box<Finder>),
    Element(ElementQuery),
}

impl Sought {
    fn of(query: Query<'_>) -> Option<Self> {
        match query {
            Query::Rule(rule) => Some(Self::Rule(Box::new(Finder::new(rule).ok()?))),
            Query::Element(element) => Some(Self::Element(element.clone())),
            Query::Counter(_) => None,
        }
    }

    fn is_in(&self, replay: &Replay) -> bool {
        match self {
            Self::Rule(finder) => {
                let RuleQuery {
                    table,
                    family,
                    backend,
                    ..
                } = finder.query();
                let of_iptables = |backend| replay.table(backend, of(*family), table);
                let table = match backend {
                    None => of_iptables(None),
                    Some(RuleBackend::Legacy) => of_iptables(Some(Backend::Legacy)),
                    Some(RuleBackend::Nft) => of_iptables(Some(Backend::Nft)),
                    Some(RuleBackend::Nftables) => replay.nft_table(&family.to_string(), table),
                };
                finder.count(table.as_ref()) > 0
            }
            Self::Element(query) => {
                let table = replay.nft_table(&query.family.to_string(), &query.table);
                table.is_some_and(|table| table.has_element(&query.set, &query.element))
            }
        }
    }
}
