use super::*;

fn loaded(objects: &[(Kind, &[u32])]) -> Loaded {
    let objects = objects.iter();
    Loaded(
        objects
            .map(|(kind, ids)| (*kind, ids.iter().copied().collect()))
            .collect(),
    )
}

#[test]
fn what_came_since_is_told_and_what_was_there_before_is_not() {
    let before = loaded(&[(Kind::Program, &[3, 9]), (Kind::Map, &[4])]);
    let after = loaded(&[
        (Kind::Program, &[3, 10, 11]),
        (Kind::Map, &[]),
        (Kind::Link, &[1]),
    ]);
    let since = after.since(&before);
    assert_eq!(
        since,
        loaded(&[(Kind::Program, &[10, 11]), (Kind::Link, &[1])])
    );
    assert_eq!(before.since(&before).told(), None);
    let names = |count| (0..count).map(|it| format!("cali_{it}")).collect();
    assert_eq!(counted(Kind::Program, 2, &names(1)), "2 programs (cali_0)");
    assert_eq!(counted(Kind::Link, 1, &names(0)), "1 link");
    assert!(counted(Kind::Map, 9, &names(9)).ends_with("cali_7; …)"));
}

#[test]
fn an_array_of_programs_is_called_one() {
    let mut info = [0; 128];
    info[..4].copy_from_slice(&PROGRAM_ARRAY.to_ne_bytes());
    info[24..32].copy_from_slice(b"cali_jmp");
    assert_eq!(
        called(Kind::Map, 24, &info),
        "cali_jmp, an array of programs"
    );
    info[0] = 1;
    assert_eq!(called(Kind::Map, 24, &info), "cali_jmp");
    assert_eq!(called(Kind::Program, 64, &info), "no name");
}

#[test]
fn a_journal_of_a_run_that_lives_of_another_boot_or_cut_off_tells_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let other_boot = Journal {
        boot: "another".to_owned(),
        loaded: Loaded::default(),
    };
    let other_boot = write("1.json", &serde_json::to_string(&other_boot).unwrap());
    let cut_off = write("2.json", "{\"boot\":");
    let lives = write("3.json", "{}");
    let locked = File::open(&lives).unwrap();
    locked.lock().unwrap();
    assert_eq!(left_in(folder.path()).unwrap(), Vec::<String>::new());
    assert!(!other_boot.exists() && !cut_off.exists() && lives.exists());
}
