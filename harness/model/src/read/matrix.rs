//! `matrix:`.

use indexmap::IndexMap;

use super::fields::{entries, items, note, text};
use crate::{
    diagnostic::Gathered,
    language::{Kind, Mapping, optional},
    matrix::MatrixKey,
    nearest::suggest,
    yaml::{Node, Value},
};

/// Values of a setting.
const VALUES: Kind = Kind::NonEmpty(&Kind::Plain);

pub(super) static MATRIX: Mapping = Mapping {
    called: "a matrix",
    doc: "Every combination of these values is a case.",
    fields: &[&[
        optional(
            "mode",
            VALUES,
            "What kube-proxy programs services with: `iptables`, `nftables`, `ipvs`.",
        ),
        optional(
            "iptables",
            VALUES,
            "Which iptables the nodes have: `legacy`, `nft`.",
        ),
        optional(
            "ip-family",
            VALUES,
            "`IPv4` or `IPv6` is first, or `dual`: both, and what is said of the first holds of each.",
        ),
        optional("kube-proxy", VALUES, "kube-proxy's version."),
        optional("calico", VALUES, "Calico's version."),
        optional(
            "kubernetes",
            VALUES,
            "The same as kube-proxy, and on real clusters the version of those without kube-proxy, too.",
        ),
        optional(
            "dataplane",
            VALUES,
            "With which Felix begins: `iptables`, `bpf`.",
        ),
    ]],
};

/// One matrix, or a list of them.
pub(super) fn read(
    gathered: &Gathered,
    node: &Node,
) -> Option<Vec<IndexMap<MatrixKey, Vec<String>>>> {
    let all = match &node.value {
        Value::Seq(items) if items.is_empty() => {
            note(
                gathered,
                &node.place,
                "there is no matrix in the list",
                None,
            );
            return None;
        }
        Value::Seq(items) => items.as_slice(),
        Value::Map(_) | Value::Scalar { .. } => std::slice::from_ref(node),
    };
    let all: Vec<_> = all.iter().map(|node| matrix(gathered, node)).collect();
    all.into_iter().collect()
}

fn matrix(gathered: &Gathered, node: &Node) -> Option<IndexMap<MatrixKey, Vec<String>>> {
    let mut matrix = IndexMap::new();
    for (word, entry) in entries(gathered, node, "matrix")? {
        let Some(key) = MatrixKey::parse(word) else {
            let hint = suggest(word, MatrixKey::ALL.iter().map(|(word, _)| *word));
            note(
                gathered,
                &entry.key,
                format!("the matrix cannot vary {word:?}"),
                hint,
            );
            continue;
        };
        let mut values: Vec<String> = Vec::new();
        for item in items(gathered, &entry.node, "what the matrix varies").unwrap_or_default() {
            let Some(value) = text(gathered, item, "a value of the matrix") else {
                continue;
            };
            if let Err(message) = key.check(value) {
                note(gathered, &item.place, message, None);
            } else if values.iter().any(|known| known == value) {
                note(
                    gathered,
                    &item.place,
                    format!("{value:?} is given twice"),
                    None,
                );
            } else {
                values.push(value.to_owned());
            }
        }
        if values.is_empty() && matches!(&entry.node.value, Value::Seq(items) if items.is_empty()) {
            note(
                gathered,
                &entry.node.place,
                "the matrix needs a value here",
                None,
            );
        }
        matrix.insert(key, values);
    }
    let keys: Vec<MatrixKey> = matrix.keys().copied().collect();
    if let Some(message) = MatrixKey::twice(&keys) {
        note(gathered, &node.place, message, None);
    }
    Some(matrix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::words;

    #[test]
    fn what_is_stated_of_a_matrix_is_what_can_be_varied() {
        let stated: Vec<&str> = MATRIX.fields().map(|field| field.word).collect();
        assert_eq!(stated, words(&MatrixKey::ALL));
    }
}
