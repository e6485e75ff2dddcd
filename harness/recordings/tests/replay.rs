//! Every recording, replayed: a model cannot be wrong about a recorded release without this saying so.
//!
//! `CHAINBREAK_RECORDED` names recordings by a part of their file's name, `CHAINBREAK_SEED` a world.

use std::{
    env, iter,
    num::NonZero,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use chainbreak_recordings::{
    Mode, Spelling, World,
    file::{self, Recording},
    replay,
};

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let asked = env::var("CHAINBREAK_RECORDED").unwrap_or_default();
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|it| it.expect("it can be listed").path());
    let recordings = paths.filter(|it| {
        let name = it.to_string_lossy();
        name.ends_with(".json.gz") && name.contains(&asked)
    });
    let mut recordings: Vec<_> = recordings.collect();
    recordings.sort();
    recordings
}

/// The worlds in which the model differs, the smallest difference first.
fn differing(recording: &Recording) -> Vec<(usize, String)> {
    let mut spelling = Spelling::default();
    let asked: Option<u64> = env::var("CHAINBREAK_SEED")
        .ok()
        .and_then(|it| it.parse().ok());
    let worlds = recording.worlds.iter();
    let worlds = worlds.filter(|it| asked.is_none_or(|asked| asked == it.setup.seed));
    let header = &recording.header;
    let mut found: Vec<_> = worlds
        .filter_map(|world| {
            let outcome = replay(header, world, &mut spelling).expect("the release is modelled");
            let difference = outcome.difference?;
            let at = format!(
                "kube-proxy {}, {} mode, world {}",
                header.version, header.mode, world.setup.seed
            );
            Some((difference.size(), format!("{at}: {difference}")))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn every_model_ends_every_recorded_world_as_the_real_one_did() {
    let corpus = corpus();
    assert!(!corpus.is_empty(), "there is nothing to replay");
    let next = AtomicUsize::new(0);
    let work = || {
        let turns = iter::from_fn(|| corpus.get(next.fetch_add(1, Ordering::Relaxed)));
        turns.filter_map(|it| failure(it)).collect::<Vec<_>>()
    };
    let found: Vec<String> = thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let workers = workers.into_iter();
        workers
            .flat_map(|it| it.join().expect("a replay does not panic"))
            .collect()
    });
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// How many worlds of a recording differ, and the smallest difference.
fn failure(path: &Path) -> Option<String> {
    let recording = file::read(path).unwrap_or_else(|error| panic!("{error}"));
    let found = differing(&recording);
    let (count, all) = (found.len(), recording.worlds.len());
    let (_, smallest) = found.first()?;
    Some(format!(
        "{count} of {all} worlds differ; the smallest difference (`<` real, `>` model):\n{smallest}"
    ))
}

/// The control: had a real one written another rule, or said another line, it would be found out.
#[test]
fn one_rule_or_line_that_is_otherwise_is_found_out() {
    for path in corpus() {
        let recording = file::read(&path).unwrap_or_else(|error| panic!("{error}"));
        let world = recording.worlds.first().expect("it has worlds");
        let shown = |world: &World| {
            let outcome = replay(&recording.header, world, &mut Spelling::default());
            let difference = outcome.expect("the release is modelled").difference;
            difference.map(|it| it.to_string()).unwrap_or_default()
        };
        let text = serde_json::to_string(world).expect("it can be written");
        let (right, wrong) = match recording.header.mode {
            Mode::Iptables => ("KUBE-MARK-MASQ\"", "KUBE-MARK-DROP\""),
            Mode::Nftables => ("ct state new jump", "ct state new goto"),
        };
        let changed = text.replace(right, wrong);
        assert_ne!(changed, text, "{}", path.display());
        let changed = serde_json::from_str(&changed).expect("it is a world still");
        let found = shown(&changed);
        let wrong = wrong.trim_end_matches('"');
        assert!(found.contains(wrong), "{}: {found}", path.display());
        let mut talkative = world.clone();
        talkative.said.insert("E proxier.go] trouble".to_owned());
        let found = shown(&talkative);
        assert!(found.contains("trouble"), "{}: {found}", path.display());
    }
}

/// How many worlds a recording has at least, and how large all of them together may be.
const WORLDS: usize = 60;
const BYTES: u64 = 15 * 1024 * 1024;

#[test]
fn every_recording_has_worlds_of_all_families_and_all_are_small_together() {
    let mut bytes = 0;
    for path in corpus() {
        bytes += path.metadata().expect("it is there").len();
        let recording = file::read(&path).unwrap_or_else(|error| panic!("{error}"));
        let name = path.file_name().map(|it| it.to_string_lossy().into_owned());
        assert_eq!(name, Some(file::name(&recording.header)));
        let worlds = recording.worlds.iter().map(|it| &it.setup.cluster_cidrs);
        let families: Vec<Vec<bool>> = worlds
            .map(|cidrs| cidrs.iter().map(|it| it.addr().is_ipv4()).collect())
            .collect();
        assert!(
            families.len() >= WORLDS,
            "{name:?}: {} worlds",
            families.len()
        );
        for wanted in [&[true][..], &[false], &[true, false]] {
            let count = families.iter().filter(|it| it.as_slice() == wanted).count();
            assert!(
                count >= WORLDS / 6,
                "{name:?}: {count} worlds of IPv4? {wanted:?}"
            );
        }
    }
    assert!(bytes <= BYTES, "{bytes} bytes");
}
