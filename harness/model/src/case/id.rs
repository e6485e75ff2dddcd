//! What is in a case's id.

use indexmap::IndexMap;

/// The parts of an [id](super::Case::id), for who has nothing but the id: of a case that was skipped a run keeps no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseId<'a> {
    /// The scenario's name.
    pub scenario: &'a str,
    /// The variant's name.
    pub variant: &'a str,
    /// The matrix cell, e.g. `iptables` → `nft`; empty without a matrix.
    pub cell: IndexMap<&'a str, &'a str>,
    /// Which repetition it is, from 1 on, where it is repeated.
    pub repetition: Option<u32>,
}

impl<'a> CaseId<'a> {
    /// Of any text: one that is no id has an empty scenario.
    pub fn of(id: &'a str) -> Self {
        let repeated = id.rsplit_once('#');
        let repeated = repeated.and_then(|(case, number)| Some((case, number.parse().ok()?)));
        let (case, repetition) = match repeated {
            Some((case, number)) => (case, Some(number)),
            None => (id, None),
        };
        let (scenario, rest) = case.split_once('/').unwrap_or(("", case));
        let (variant, cell) = rest.split_once('[').unwrap_or((rest, ""));
        let cell = cell.strip_suffix(']').unwrap_or(cell);
        Self {
            scenario,
            variant,
            cell: cell
                .split(',')
                .filter_map(|setting| setting.split_once('='))
                .collect(),
            repetition,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_apart_into_what_it_was_made_of() {
        let cell = [("iptables", "nft"), ("kube-proxy", "1.32.3→v1.32.8+k3s1")];
        let whole = CaseId {
            scenario: "silent",
            variant: "bpf-off",
            cell: cell.into(),
            repetition: Some(12),
        };
        let id = "silent/bpf-off[iptables=nft,kube-proxy=1.32.3→v1.32.8+k3s1]#12";
        assert_eq!(CaseId::of(id), whole);
        let plain = CaseId {
            cell: IndexMap::new(),
            repetition: None,
            ..whole
        };
        assert_eq!(CaseId::of("silent/bpf-off"), plain);
    }

    #[test]
    fn what_is_no_id_is_no_scenarios() {
        let id = CaseId::of("a]#b[c=");
        assert_eq!((id.scenario, id.variant, id.repetition), ("", "a]#b", None));
    }
}
