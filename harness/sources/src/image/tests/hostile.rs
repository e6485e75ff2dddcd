//! Layers that mean harm, each refused with its reason, and before the first file of the layer is written.

use std::io::Cursor;

use tar::EntryType;
use tokio_util::sync::CancellationToken;

use super::{Ground, LIMITS, Left, Written, archive, file, folder, hard_link, symlink, written};
use crate::image::layer::{Form, unfold};

/// The words, once it is sure that nothing was done.
fn refused(archives: &[Vec<u8>]) -> String {
    let ground = Ground::new();
    let outside = ground.outside();
    let why = ground.unpack_archives(archives).unwrap_err().to_string();
    assert_eq!(ground.outside(), outside);
    assert!(!ground.tree().contains_key("first"), "{why}");
    assert_eq!(why.lines().count(), 1, "{why}");
    why
}

fn refusal(entry: Written) -> String {
    refused(&[archive(&[file("first", ""), entry])])
}

#[test]
fn what_leads_outside_is_refused() {
    for (entry, said) in [
        (
            file("../beside/secret", "mine"),
            "\"../beside/secret\" leads outside, by `..`",
        ),
        (
            file("a/../../beside/secret", "mine"),
            "leads outside, by `..`",
        ),
        (folder(".."), "leads outside, by `..`"),
        (symlink("../link", "x"), "leads outside, by `..`"),
        (
            file("/etc/passwd", "mine"),
            "begins at the root of the machine",
        ),
        (
            hard_link("a", "/etc/passwd"),
            "\"a\" is a link to a file outside",
        ),
        (
            hard_link("a", "../beside/secret"),
            "\"a\" is a link to a file outside",
        ),
        (file("a/.wh...", ""), "hides its own folder"),
        (file(".wh..", ""), "hides its own folder"),
        (file(".wh.", ""), "hides its own folder"),
    ] {
        let why = refusal(entry);
        assert!(why.contains(said), "{why}");
    }
}

#[test]
fn what_is_neither_file_nor_folder_nor_link_is_refused() {
    for (kind, said) in [
        (EntryType::Char, "\"dev/x\" is a device"),
        (EntryType::Block, "\"dev/x\" is a device"),
        (EntryType::Fifo, "\"dev/x\" is a pipe"),
        (EntryType::GNUSparse, "\"dev/x\" has holes"),
        (
            EntryType::new(b'Q'),
            "\"dev/x\" is of no kind that an image has",
        ),
    ] {
        let why = refusal(written(kind, "dev/x", "", b""));
        assert!(why.contains(said), "{why}");
    }
}

/// A link that leads out of the root leads to the same place in it, and where nothing is there, nowhere.
#[test]
fn writing_through_a_link_stays_in_the_root() {
    let ground = Ground::new();
    let outside = ground.outside();
    let beside = ground.root().parent().unwrap().join("beside");
    let link = symlink("out", beside.to_str().unwrap());
    let relative = symlink("up", "../beside");
    for through in [
        "out/secret",
        "out/.wh.secret",
        "out/.wh..wh..opq",
        "up/secret",
        "up/.wh.secret",
    ] {
        let layers = [
            vec![link.clone(), relative.clone()],
            vec![file(through, "mine")],
        ];
        let unpacked = ground.unpack(&layers);
        assert_eq!(ground.outside(), outside, "{through}: {unpacked:?}");
        // A whiteout of what is not there is none; a file has no folder to be in.
        assert_eq!(unpacked.is_ok(), through.contains(".wh."), "{through}");
    }
    // The last link before a file is replaced, and not followed.
    let secret = beside.join("secret");
    let layers = [
        vec![symlink("x", secret.to_str().unwrap())],
        vec![file("x", "mine")],
    ];
    ground.unpack(&layers).unwrap();
    assert_eq!(ground.outside(), outside);
    assert_eq!(ground.tree()["x"], "file 755 mine");
}

#[test]
fn a_hard_link_to_a_link_is_one_to_the_link() {
    let ground = Ground::new();
    let outside = ground.outside();
    let secret = ground.root().parent().unwrap().join("beside/secret");
    let layers = [
        vec![symlink("x", secret.to_str().unwrap()), hard_link("y", "x")],
        vec![file("y", "mine")],
    ];
    ground.unpack(&layers).unwrap();
    assert_eq!(ground.outside(), outside);
    assert_eq!(ground.tree()["y"], "file 755 mine");
}

#[test]
fn bombs_are_refused_by_bytes_by_density_by_entries_and_by_depth() {
    let unfold = |blob: &[u8], form, left: &mut Left| {
        let sized = (Cursor::new(blob), blob.len() as u64);
        let stop = CancellationToken::new();
        let mut written = Vec::new();
        let why = unfold(sized, form, &mut written, left, &stop);
        assert!(
            written.len() as u64 <= LIMITS.bytes + 1,
            "and no more is written"
        );
        why.map_err(|error| error.to_string())
    };
    let gzip = |bytes: usize| {
        use std::io::Write;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&vec![0; bytes]).unwrap();
        gzip.finish().unwrap()
    };
    let mut left = Left::of(LIMITS);
    let dense = unfold(&gzip(10 << 20), Form::Gzip, &mut left).unwrap_err();
    assert_eq!(
        dense,
        "it unpacks to more than 10 times its size: that is no image of an agent"
    );
    // Layer upon layer, each within the limits.
    let layer = vec![1; 600_000];
    unfold(&layer, Form::Plain, &mut left).unwrap();
    let large = unfold(&layer, Form::Plain, &mut left).unwrap_err();
    assert_eq!(
        large,
        "the image unpacks to more than 1.0 MB: that is no image of an agent"
    );
    let many: Vec<Written> = (0..60).map(|it| folder(&it.to_string())).collect();
    let why = refused(&[archive(&many), archive(&many)]);
    assert_eq!(
        why,
        "the image has more than 100 entries: that is no image of an agent"
    );
    let why = refused(&[archive(&[folder(&"d/".repeat(11))])]);
    assert!(why.ends_with("more than 10 folders deep"), "{why}");
    // A link makes a short name of a deep folder.
    let deep = [
        folder("d/d/d/d/d/d"),
        symlink("l", "d/d/d/d/d/d"),
        folder("l/d/d/d/d/d"),
    ];
    let why = refused(&[archive(&deep)]);
    assert!(why.ends_with("more than 10 folders deep"), "{why}");
}

#[test]
fn what_describes_an_entry_is_measured_before_it_is_read() {
    let long = |kind| {
        let long = vec![b'x'; (1 << 20) + 1];
        archive(&[written(kind, "l", "", &long), file("a", "")])
    };
    for kind in [
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
    ] {
        let why = refused(&[long(kind)]);
        assert!(why.contains("describes another one at length"), "{why}");
    }
    let second = written(EntryType::XHeader, "l", "", b"11 size=99\n");
    let why = refused(&[archive(&[second, file("a", "")])]);
    assert!(why.contains("gives another one a second size"), "{why}");
}

#[test]
fn what_is_broken_off_is_no_whole_archive() {
    let mut short = archive(&[file("first", "some bytes")]);
    short.truncate(512 + 4);
    let ground = Ground::new();
    let why = ground.unpack_archives(&[short]).unwrap_err().to_string();
    assert!(why.starts_with("could not unpack entry \"first\""), "{why}");
    let why = refused(&[b"no archive at all, but long enough to be the head of one".repeat(20)]);
    assert!(why.starts_with("it is no whole tar archive"), "{why}");
}
