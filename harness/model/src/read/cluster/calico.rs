//! `calico:` and `felix:`.

use std::{collections::BTreeMap, path::Path};

use serde_json::Map;

use super::{
    super::{
        fields::{Fields, entries, note, text, word},
        words::CALICO_VERSION,
    },
    SOURCE, known, source,
};
use crate::{
    case::{ApiWay, Bpffs, CalicoSpec, PodOwner, Programs},
    diagnostic::Gathered,
    felix,
    language::{Kind, Mapping, default, needed, optional, words},
    names::AgentName,
    nearest::nearest,
    version,
    yaml::Node,
};

pub(super) static CALICO: Mapping = Mapping {
    called: "calico",
    doc: "",
    fields: &[&[
        needed(
            "version",
            CALICO_VERSION,
            "Its version, v3.25 and later; without a patch the newest one that `clusters/versions.yaml` pins.",
        ),
        SOURCE,
        default(
            "pods",
            Kind::Word(|| words(&OWNERS)),
            "calico",
            "Who owns the pods' interfaces: Calico or another CNI.",
        ),
        default(
            "api",
            Kind::Word(|| words(&ApiWay::ALL)),
            "direct",
            "How Felix reaches the API: by the cluster IP of the Service `kubernetes`, as a pod does where nothing is said, or `direct`, as with the ConfigMap `kubernetes-services-endpoint`.",
        ),
        optional(
            "programs",
            Kind::Word(|| words(&PROGRAMS)),
            "Whether Felix's eBPF programs `work` in eBPF mode, or `fail`, as on a node that cannot load them. A real Felix's work; its model has a table of nftables in their place where this says `work`, and nothing else.",
        ),
        default(
            "bpffs",
            Kind::Word(|| words(&MOUNTS)),
            "host",
            "Whose file system `/sys/fs/bpf` is in Felix's pod: the host's, as in Calico's manifest, or with `none` the pod's own, so that a new pod (`recreate`, `upgrade`) finds nothing pinned.",
        ),
        optional(
            "env",
            Kind::Settings("^[A-Z_][A-Z0-9_]*$"),
            "Felix's environment, over what Calico's manifest sets there; `FELIX_…` prevails over FelixConfiguration.",
        ),
    ]],
};

const OWNERS: [(&str, PodOwner); 2] = [
    ("calico", PodOwner::Calico),
    ("third-party", PodOwner::ThirdParty),
];

const PROGRAMS: [(&str, Programs); 2] = [("work", Programs::Work), ("fail", Programs::Fail)];

const MOUNTS: [(&str, Bpffs); 2] = [("host", Bpffs::Host), ("none", Bpffs::Own)];

pub(super) fn read(gathered: &Gathered, node: &Node, folder: &Path) -> Option<CalicoSpec> {
    let fields = Fields::of(gathered, node, &CALICO)?;
    let version = fields.need("version", |node| known(gathered, node, version::calico));
    let source = fields.or_default("source", |node| {
        source(gathered, node, AgentName::Felix, folder)
    });
    let pods = fields.or_default("pods", |node| word(gathered, node, "pods", &OWNERS));
    let api = fields.or_default("api", |node| word(gathered, node, "api", &ApiWay::ALL));
    let programs = fields.maybe("programs", |node| {
        word(gathered, node, "programs", &PROGRAMS)
    });
    let bpffs = fields.or_default("bpffs", |node| word(gathered, node, "bpffs", &MOUNTS));
    let env = fields.or_empty("env", |node| environment(gathered, node));
    Some(CalicoSpec {
        version: version?,
        source: source?,
        pods: pods?,
        api: api?,
        programs: programs?,
        bpffs: bpffs?,
        env: env?,
    })
}

/// Felix ignores a `FELIX_…` that it does not know, and the scenario would prove nothing.
fn environment(gathered: &Gathered, node: &Node) -> Option<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for (name, entry) in entries(gathered, node, "env")? {
        let inner = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if !name.chars().all(inner) || name.starts_with(|c: char| c.is_ascii_digit()) {
            let message = format!("{name:?} is not the name of a variable");
            let hint = "capital letters, digits and _, as FELIX_INTERFACEPREFIX";
            note(gathered, &entry.key, message, Some(hint.to_owned()));
        } else if let Some(setting) = name.strip_prefix("FELIX_")
            && !felix::variables().any(|known| known == setting)
        {
            let message = format!("Felix has no setting {name}");
            let all: Vec<String> = felix::variables().collect();
            let meant = nearest(setting, all.iter().map(String::as_str));
            let hint = meant.map(|meant| format!("did you mean FELIX_{meant}?"));
            note(gathered, &entry.key, message, hint);
        }
        let value = text(gathered, &entry.node, "a variable's value")?;
        variables.insert(name.clone(), value.to_owned());
    }
    Some(variables)
}

/// FelixConfiguration's `spec`. Values are Felix's to judge; names are checked, because Felix ignores
/// one that it does not know and the scenario would prove nothing.
pub(in crate::read) fn felix_spec(
    gathered: &Gathered,
    node: &Node,
) -> Option<Map<String, serde_json::Value>> {
    let entries = entries(gathered, node, "felix")?;
    for (field, entry) in entries {
        if felix::FIELDS.binary_search(&field.as_str()).is_err() {
            let message = format!("FelixConfiguration has no field {field:?}");
            let meant = nearest(field, felix::FIELDS.iter().copied());
            let hint = meant.map(|name| format!("did you mean {name:?}?"));
            note(gathered, &entry.key, message, hint);
        }
    }
    Some(
        entries
            .iter()
            .map(|(field, entry)| (field.clone(), entry.node.to_json()))
            .collect(),
    )
}
