//! What layers of good will become.

use super::{Ground, LIMITS, LayerError, Left, Written, file, folder, hard_link, symlink};
use crate::image::layer::{Form, unfold};

use std::io::{Cursor, Write};

use tokio_util::sync::CancellationToken;

fn tree(layers: &[Vec<Written>]) -> String {
    let ground = Ground::new();
    let outside = ground.outside();
    ground.unpack(layers).unwrap();
    assert_eq!(ground.outside(), outside);
    let lines = ground.tree().into_iter();
    let lines: Vec<String> = lines
        .map(|(path, what)| format!("{path}: {}", what.trim_end()))
        .collect();
    lines.join("\n")
}

#[test]
fn layers_lie_upon_each_other() {
    let layers = [
        vec![folder("etc"), file("etc/a", "old"), file("etc/b", "kept")],
        vec![
            file("./etc/a", "new"),
            folder("etc/c/"),
            file("x/y/z", "deep"),
        ],
        vec![file("etc/c", "no folder any more"), folder("etc/a")],
    ];
    insta::assert_snapshot!(tree(&layers), @"
    etc: folder 755
    etc/a: folder 755
    etc/b: file 755 kept
    etc/c: file 755 no folder any more
    x: folder 755
    x/y: folder 755
    x/y/z: file 755 deep
    ");
}

#[test]
fn a_whiteout_hides_what_is_below_it_and_nothing_of_its_own_layer() {
    let layers = [
        vec![
            file("etc/gone", ""),
            file("etc/again", "old"),
            file("lib/a/b", ""),
            file("lib/c", ""),
            file("var/d", ""),
        ],
        vec![
            file("etc/.wh.gone", ""),
            file("etc/again", "new"),
            file("etc/.wh.again", ""),
            file("lib/new", "its own, and before the whiteout"),
            file("lib/.wh..wh..opq", ""),
            file(".wh.var", ""),
            file("nowhere/.wh.nothing", ""),
            file(".wh..wh.plnk", "aufs's own"),
        ],
    ];
    insta::assert_snapshot!(tree(&layers), @"
    etc: folder 755
    etc/again: file 755 new
    lib: folder 755
    lib/new: file 755 its own, and before the whiteout
    ");
}

#[test]
fn links_stay_what_they_are_and_lead_where_they_lead_in_the_root() {
    let layers = [
        vec![
            folder("usr/bin"),
            symlink("bin", "usr/bin"),
            symlink("sbin", "/usr/bin"),
            symlink("up", "../../../usr"),
            symlink("away", "/etc/passwd"),
            file("usr/bin/iptables", "real"),
        ],
        vec![
            file("bin/a", "by a link"),
            file("sbin/b", "by an absolute link"),
            file("up/c", "by one that leads up"),
            hard_link("d", "sbin/iptables"),
            hard_link("usr/bin/iptables", "usr/bin/iptables"),
            file("away", "no link any more"),
        ],
        vec![file("bin/.wh.a", "")],
    ];
    insta::assert_snapshot!(tree(&layers), @"
    away: file 755 no link any more
    bin: -> usr/bin
    d: file 755 real
    sbin: -> /usr/bin
    up: -> ../../../usr
    usr: folder 755
    usr/bin: folder 755
    usr/bin/b: file 755 by an absolute link
    usr/bin/iptables: file 755 real
    usr/c: file 755 by one that leads up
    ");
}

#[test]
fn whoever_unpacks_owns_all_of_it_and_nothing_gives_more_rights() {
    let with = |mut entry: Written, mode| {
        entry.mode = mode;
        entry
    };
    let layers = [vec![
        with(file("su", ""), 0o6755),
        with(file("shadow", ""), 0),
        with(folder("tmp"), 0o1777),
        with(folder("locked"), 0o2000),
        file("locked/in", ""),
    ]];
    insta::assert_snapshot!(tree(&layers), @"
    locked: folder 700
    locked/in: file 755
    shadow: file 600
    su: file 755
    tmp: folder 1777
    ");
}

#[test]
fn a_layer_is_unfolded_from_gzip_and_from_zstd_in_parts() {
    let plain: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let (first, second) = plain.split_at(123_456);
    let zstd = |part: &[u8]| {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        ruzstd::encoding::compress_to_vec(part, level)
    };
    // What is to be skipped: its magic number, its length, and that many bytes.
    let skipped = [
        &0x184D_2A50_u32.to_le_bytes()[..],
        &3_u32.to_le_bytes(),
        b"xyz",
    ]
    .concat();
    let parts = [skipped.clone(), zstd(first), skipped, zstd(second)].concat();
    let digest = "sha256:20ff50e632cc575386b15d7fcd9c3842ef435388ed29ae8c30617158ee907dc5";
    for (blob, form) in [
        (plain.clone(), Form::Plain),
        (gzip.finish().unwrap(), Form::Gzip),
        (parts, Form::Zstd),
    ] {
        let mut unfolded = Vec::new();
        let (size, stop) = (blob.len() as u64, CancellationToken::new());
        let said = unfold(
            (Cursor::new(blob), size),
            form,
            &mut unfolded,
            &mut Left::of(LIMITS),
            &stop,
        );
        assert_eq!(said.unwrap(), digest, "{form:?}");
        assert_eq!(unfolded, plain, "{form:?}");
    }
}

#[test]
fn media_types_of_docker_and_of_oci_say_how_a_layer_is_compressed() {
    for (media_type, form) in [
        ("application/vnd.oci.image.layer.v1.tar", Some(Form::Plain)),
        (
            "application/vnd.oci.image.layer.v1.tar+gzip",
            Some(Form::Gzip),
        ),
        (
            "application/vnd.oci.image.layer.v1.tar+zstd",
            Some(Form::Zstd),
        ),
        (
            "application/vnd.docker.image.rootfs.diff.tar.gzip",
            Some(Form::Gzip),
        ),
        ("application/vnd.oci.image.layer.v1.tar+encrypted", None),
        ("application/vnd.cncf.helm.chart.content.v1", None),
    ] {
        assert_eq!(Form::of(media_type), form, "{media_type}");
    }
}

#[test]
fn nobody_waits_for_a_layer_that_is_not_wanted_any_more() {
    let stop = CancellationToken::new();
    stop.cancel();
    let blob = (Cursor::new(vec![0; 10]), 10);
    let why = unfold(blob, Form::Plain, Vec::new(), &mut Left::of(LIMITS), &stop);
    assert!(matches!(why, Err(LayerError::Stopped)));
}
