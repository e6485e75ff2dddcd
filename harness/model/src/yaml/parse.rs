//! Parsing a file into trees.
//!
//! Nothing here panics or runs away: the size of a file, the depth of nesting and the number of nodes
//! (aliases expanded) are bounded, and going over a bound is a diagnostic like any other.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle, Tag};

use super::{Entries, Entry, Node, Value};
use crate::diagnostic::{Diagnostic, Gathered, Place, Reach, Source};

/// The largest file that is read. The largest manifests people paste, CRDs among them, are well below.
pub(crate) const BYTES: u64 = 2 << 20;
/// Deeper than any Kubernetes object; low enough to walk a tree by recursion.
const DEPTH: usize = 64;
/// A file of [`BYTES`] without aliases that means something has fewer.
const NODES: usize = 200_000;

/// Reads a file's bytes as text.
pub(crate) fn decode(
    file: &Path,
    bytes: &[u8],
    reach: Reach,
    gathered: &Gathered,
) -> Option<Arc<Source>> {
    let source = |text: &str| Arc::new(Source::new(file, text, reach));
    if bytes.len() as u64 > BYTES {
        let message = format!(
            "the file has {} bytes; a scenario or manifest has at most {BYTES}",
            bytes.len()
        );
        gathered.add(Diagnostic::new(Place::whole(&source("")), message));
        return None;
    }
    match std::str::from_utf8(bytes) {
        // A byte order mark is allowed in front of YAML and belongs to nobody.
        Ok(text) => Some(source(text.strip_prefix('\u{feff}').unwrap_or(text))),
        Err(error) => {
            let good = error.valid_up_to();
            let text = String::from_utf8_lossy(bytes.get(..good + 1).unwrap_or(bytes));
            let source = source(&text);
            let bytes_shown = good..source.text.len();
            let message = format!(
                "byte {good} of the file is not UTF-8 (0x{:02x})",
                bytes[good]
            );
            let place = Place {
                source,
                bytes: bytes_shown,
            };
            gathered.add(Diagnostic::new(place, message).hint("save the file as UTF-8"));
            None
        }
    }
}

/// The documents of a file.
#[derive(Debug)]
pub(crate) struct Documents {
    pub(crate) nodes: Vec<Node>,
    /// Whether all of them are there: after a mistake of syntax only those before it are.
    pub(crate) complete: bool,
}

/// Parses a file.
pub(crate) fn parse(source: &Arc<Source>, gathered: &Gathered) -> Documents {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: DEPTH,
        block_nesting_limit: DEPTH,
    };
    let mut builder = Builder::new(source, gathered);
    for item in Parser::new_from_str_with_options(&source.text, options) {
        let built = match item {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => Err(builder.syntax(&error)),
        };
        if let Err(diagnostic) = built {
            gathered.add(diagnostic);
            return Documents {
                nodes: builder.documents,
                complete: false,
            };
        }
    }
    Documents {
        nodes: builder.documents,
        complete: true,
    }
}

/// Builds trees from the parser's events, without recursion.
struct Builder<'a> {
    source: &'a Arc<Source>,
    gathered: &'a Gathered,
    documents: Vec<Node>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, (Node, usize)>,
    nodes: usize,
}

/// A collection whose end has not come yet.
struct Open {
    start: usize,
    anchor: usize,
    /// The number of nodes before it: what an alias of it costs.
    nodes_before: usize,
    content: Content,
    /// Written with brackets or braces, which can be left open.
    style: StructureStyle,
}

enum Content {
    Seq(Vec<Node>),
    Map(Entries, Option<(String, Place)>),
}

impl<'a> Builder<'a> {
    fn new(source: &'a Arc<Source>, gathered: &'a Gathered) -> Self {
        let (documents, open, anchors) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self {
            source,
            gathered,
            documents,
            open,
            anchors,
            nodes: 0,
        }
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Diagnostic> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let place = self.place(span.start.byte_offset(), span.end.byte_offset());
                let quoted = style != ScalarStyle::Plain || Self::is_text(tag.as_deref(), &place)?;
                let value = Value::Scalar {
                    text: text.into_owned(),
                    quoted,
                };
                self.count(1, &place)?;
                self.put(Node { place, value }, anchor, 1)
            }
            Event::SequenceStart(style, anchor, tag) => self.open(
                span,
                (anchor, style),
                tag.as_deref(),
                Content::Seq(Vec::new()),
            ),
            Event::MappingStart(style, anchor, tag) => self.open(
                span,
                (anchor, style),
                tag.as_deref(),
                Content::Map(Entries::new(), None),
            ),
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            Event::Alias(id) => self.alias(id, span),
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn open(
        &mut self,
        span: Span,
        (anchor, style): (usize, StructureStyle),
        tag: Option<&Tag>,
        content: Content,
    ) -> Result<(), Diagnostic> {
        let place = self.place(span.start.byte_offset(), span.end.byte_offset());
        Self::is_text(tag, &place)?;
        if self.open.len() >= DEPTH {
            return Err(Diagnostic::new(
                place,
                format!("nested more than {DEPTH} deep"),
            ));
        }
        let nodes_before = self.nodes;
        self.count(1, &place)?;
        self.open.push(Open {
            start: place.bytes.start,
            anchor,
            nodes_before,
            content,
            style,
        });
        Ok(())
    }

    fn close(&mut self, span: Span) -> Result<(), Diagnostic> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let place = self.place(Some(open.start), span.end.byte_offset());
        let value = match open.content {
            Content::Seq(items) => Value::Seq(items),
            Content::Map(entries, _) => Value::Map(entries),
        };
        let size = self.nodes - open.nodes_before;
        self.put(Node { place, value }, open.anchor, size)
    }

    /// An alias is a copy of what it stands for, at the alias's place.
    fn alias(&mut self, id: usize, span: Span) -> Result<(), Diagnostic> {
        let place = self.place(span.start.byte_offset(), span.end.byte_offset());
        let Some((node, size)) = self.anchors.get(&id).cloned() else {
            let message = "an alias inside what it stands for would never end";
            return Err(Diagnostic::new(place, message));
        };
        self.count(size, &place)?;
        self.put(
            Node {
                place,
                value: node.value,
            },
            0,
            size,
        )
    }

    fn put(&mut self, node: Node, anchor: usize, size: usize) -> Result<(), Diagnostic> {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match &mut open.content {
            Content::Seq(items) => items.push(node),
            Content::Map(entries, key) => match key.take() {
                Some(key) => insert(entries, key, node, self.gathered),
                None => *key = Some(as_key(node)?),
            },
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, place: &Place) -> Result<(), Diagnostic> {
        self.nodes += nodes;
        if self.nodes <= NODES {
            return Ok(());
        }
        let message = format!("more than {NODES} values, counting what aliases stand for");
        Err(Diagnostic::new(place.clone(), message))
    }

    /// Whether a tag says that a scalar is text. No other tag means anything here.
    fn is_text(tag: Option<&Tag>, place: &Place) -> Result<bool, Diagnostic> {
        match tag {
            None => Ok(false),
            Some(tag) if tag.is_yaml_core_schema_tag("str") => Ok(true),
            Some(_) => {
                let message = "YAML tags (`!…`) mean nothing here";
                Err(Diagnostic::new(place.clone(), message).hint("take the tag away"))
            }
        }
    }

    fn place(&self, start: Option<usize>, end: Option<usize>) -> Place {
        let text = &self.source.text;
        let start = start.unwrap_or_default().min(text.len());
        // A block's end is where the next token begins: the blank between is not part of it.
        let end = end.unwrap_or(start).clamp(start, text.len());
        let length = text.get(start..end).map_or(0, |text| text.trim_end().len());
        Place {
            source: Arc::clone(self.source),
            bytes: start..start + length,
        }
    }

    fn syntax(&self, error: &granit_parser::ScanError) -> Diagnostic {
        let offset = error.marker().byte_offset().unwrap_or_default();
        let place = self.place(Some(offset), Some(offset));
        let start = place.bytes.start;
        let line_start = self
            .source
            .text
            .get(..start)
            .and_then(|text| text.rfind('\n'));
        let line = self
            .source
            .text
            .get(line_start.map_or(0, |at| at + 1)..)
            .unwrap_or_default();
        let indent: String = line
            .chars()
            .take_while(|c| c.is_whitespace() && *c != '\n')
            .collect();
        let diagnostic = Diagnostic::new(place, format!("not YAML: {}", error.info()));
        if indent.contains('\t') {
            return diagnostic.hint("YAML is indented with spaces; here is a tab");
        }
        match self.open.last() {
            Some(open) if open.style == StructureStyle::Flow => {
                let start = self.place(Some(open.start), Some(open.start));
                diagnostic.hint_at("nothing closes the bracket of line", &start)
            }
            _ => diagnostic,
        }
    }
}

fn as_key(node: Node) -> Result<(String, Place), Diagnostic> {
    let Node { place, value } = node;
    match value {
        Value::Scalar { text, .. } => Ok((text, place)),
        Value::Seq(_) | Value::Map(_) => Err(Diagnostic::new(
            place,
            "a key is plain text, not a list or a mapping",
        )),
    }
}

/// Puts an entry into a mapping. A second one of the same key is a mistake, whichever was meant.
fn insert(entries: &mut Entries, (text, key): (String, Place), node: Node, gathered: &Gathered) {
    if let Some(first) = entries.get(&text) {
        let diagnostic = Diagnostic::new(key, format!("{text:?} is given twice"));
        gathered.add(diagnostic.hint_at("the first one is in line", &first.key));
        return;
    }
    entries.insert(text, Entry { key, node });
}
