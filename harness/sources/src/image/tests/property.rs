//! Whatever the layers, nothing outside of the root changes.

use proptest::prelude::*;
use tar::EntryType;

use super::{Ground, Written, written};

/// Few names, so that entries meet; all that leads anywhere.
fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c"]),
        1 => prop::sample::select(vec!["..", ".", "", "beside", "secret", "root"]),
        1 => prop::sample::select(vec![".wh.a", ".wh.b", ".wh..wh..opq", ".wh..", ".wh..."]),
    ];
    let parts = prop::collection::vec(part, 1..4);
    (parts, prop::bool::weighted(0.05)).prop_map(|(parts, absolute)| {
        let path = parts.join("/");
        if absolute { format!("/{path}") } else { path }
    })
}

/// `OUTSIDE` is the folder that the root is in.
fn target() -> impl Strategy<Value = String> {
    let outside = [
        "OUTSIDE/beside",
        "OUTSIDE/beside/secret",
        "../beside",
        "../../beside",
        "/proc/self/cwd",
    ];
    prop_oneof![
        1 => path(),
        1 => prop::sample::select(outside.to_vec()).prop_map(str::to_owned),
    ]
}

fn entry() -> impl Strategy<Value = Written> {
    let kind = prop_oneof![
        4 => Just(EntryType::Regular),
        3 => Just(EntryType::Symlink),
        3 => Just(EntryType::Directory),
        2 => Just(EntryType::Link),
    ];
    (kind, path(), target()).prop_map(|(kind, path, target)| {
        let data: &[u8] = match kind {
            EntryType::Regular => b"mine",
            _ => b"",
        };
        written(kind, &path, &target, data)
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Each entry is a layer: where one is refused, the next one is still tried.
    #[test]
    fn whatever_the_layers_nothing_outside_changes(
        entries in prop::collection::vec(entry(), 1..20)
    ) {
        let ground = Ground::new();
        let here = ground.root().parent().unwrap().display().to_string();
        let outside = ground.outside();
        for mut entry in entries {
            entry.target = entry.target.replace("OUTSIDE", &here);
            drop(ground.unpack(&[vec![entry]]));
        }
        prop_assert_eq!(ground.outside(), outside);
    }
}
