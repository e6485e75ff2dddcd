//! Archives that are whole, cut, and hostile.

use lzma_rust2::{XzOptions, XzWriter};

use super::*;

fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut pack = Pack::begin(1);
    for (path, contents) in files {
        assert!(pack.add(Path::new(path), contents, 0).unwrap(), "{path}");
    }
    pack.end().unwrap()
}

fn unpacked(bytes: &[u8]) -> Result<tempfile::TempDir, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it.tgz");
    fs::write(&file, bytes).unwrap();
    let inside = folder.path().join("in");
    fs::create_dir(&inside).unwrap();
    unpack(&file, &inside).map_err(|error| error.to_string())?;
    Ok(folder)
}

/// One entry, of any kind.
fn hostile(path: &str, kind: EntryType) -> Vec<u8> {
    let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    let name = &mut header.as_old_mut().name;
    name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_size(1);
    header.set_cksum();
    tar.append(&header, &b"x"[..]).unwrap();
    tar.into_inner().unwrap().finish().unwrap()
}

#[test]
fn what_is_packed_comes_out_again_and_twice_is_the_same() {
    let files: [(&str, &[u8]); 2] = [("run.jsonl", b"{}\n"), ("a_case/events.jsonl", b"")];
    let bytes = packed(&files);
    assert_eq!(bytes, packed(&files));
    let folder = unpacked(&bytes).unwrap();
    for (path, contents) in files {
        let read = fs::read(folder.path().join("in").join(path)).unwrap();
        assert_eq!(read, contents, "{path}");
    }
}

#[test]
fn what_has_no_room_stays_out() {
    let mut pack = Pack::begin(1);
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_be_bytes()[0]
    })
    .take(usize::try_from(MOST).unwrap() + 1)
    .collect();
    assert!(!pack.add(Path::new("noise"), &noise, 0).unwrap());
    assert!(!pack.add(Path::new("small"), b"x", MOST).unwrap());
    assert!(pack.add(Path::new("small"), b"x", 0).unwrap());
    let folder = unpacked(&pack.end().unwrap()).unwrap();
    assert!(!folder.path().join("in/noise").exists());
}

#[test]
fn entries_that_lead_out_of_their_folder_or_are_no_files_are_refused() {
    for (path, kind, why) in [
        ("/etc/passwd", EntryType::Regular, "is not in its folder"),
        ("bundle/../x", EntryType::Regular, "is not in its folder"),
        ("elsewhere/x", EntryType::Regular, "is not in its folder"),
        ("bundle/link", EntryType::Symlink, "is no ordinary file"),
        ("bundle/hard", EntryType::Link, "is no ordinary file"),
        ("bundle/long", EntryType::GNULongName, "is no ordinary file"),
        ("bundle/dev", EntryType::Char, "is no ordinary file"),
    ] {
        let refused = unpacked(&hostile(path, kind)).unwrap_err();
        assert!(refused.contains(why), "{path}: {refused}");
    }
    let twice = packed(&[("x", b"1"), ("x", b"2")]);
    assert!(unpacked(&twice).unwrap_err().contains("File exists"));
}

#[test]
fn what_people_attach_is_read_in_memory_whether_it_is_an_archive_or_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.tgz");
    let read = |bytes: Vec<u8>, most| {
        fs::write(&file, bytes).unwrap();
        let mut is_wanted = |path: &Path| !path.ends_with("unread");
        files(&file, most, &mut is_wanted).map_err(|why| why.to_string())
    };
    let unread: &[u8] = &[b'x'; 5000];
    let packed = packed(&[
        ("rules", b"*nat\nCOMMIT\n"),
        ("unread", unread),
        ("deep/er", b"x"),
    ]);
    let names = ["bundle/rules", "bundle/deep/er"].map(PathBuf::from);
    let found = read(packed.clone(), 1 << 20).unwrap();
    assert_eq!(found[0], (names[0].clone(), b"*nat\nCOMMIT\n".to_vec()));
    assert_eq!(found[1], (names[1].clone(), b"x".to_vec()));
    assert_eq!(found.len(), 2);
    assert_eq!(read(packed.clone(), 600).unwrap(), found);
    assert!(read(packed, 10).unwrap_err().contains("more than 10 bytes"));
    let large = self::packed(&[("rules", unread)]);
    let why = read(large, 600).unwrap_err();
    assert!(why.contains("more than 600 bytes"), "{why}");
    let mut one = GzEncoder::new(Vec::new(), Compression::fast());
    one.write_all(b"*nat\nCOMMIT\n").unwrap();
    let found = read(one.finish().unwrap(), 1 << 20).unwrap();
    assert_eq!(found, [(PathBuf::new(), b"*nat\nCOMMIT\n".to_vec())]);
    assert!(
        read(hostile("bundle/link", EntryType::Symlink), 1 << 20)
            .unwrap()
            .is_empty()
    );
    for cut in [GZIP, XZ] {
        assert!(read([cut, b"nothing"].concat(), 1 << 20).is_err());
    }
}

#[test]
fn a_long_name_is_read_from_its_own_entry_and_one_that_no_file_has_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.tgz");
    let read = |name: &str| {
        let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut header = Header::new_gnu();
        header.set_size(1);
        tar.append_data(&mut header, name, &b"x"[..]).unwrap();
        fs::write(&file, tar.into_inner().unwrap().finish().unwrap()).unwrap();
        files(&file, 1 << 20, &mut |_| true).map_err(|why| why.to_string())
    };
    let long = ["nodes", &"n".repeat(150), "ip-route.txt"].join("/");
    let found = read(&long).unwrap();
    assert_eq!(found, [(PathBuf::from(&long), b"x".to_vec())]);
    let longer = "n/".repeat(40_000);
    assert!(read(&longer).unwrap_err().contains("more than 65536 bytes"));
}

#[test]
fn what_is_cut_or_no_archive_is_no_bundle() {
    let bytes = packed(&[("run.jsonl", &[b'x'; 4000])]);
    for part in [&bytes[..bytes.len() / 2], b"\x1f\x8bnothing", b""] {
        let why = unpacked(part).unwrap_err();
        assert!(why.contains("is no bundle"), "{why}");
    }
}

/// `sos report` compresses by xz.
#[test]
fn what_xz_compressed_and_what_nobody_did_are_read_likewise_and_more_memory_than_xz_takes_is_refused()
 {
    let mut tar = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    let rules: &[u8] = b"*nat\nCOMMIT\n";
    header.set_size(rules.len() as u64);
    tar.append_data(&mut header, "sos/rules", rules).unwrap();
    let tar = tar.into_inner().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sos.tar.xz");
    let read = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        assert!(is_one(&file));
        files(&file, 1 << 20, &mut |_| true).map_err(|why| why.to_string())
    };
    let expected = Ok(vec![(PathBuf::from("sos/rules"), rules.to_vec())]);
    assert_eq!(read(&tar), expected);
    let compressed = by_xz(&tar, 8 << 20);
    assert_eq!(read(&compressed), expected);
    let cut = read(&compressed[..compressed.len() / 2]);
    assert!(cut.is_err(), "{cut:?}");
    let greedy = read(&by_xz(&tar, 1 << 30)).unwrap_err();
    assert!(greedy.contains("memory"), "{greedy}");
    fs::write(&file, rules).unwrap();
    assert!(!is_one(&file));
}

/// With a dictionary of so many bytes.
fn by_xz(contents: &[u8], dictionary: u32) -> Vec<u8> {
    let mut options = XzOptions::with_preset(0);
    options.lzma_options.dict_size = dictionary;
    let mut xz = XzWriter::new(Vec::new(), options).unwrap();
    xz.write_all(contents).unwrap();
    xz.finish().unwrap()
}
