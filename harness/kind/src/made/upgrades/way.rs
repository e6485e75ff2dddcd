//! Which versions nodes go through to a later one. Pure.

use chainbreak_model::names::NodeName;

use crate::versions::Version;

/// Every minor version between, and the last as it is wanted. `all` are the nodes with their versions, the one with the control plane first.
/// An error is why there is no such way: Kubernetes goes forward only, one minor version at a time, and no kubelet is newer than the API
/// server (Kubernetes' version skew policy).
pub(super) fn of(
    all: &[(&NodeName, Version)],
    upgraded: &[NodeName],
    to: Version,
) -> Result<Vec<String>, String> {
    let is_upgraded = |name: &NodeName| upgraded.contains(name);
    let chosen = all.iter().filter(|(name, _)| is_upgraded(name));
    let from = chosen.map(|(_, is)| *is).min();
    let from = from.ok_or("no node is upgraded")?;
    if from == to {
        return Err(format!("it is {from} already"));
    }
    if from > to {
        return Err(format!("it is {from}, and there is no way back"));
    }
    if let Some((first, is)) = all.first()
        && !is_upgraded(first)
        && *is < to
    {
        return Err(format!(
            "{first} has the control plane, which is upgraded first, and is {is}"
        ));
    }
    let (Version([major, first, _]), Version([of, last, _])) = (from, to);
    if major != of {
        return Err(format!(
            "there is no way from {from} to another major version"
        ));
    }
    let between = (first + 1..last).map(|minor| format!("{major}.{minor}"));
    let last = to.to_string().trim_start_matches('v').to_owned();
    Ok(between.chain([last]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(is: [[u16; 3]; 2], upgraded: &[&str], to: [u16; 3]) -> Result<Vec<String>, String> {
        let names = ["n1", "n2"].map(NodeName::from);
        let all: Vec<(&NodeName, Version)> = names.iter().zip(is.map(Version)).collect();
        let upgraded: Vec<NodeName> = upgraded.iter().map(|&it| it.into()).collect();
        of(&all, &upgraded, Version(to))
    }

    const BOTH: [&str; 2] = ["n1", "n2"];

    #[test]
    fn no_minor_version_is_left_out_and_the_last_is_the_patch_that_is_wanted() {
        let from = [[1, 31, 4], [1, 31, 4]];
        let through = way(from, &BOTH, [1, 34, 10]).unwrap();
        assert_eq!(through, ["1.32", "1.33", "1.34.10"]);
        assert_eq!(way(from, &BOTH, [1, 32, 8]).unwrap(), ["1.32.8"]);
        assert_eq!(way(from, &BOTH, [1, 31, 9]).unwrap(), ["1.31.9"]);
    }

    #[test]
    fn a_node_is_upgraded_after_the_control_plane_and_never_back() {
        let behind = [[1, 34, 10], [1, 33, 13]];
        assert_eq!(way(behind, &["n2"], [1, 34, 10]).unwrap(), ["1.34.10"]);
        let why = way([[1, 33, 13]; 2], &["n2"], [1, 34, 10]).unwrap_err();
        assert!(why.contains("n1 has the control plane"), "{why}");
        let why = way([[1, 34, 10]; 2], &BOTH, [1, 33, 13]).unwrap_err();
        assert!(
            why.contains("it is v1.34.10, and there is no way back"),
            "{why}"
        );
        let why = way([[1, 34, 10]; 2], &BOTH, [1, 34, 10]).unwrap_err();
        assert!(why.contains("it is v1.34.10 already"), "{why}");
    }
}
