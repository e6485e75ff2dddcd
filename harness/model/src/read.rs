//! Reading a scenario: YAML to a checked [`Scenario`], or every mistake of it at once.
//!
//! A variant is read by laying its overrides over the scenario's tree and reading the result like any
//! scenario, so that whatever a variant writes is checked where it stands.

mod cluster;
mod expect;
mod fields;
mod manifests;
mod matrix;
mod network;
mod promises;
mod proxy_config;
mod signature;
mod strict;
mod timeline;
mod times;
mod traffic;
mod variants;
mod words;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    case::{ClusterSpec, IptablesVariant},
    diagnostic::{Diagnostic, Diagnostics, Gathered, Place, Reach, Source},
    input,
    language::{Kind, Mapping, needed, optional},
    names::ScenarioName,
    scenario::{Run, Scenario},
    yaml::{self, Node},
};
use fields::{Fields, list, names, note, number, text, texts};
use manifests::Manifests;
pub(crate) use timeline::TAKING_CHANGES;
pub use times::parse_duration;

/// A scenario file, and with it the whole language.
pub(crate) static SCENARIO: Mapping = Mapping {
    called: "a scenario",
    doc: "A cluster, what happens in it, what must hold, and the variants that show it.",
    fields: &[&[
        needed(
            "name",
            Kind::Name,
            "Names the scenario; as its file, after the symptom.",
        ),
        needed("about", Kind::Text, "What breaks, told to an operator."),
        optional(
            "incident",
            Kind::List(&Kind::Text),
            "Where it was reported, as projectcalico/calico#10538.",
        ),
        optional(
            "labels",
            Kind::List(&Kind::Name),
            "What it belongs to, for `--label`: agents, parts of the kernel, areas.",
        ),
        optional(
            "signature",
            signature::SIGNATURE,
            "What is seen of a node in its incident, by which `chainbreak diagnose` names it: words of docs/diagnose.md, and other signs.",
        ),
        optional(
            "seed",
            Kind::Whole(0, u64::MAX),
            "Seed of everything random; 0 when not given. `--seed` replaces it.",
        ),
        optional(
            "needs",
            Kind::List(&Kind::Text),
            "Capabilities without which the scenario is skipped.",
        ),
        needed(
            "cluster",
            Kind::Fields(&cluster::CLUSTER),
            "What is raised.",
        ),
        optional(
            "manifests",
            OBJECTS,
            "Kubernetes objects to apply: files beside the scenario, or objects written here.",
        ),
        optional(
            "traffic",
            Kind::Removable(&Kind::Fields(&traffic::TRAFFIC)),
            "Requests sent during the run.",
        ),
        needed(
            "timeline",
            Kind::NonEmpty(&Kind::OneOf(&timeline::STEP)),
            "What happens, one step after the other.",
        ),
        needed(
            "promises",
            Kind::Removable(&Kind::OneOf(&promises::PROMISE)),
            "What is judged while the timeline runs.",
        ),
        optional(
            "matrix",
            Kind::Any(&[
                Kind::Fields(&matrix::MATRIX),
                Kind::NonEmpty(&Kind::Fields(&matrix::MATRIX)),
            ]),
            "Settings that take several values: every combination of these is a case; of several matrices those of each.",
        ),
        needed(
            "variants",
            Kind::Named(&Kind::Fields(&variants::VARIANT)),
            "What is overridden, and what is expected.",
        ),
    ]],
};

/// Files, or objects.
const OBJECTS: Kind = Kind::List(&Kind::Any(&[Kind::Text, Kind::Object]));

/// Reads a scenario file and the manifests that it names.
pub fn load(file: &Path) -> Result<Scenario, Diagnostics> {
    let open = |path: &Path| input::read(path, yaml::BYTES);
    match open(file) {
        Ok(bytes) => read(file, &bytes, &open),
        Err(error) => {
            let gathered = Gathered::default();
            let source = Arc::new(Source::new(file, "", Reach::Inside));
            let message = format!("could not read the file: {error}");
            gathered.add(Diagnostic::new(Place::whole(&source), message));
            Err(gathered
                .into_diagnostics(file)
                .expect("a diagnostic was just added"))
        }
    }
}

/// Reads a scenario from the bytes of its file. `open` reads the manifests that it names; their paths
/// are relative to the scenario's.
pub fn read(
    file: &Path,
    bytes: &[u8],
    open: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Scenario, Diagnostics> {
    let gathered = Gathered::default();
    let folder = file.parent().unwrap_or(Path::new(""));
    let reach = Reach::of(folder, file.file_name().map_or(file, Path::new));
    let scenario = yaml::decode(file, bytes, reach, &gathered)
        .and_then(|source| document(&source, &gathered))
        .and_then(|node| {
            Reader {
                gathered: &gathered,
                file,
                open,
            }
            .scenario(&node)
        });
    match (gathered.into_diagnostics(file), scenario) {
        (None, Some(scenario)) => Ok(scenario),
        (Some(diagnostics), _) => Err(diagnostics),
        (None, None) => unreachable!("what was not read has a diagnostic"),
    }
}

/// The one document of a scenario file.
fn document(source: &Arc<Source>, gathered: &Gathered) -> Option<Node> {
    let mut documents = yaml::parse(source, gathered).nodes;
    if let Some(second) = documents.get(1).filter(|_| !is_object(&documents[0])) {
        note(
            gathered,
            &second.place,
            "a scenario file holds one scenario",
            None,
        );
    }
    let first = (!documents.is_empty()).then(|| documents.swap_remove(0));
    let first = first.filter(|node| !node.is_null());
    if first.is_none() && gathered.is_empty() {
        let hint = "a scenario begins with `name:`".to_owned();
        note(
            gathered,
            &Place::whole(source),
            "the file is empty",
            Some(hint),
        );
    }
    first
}

/// Whether a document is one of Kubernetes'.
fn is_object(node: &Node) -> bool {
    ["apiVersion", "kind"]
        .iter()
        .all(|field| node.get(field).is_some())
}

/// What reading needs at hand.
pub(super) struct Reader<'a> {
    gathered: &'a Gathered,
    file: &'a Path,
    open: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
}

impl Reader<'_> {
    /// Where the scenario lies: agents' paths begin here.
    fn folder(&self) -> PathBuf {
        let file = std::path::absolute(self.file).unwrap_or_else(|_unknown| self.file.to_owned());
        file.parent().map(Path::to_owned).unwrap_or_default()
    }

    fn scenario(&self, node: &Node) -> Option<Scenario> {
        let gathered = self.gathered;
        if is_object(node) {
            let hint = "a scenario names it below `manifests:`, or has it there".to_owned();
            note(
                gathered,
                &node.place,
                "this is a Kubernetes object, and no scenario",
                Some(hint),
            );
            return None;
        }
        let fields = Fields::of(gathered, node, &SCENARIO)?;
        let name = fields.need("name", |node| name(gathered, node, "the scenario's name"));
        let about = fields.need("about", |node| text(gathered, node, "about"));
        let incident = fields.or_empty("incident", |node| texts(gathered, node, "incident"));
        let labels = fields.or_empty("labels", |node| labels(gathered, node));
        let signature = fields.or_empty("signature", |node| signature::read(gathered, node));
        let seed = fields.maybe("seed", |node| number(gathered, node, "seed", (0, u64::MAX)));
        let needs = fields.or_empty("needs", |node| texts(gathered, node, "needs"));
        let matrix = fields.or_empty("matrix", |node| matrix::read(gathered, node));
        let manifests = self.manifests(fields.get("manifests"));
        let run = self.run(node, &manifests, None);
        let base = variants::Base {
            node,
            manifests,
            run,
            needs: needs.unwrap_or_default(),
        };
        let variants = fields.need("variants", |node| self.variants(&base, node));
        Some(Scenario {
            name: ScenarioName::from(name?),
            about: about?.trim().to_owned(),
            incident: incident?,
            labels: labels?,
            signature: signature?,
            file: self.file.to_owned(),
            seed: seed?,
            matrix: matrix?,
            variants: variants?,
        })
    }

    /// What a scenario runs, or a scenario with a variant's overrides laid over it. Nodes that do not
    /// say their iptables have the inherited one.
    fn run(
        &self,
        node: &Node,
        manifests: &Manifests,
        inherited: Option<IptablesVariant>,
    ) -> Option<Run> {
        let gathered = self.gathered;
        let fields = Fields::of(gathered, node, &SCENARIO)?;
        let folder = self.folder();
        let cluster = fields.need("cluster", |node| {
            cluster::read(gathered, node, &folder, inherited)
        });
        let cluster = cluster.map(|cluster| ClusterSpec {
            pools: Arc::new(manifests.pools(gathered, &cluster)),
            ..cluster
        });
        let world = traffic::World {
            manifests,
            cluster: cluster.as_ref(),
            traffic: None,
        };
        for pin in manifests.pins() {
            let name = text(gathered, pin, "nodeName");
            name.and_then(|name| traffic::cluster_node(gathered, pin, &world, name));
        }
        let traffic = fields.or_empty("traffic", |node| traffic::read(gathered, node, &world));
        let world = traffic::World {
            traffic: traffic.as_ref(),
            ..world
        };
        let timeline = fields.need("timeline", |node| self.timeline(node, &world));
        let known = promises::Known {
            world: &world,
            names: &names(fields.get("traffic")),
            traffic: traffic.as_ref(),
            timeline: timeline.as_deref(),
        };
        let promises = fields.need("promises", |node| promises::read(gathered, node, &known));
        Some(Run {
            cluster: cluster?,
            manifests: manifests.objects().into(),
            traffic: traffic?,
            timeline: timeline?,
            promises: promises?,
        })
    }
}

fn labels(gathered: &Gathered, node: &Node) -> Option<Vec<String>> {
    list(gathered, node, "labels", |item| {
        name(gathered, item, "a label").map(str::to_owned)
    })
}

/// A name: lowercase letters, digits and dashes, as Kubernetes names are, so that it can stand in
/// paths and filters.
pub(super) fn name<'a>(gathered: &Gathered, node: &'a Node, what: &str) -> Option<&'a str> {
    let written = text(gathered, node, what)?;
    is_name(written).then_some(written).or_else(|| {
        let message = format!("{what} cannot be {written:?}");
        note(gathered, &node.place, message, Some(NAME.to_owned()));
        None
    })
}

const NAME: &str = "a name has lowercase letters, digits and dashes, at most 63 in all";

/// Whether Kubernetes accepts a label as a name, and so do scenarios.
pub fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
