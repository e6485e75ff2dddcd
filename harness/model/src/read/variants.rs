//! `variants:`: overrides laid over the scenario, and what is expected.

use indexmap::IndexMap;

use super::{
    Reader, cluster, expect,
    fields::{Fields, entries, names, note, text, texts},
    is_name,
    manifests::Manifests,
    promises, timeline, traffic,
};
use crate::{
    case::ClusterSpec,
    diagnostic::{Gathered, Place},
    language::{Kind, Mapping, needed, optional},
    matrix::MatrixKey,
    names::{AgentName, VariantName},
    scenario::{Run, Variant},
    version::Range,
    yaml::{Entries, Entry, Node, Value},
};

/// Fields of a variant that stand for a field of `cluster`.
const OF_CLUSTER: [&str; 3] = ["kube-proxy", "calico", "felix"];
/// Fields of a variant that are laid over the scenario's field of that name.
const OF_SCENARIO: [&str; 5] = ["cluster", "manifests", "traffic", "timeline", "promises"];

pub(super) static VARIANT: Mapping = Mapping {
    called: "a variant",
    doc: "Overrides, and what is expected. Mappings are laid over each other key by key; anything else is replaced; `null` takes a key away; `none` takes away an agent, a traffic or a promise.",
    fields: &[
        &[
            needed(
                "expect",
                Kind::Any(&[Kind::Exactly("healthy"), Kind::Fields(&expect::BROKEN)]),
                "`healthy`: every promise is kept. `broken`: exactly these are not, because of `by`.",
            ),
            optional(
                "needs",
                Kind::List(&Kind::Text),
                "Capabilities without which the variant is skipped.",
            ),
            optional(
                "only",
                Kind::Fields(&ONLY),
                "The versions that the variant is about; in others it is skipped.",
            ),
        ],
        &[
            optional(
                "cluster",
                Kind::Over(&Kind::Fields(&cluster::CLUSTER)),
                "Laid over the scenario's, key by key.",
            ),
            optional(
                "kube-proxy",
                Kind::Over(&cluster::KUBE_PROXY_OR_NONE),
                "Laid over the cluster's, key by key; `none` takes it away.",
            ),
            optional(
                "calico",
                Kind::Over(&cluster::CALICO_OR_NONE),
                "Laid over the cluster's, key by key; `none` takes it away.",
            ),
            optional(
                "felix",
                Kind::Over(&Kind::Felix),
                "Laid over the cluster's, key by key.",
            ),
            optional(
                "manifests",
                Kind::Over(&super::OBJECTS),
                "Other objects, in place of the scenario's.",
            ),
            optional(
                "traffic",
                Kind::Over(&Kind::Removable(&Kind::Fields(&traffic::TRAFFIC))),
                "Laid over the scenario's, key by key; `none` takes one away.",
            ),
            optional(
                "timeline",
                Kind::Over(&Kind::NonEmpty(&Kind::OneOf(&timeline::STEP))),
                "Other steps, in place of the scenario's.",
            ),
            optional(
                "promises",
                Kind::Over(&Kind::Removable(&Kind::OneOf(&promises::PROMISE))),
                "Laid over the scenario's; one of another kind takes a promise's place, `none` takes one away.",
            ),
        ],
    ],
};

static ONLY: Mapping = Mapping {
    called: "only",
    doc: "",
    fields: &[&[
        optional(
            "kube-proxy",
            Kind::Text,
            "Of kube-proxy: `>=`, `>`, `<`, `<=` and `=`, joined by commas, as `>=1.26,<1.33`.",
        ),
        optional("calico", Kind::Text, "Of Calico: the same, as `>=v3.28`."),
    ]],
};

/// Each variant costs as much as reading the scenario, and a person cannot tell more apart.
const MOST: usize = 100;

/// The scenario that variants override.
pub(super) struct Base<'a> {
    pub(super) node: &'a Node,
    pub(super) manifests: Manifests,
    /// What it runs by itself; `None` when it has mistakes.
    pub(super) run: Option<Run>,
    pub(super) needs: Vec<String>,
}

impl Reader<'_> {
    pub(super) fn variants(
        &self,
        base: &Base<'_>,
        node: &Node,
    ) -> Option<IndexMap<VariantName, Variant>> {
        let gathered = self.gathered;
        let entries = entries(gathered, node, "variants")?;
        if entries.is_empty() {
            note(gathered, &node.place, "a scenario needs a variant", None);
        }
        if let Some((_, beyond)) = entries.get_index(MOST) {
            let message = format!("a scenario has at most {MOST} variants");
            note(gathered, &beyond.key, message, None);
            return None;
        }
        let mut variants: IndexMap<VariantName, Variant> = IndexMap::new();
        for (name, Entry { key, node }) in entries {
            if !is_name(name) {
                let hint = Some(super::NAME.into());
                note(
                    gathered,
                    key,
                    format!("a variant cannot be named {name:?}"),
                    hint,
                );
            }
            let Some((variant, overrides)) = self.variant(base, key, node) else {
                continue;
            };
            // Where something else is there, the same may come out otherwise.
            let same = |known: &Variant| {
                (&known.run, &known.only, &known.needs)
                    == (&variant.run, &variant.only, &variant.needs)
            };
            let same = variants.iter().find(|(_, known)| same(known));
            if overrides && base.run.as_ref() == Some(&variant.run) {
                let message = format!("variant {name:?} overrides nothing");
                let hint = "every value that it gives is the scenario's already";
                note(gathered, key, message, Some(hint.to_owned()));
            } else if let Some((known, _)) = same {
                let message = format!("variant {name:?} runs the same as {:?}", known.as_str());
                let hint = "a variant overrides something; one may override nothing";
                note(gathered, key, message, Some(hint.to_owned()));
            }
            variants.insert(VariantName::from(name.as_str()), variant);
        }
        Some(variants)
    }

    /// A variant that is named there, and whether it gives any override.
    fn variant(&self, base: &Base<'_>, key: &Place, node: &Node) -> Option<(Variant, bool)> {
        let gathered = self.gathered;
        let fields = Fields::of(gathered, node, &VARIANT)?;
        let own = fields.or_empty("needs", |node| texts(gathered, node, "needs"));
        let merged = merge(base.node, &fields);
        let other = fields
            .entry("manifests")
            .map(|_| self.manifests(merged.get("manifests")));
        let inherited = base.run.as_ref().map(|run| run.cluster.iptables);
        let run = self.run(
            &merged,
            other.as_ref().unwrap_or(&base.manifests),
            inherited,
        );
        let promises = names(merged.get("promises"));
        let expect = fields.need("expect", |node| {
            expect::read(gathered, node, &promises, run.as_ref())
        });
        let cluster = run.as_ref().map(|run| &run.cluster);
        let only = fields.or_empty("only", |node| only(gathered, node, cluster));
        let mut needs = base.needs.clone();
        needs.extend(own?);
        let overrides = OF_CLUSTER
            .iter()
            .chain(&OF_SCENARIO)
            .any(|f| fields.get(f).is_some());
        let run = run?;
        let (expect, by) = expect?;
        Some((
            Variant {
                line: key.line_and_column().0,
                needs,
                only: only?,
                own_versions: own_versions(base.run.as_ref(), &run),
                run,
                expect,
                by,
            },
            overrides,
        ))
    }
}

/// The agents whose version a variant sets to another one than the scenario's.
fn own_versions(base: Option<&Run>, run: &Run) -> Vec<AgentName> {
    let own = |agent: &AgentName| {
        let before = base.and_then(|base| base.cluster.version(*agent));
        before.is_some_and(|before| run.cluster.version(*agent).is_some_and(|it| it != before))
    };
    AgentName::ALL.into_iter().filter(own).collect()
}

/// The versions that a variant is about.
fn only(
    gathered: &Gathered,
    node: &Node,
    cluster: Option<&ClusterSpec>,
) -> Option<IndexMap<MatrixKey, Range>> {
    let fields = Fields::of(gathered, node, &ONLY)?;
    let ranges = ONLY.fields().map(|field| {
        let word = field.word;
        let key = MatrixKey::parse(word).expect("the matrix varies what a variant can be about");
        let absent = |agent| cluster.is_some_and(|cluster| cluster.version(agent).is_none());
        if fields.get(word).is_some() && key.agent().is_some_and(absent) {
            let message = format!("the variant has no {word}");
            note(gathered, &fields.key(word), message, None);
        }
        let range = fields.maybe(word, |node| {
            let written = text(gathered, node, "a range of versions")?;
            Range::parse(written, |version| key.check(version))
                .map_err(|message| note(gathered, &node.place, message, None))
                .ok()
        })?;
        Some(range.map(|range| (key, range)))
    });
    // Every range is read before the first wrong one counts: all mistakes are said.
    let ranges: Vec<_> = ranges.collect();
    let ranges = ranges.into_iter().collect::<Option<Vec<_>>>()?;
    Some(ranges.into_iter().flatten().collect())
}

/// The scenario with a variant's overrides laid over it.
fn merge(scenario: &Node, variant: &Fields<'_>) -> Node {
    let entries = scenario.entries().into_iter().flatten();
    let fields = entries.filter(|(field, _)| *field != "variants");
    let fields = fields.map(|(field, entry)| (field.clone(), entry.clone()));
    let mut merged = Node {
        place: scenario.place.clone(),
        value: Value::Map(fields.collect()),
    };
    for field in OF_SCENARIO {
        if let Some(over) = variant.entry(field) {
            lay_entry(&mut merged, field, over);
        }
    }
    for field in OF_CLUSTER {
        let cluster = merged.get_mut("cluster");
        if let (Some(cluster), Some(over)) = (cluster, variant.entry(field)) {
            lay_entry(cluster, field, over);
        }
    }
    merged
}

/// Lays one entry over a mapping: nothing (`null`) takes the entry away, a mapping is laid over a
/// mapping, anything else replaces what was there.
fn lay_entry(base: &mut Node, name: &str, over: &Entry) {
    let Value::Map(entries) = &mut base.value else {
        return;
    };
    if over.node.is_null() {
        entries.shift_remove(name);
        return;
    }
    let Some(entry) = entries.get_mut(name) else {
        entries.insert(name.to_owned(), over.clone());
        return;
    };
    match &over.node.value {
        Value::Map(overs) if is_laid_over(&entry.node, overs) => {
            for (name, over) in overs {
                lay_entry(&mut entry.node, name, over);
            }
        }
        _ => *entry = over.clone(),
    }
}

/// A mapping is laid over a mapping, but a promise of another kind replaces the promise: two kinds in
/// one would be neither.
fn is_laid_over(base: &Node, overs: &Entries) -> bool {
    let Value::Map(entries) = &base.value else {
        return false;
    };
    let kind = |entries: &Entries| {
        let first = entries.keys().next().filter(|_| entries.len() == 1);
        first.filter(|word| promises::is_promise(word)).cloned()
    };
    match (kind(entries), kind(overs)) {
        (Some(base), Some(over)) => base == over,
        _ => true,
    }
}
