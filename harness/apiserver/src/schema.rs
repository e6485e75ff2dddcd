//! The fields of Kubernetes' built-in types: what protobuf bodies are read by, and what `kubectl explain` tells.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

/// Types with a field a line below each: number in protobuf, name in JSON (`-`: the fields are the outer type's), shape, how a
/// strategic merge patch goes about it. `.ci/kubectl/types` makes it of the Go structs of k8s.io/api 0.34.
const TABLE: &str = include_str!("schema/types.txt");

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::read(TABLE));

/// Every built-in type.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    types: BTreeMap<&'static str, Type>,
    /// Which type a kind is: group version, kind.
    kinds: BTreeMap<(&'static str, &'static str), &'static str>,
}

/// One type.
#[derive(Debug, Default)]
pub(crate) struct Type {
    pub(crate) fields: Vec<Field>,
}

/// One field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u64,
    /// None where the fields of its type are the outer type's in JSON.
    pub(crate) name: Option<&'static str>,
    /// Whether what is empty differs from what is absent: a pointer in Go.
    pub(crate) keeps_empty: bool,
    pub(crate) shape: Shape,
    /// The strategy of a strategic merge patch, and the key of a list's elements; both may be empty.
    pub(crate) patch: (&'static str, &'static str),
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Bool,
    Int32,
    Int64,
    /// Base64 in JSON.
    Bytes,
    /// Told in whole seconds.
    Time,
    /// Told in microseconds.
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON as it is.
    Raw,
    Object(&'static str),
    List(Box<Shape>),
    /// By texts.
    Map(Box<Shape>),
}

impl Shape {
    fn read(word: &'static str) -> Self {
        if let Some(inner) = word.strip_prefix("[]") {
            return Self::List(Box::new(Self::read(inner)));
        }
        if let Some(inner) = word.strip_prefix("{}") {
            return Self::Map(Box::new(Self::read(inner)));
        }
        match word {
            "string" => Self::Text,
            "bool" => Self::Bool,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "bytes" => Self::Bytes,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "quantity" => Self::Quantity,
            "intstr" => Self::IntOrString,
            "raw" => Self::Raw,
            name => Self::Object(name),
        }
    }

    /// The type in it, however deep.
    fn object(&self) -> Option<&'static str> {
        match self {
            Self::Object(name) => Some(name),
            Self::List(inner) | Self::Map(inner) => inner.object(),
            _ => None,
        }
    }
}

impl Schema {
    /// That of this program.
    pub(crate) fn get() -> &'static Self {
        &SCHEMA
    }

    fn read(table: &'static str) -> Self {
        let mut schema = Self::default();
        let mut within = "";
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            if let Some(kind) = line.strip_prefix("= ") {
                let mut words = kind.split(' ');
                let mut word = || words.next().expect("a kind has three words");
                schema.kinds.insert((word(), word()), word());
            } else if let Some(field) = line.strip_prefix(' ') {
                let fields = &mut schema.types.entry(within).or_default().fields;
                fields.push(Field::read(field));
            } else {
                within = line;
                schema.types.entry(within).or_default();
            }
        }
        schema
    }

    pub(crate) fn of(&self, name: &str) -> Option<&Type> {
        self.types.get(name)
    }

    /// The type's name of a kind.
    pub(crate) fn named(&self, group_version: &str, kind: &str) -> Option<&'static str> {
        self.kinds.get(&(group_version, kind)).copied()
    }

    /// Types, and all that are in them.
    pub(crate) fn closure(&self, names: impl IntoIterator<Item = &'static str>) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut rest: Vec<_> = names.into_iter().collect();
        while let Some(name) = rest.pop() {
            if seen.insert(name) {
                rest.extend(self.fields(name).filter_map(|field| field.shape.object()));
            }
        }
        seen
    }

    /// The fields of a type as JSON has them.
    pub(crate) fn fields(&self, name: &str) -> Box<dyn Iterator<Item = &Field> + '_> {
        let fields = self.types.get(name).into_iter().flat_map(|it| &it.fields);
        Box::new(fields.flat_map(|field| match (&field.name, &field.shape) {
            (None, Shape::Object(inner)) => self.fields(inner),
            _ => Box::new(std::iter::once(field)),
        }))
    }
}

impl Field {
    fn read(line: &'static str) -> Self {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a field has three words");
        let number = word().parse().expect("a field begins with its number");
        let (name, shape) = (word(), word());
        let bare = shape.strip_prefix('*');
        Self {
            number,
            name: (name != "-").then_some(name),
            keeps_empty: bare.is_some(),
            shape: Shape::read(bare.unwrap_or(shape)),
            patch: words
                .next()
                .and_then(|it| it.split_once(':'))
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;

    #[test]
    fn every_type_that_a_field_names_is_in_the_table() {
        let schema = Schema::get();
        for (name, it) in &schema.types {
            for field in &it.fields {
                let known = field.shape.object().is_none_or(|o| schema.of(o).is_some());
                assert!(known, "{name}: {field:?}");
            }
        }
    }

    #[test]
    fn every_built_in_kind_that_is_no_custom_one_has_its_type() {
        let kinds = Kinds::default();
        let custom = |group: &str| group == "apiextensions.k8s.io";
        for kind in kinds.iter().filter(|k| !k.custom && !custom(&k.group)) {
            let found = Schema::get().named(&kind.group_version(), &kind.kind);
            assert!(found.is_some(), "{} {}", kind.group_version(), kind.kind);
        }
    }

    #[test]
    fn what_go_embeds_is_the_outer_types_own() {
        let names: Vec<_> = Schema::get()
            .fields("core/v1.Volume")
            .map(|f| f.name)
            .collect();
        assert!(names.contains(&Some("name")) && names.contains(&Some("configMap")));
        assert!(!names.contains(&None));
    }
}
