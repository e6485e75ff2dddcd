//! A diagnosis in words and as a document.

use chainbreak_diagnose::{
    Complaint, Evidence, Finding, Likeness, Observed, Weight, Writer, has_model_of_programs,
};
use chainbreak_model::{names::AgentName, scenario::Scenario};
use chainbreak_netfilter::dumps::Kind;
use chainbreak_report::text::{self, wrap};
use serde::Serialize;

use crate::args::Answer;

/// Longer lines are continued in the next one.
pub(super) const WIDE: usize = 140;

/// What is said of a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Told<'a> {
    /// Of which node, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<&'a str>,
    pub(super) writers: &'a [Writer],
    pub(super) findings: Vec<Found<'a>>,
    /// What agents complained of beside that.
    pub(super) complaints: &'a [Complaint],
    /// The incidents that it is like, the likest first.
    pub(super) like: &'a [Like],
    /// What would tell more.
    pub(super) missing: &'a [String],
}

/// Says it, as a document where that is asked for.
pub(super) fn say(
    format: Answer,
    document: &impl Serialize,
    human: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match format {
        Answer::Human => crate::say(&human())?,
        Answer::Json => crate::say_as_it_is(&text::document(document)?)?,
    }
    Ok(())
}

/// A finding, and the scenarios that show one of its kind.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Found<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    /// Their names.
    shown_by: Vec<String>,
}

impl<'a> Found<'a> {
    pub(super) fn of(finding: &'a Finding, scenarios: &[Scenario]) -> Self {
        let show = scenarios
            .iter()
            .filter(|it| it.signature.iter().any(|sign| sign.is(finding.kind)));
        let shown_by = show.map(|it| it.name.as_str().to_owned()).collect();
        Self { finding, shown_by }
    }
}

/// So many incidents are told that a node is like.
const ALIKE: usize = 3;

/// An incident that the node is like.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Like {
    /// Scenarios of which the same is seen: by their signs they cannot be told apart.
    scenarios: Vec<String>,
    likely: bool,
    #[serde(flatten)]
    likeness: Likeness,
}

impl Like {
    /// Those that nothing speaks against, the likest first; else the one that less speaks against than the others.
    pub(super) fn of(
        evidence: &Evidence,
        findings: &[Finding],
        observed: Observed,
        scenarios: &[Scenario],
    ) -> Vec<Self> {
        let mut alike: Vec<Self> = Vec::new();
        let likenesses = Likeness::of_each(evidence, findings, observed, scenarios);
        for (scenario, likeness) in likenesses {
            let name = scenario.name.as_str().to_owned();
            match alike.iter_mut().find(|it| it.likeness == likeness) {
                Some(same) => same.scenarios.push(name),
                None => alike.push(Self {
                    scenarios: vec![name],
                    likely: likeness.is_likely(),
                    likeness,
                }),
            }
        }
        alike.retain(|it| it.likeness.is_worth_a_word());
        alike.sort_by_key(|it| it.likeness.rank());
        let likely = alike.iter().filter(|it| it.likely).count();
        alike.truncate(likely.clamp(1, ALIKE));
        alike
    }
}

/// What was not attached.
pub(super) fn missing(evidence: &Evidence) -> Vec<String> {
    let found = evidence.dumps.found();
    let nft = evidence.dumps.nft_tables();
    let of_iptables = nft
        .iter()
        .any(|it| it.name != "kube-proxy" && it.name != "calico");
    let rules = match (found.contains(&Kind::Save), nft.is_empty(), of_iptables) {
        (true, ..) | (false, false, false) => None,
        (false, true, _) => Some("`iptables-save -c` or `nft list ruleset`".to_owned()),
        (false, false, true) => Some("`iptables-save -c`".to_owned()),
    };
    let dumps = [Kind::Flows, Kind::Statistics, Kind::Sysctls];
    let dumps = dumps.into_iter().filter(|kind| !found.contains(kind));
    let dumps = dumps.map(|kind| format!("`{kind}`"));
    let is_attached = !evidence.is_of_one_moment && !has_model_of_programs(&evidence.dumps);
    let has_programs = is_attached && evidence.dumps.is_beside_ebpf();
    let map = has_programs && !found.contains(&Kind::NatMap);
    let map = map.then(|| format!("`{}`", Kind::NatMap));
    let logs = AgentName::ALL
        .into_iter()
        .filter(|agent| evidence.log(*agent).is_none());
    let logs = logs.map(|agent| format!("{agent}'s log"));
    let objects = evidence.objects.is_empty().then(|| {
        "`kubectl get svc,endpointslices,daemonsets,pods -A -o yaml`, and of Calico `kubectl get felixconfigurations,ippools -o yaml`".to_owned()
    });
    rules
        .into_iter()
        .chain(dumps)
        .chain(map)
        .chain(logs)
        .chain(objects)
        .collect()
}

impl Told<'_> {
    /// How many findings are so bad.
    pub(super) fn count(&self, weight: Weight) -> usize {
        let weights = self.findings.iter().map(|it| it.finding.weight);
        weights.filter(|it| *it == weight).count()
    }

    /// In words, but for the node's name.
    pub(super) fn human(&self) -> String {
        let mut parts = vec![self.who(), self.what()];
        parts.extend((!self.complaints.is_empty()).then(|| self.complained()));
        parts.extend((!self.like.is_empty()).then(|| self.alike()));
        if !self.missing.is_empty() {
            parts.push(format!(
                "Not attached, and so not known: {}\n",
                self.missing.join(", ")
            ));
        }
        let lines = parts.join("\n");
        let lines = lines.lines().map(|line| wrap(line, WIDE) + "\n");
        lines.collect()
    }

    fn who(&self) -> String {
        if self.writers.is_empty() {
            return "Nobody's rules are known here.\n".to_owned();
        }
        let wide = self
            .writers
            .iter()
            .map(|it| it.who.chars().count())
            .max()
            .unwrap_or(0);
        let lines = self
            .writers
            .iter()
            .map(|Writer { who, what }| format!("  {who:wide$}  {what}\n"));
        format!("Who wrote these rules:\n{}", lines.collect::<String>())
    }

    fn complained(&self) -> String {
        let parts = self.complaints.iter().map(|complaint| {
            let Complaint { what, lines, mends } = complaint;
            block(&format!("  {what}"), lines, mends.as_deref(), None)
        });
        let parts: String = parts.collect();
        format!("What agents complained of beside that:\n{parts}")
    }

    /// Of signs what they are, and not where they were seen: nodes of which the same is said stand together.
    fn alike(&self) -> String {
        let parts = self.like.iter().map(|it| {
            let likeness = &it.likeness;
            let others = [
                ("but not", &likeness.against),
                ("not known:", &likeness.unknown),
            ];
            let others = others.into_iter().filter(|(_, signs)| !signs.is_empty());
            let others = others.map(|(what, signs)| format!("{what} {}", signs.join(", ")));
            let seen = likeness.seen.iter().map(|it| it.sign.clone());
            let lines: Vec<String> = seen.chain(others).collect();
            block(
                &format!("  {}", it.scenarios.join(", ")),
                &lines,
                None,
                None,
            )
        });
        let parts: String = parts.collect();
        let head = if self.like.iter().any(|it| it.likely) {
            "It is like these incidents, the likest first:"
        } else {
            "It is like no incident that is known; the nearest one:"
        };
        format!("{head}\n{parts}")
    }

    fn what(&self) -> String {
        if self.findings.is_empty() {
            return "Nothing that was attached is inconsistent.\n".to_owned();
        }
        let findings = self.findings.iter().map(|Found { finding, shown_by }| {
            let mark = match finding.weight {
                Weight::Breaks => '✗',
                Weight::Odd => '!',
            };
            let head = format!("{mark} {}", finding.what);
            let shown_by = (!shown_by.is_empty()).then(|| shown_by.join(", "));
            block(&head, &finding.evidence, finding.mends.as_deref(), shown_by)
        });
        findings.collect()
    }
}

/// A head, and below it, indented, what it stands on, what mends it and what shows it.
fn block(head: &str, lines: &[String], mends: Option<&str>, shown_by: Option<String>) -> String {
    let mends = mends.map(|what| format!("mends it: {what}"));
    let shown_by = shown_by.map(|names| format!("shown by: {names}"));
    let below = lines.iter().cloned().chain(mends).chain(shown_by);
    let below = below.map(|line| format!("    {line}\n"));
    format!("{head}\n{}", below.collect::<String>())
}
