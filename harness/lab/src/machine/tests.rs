//! The journal of changes to a machine that is a folder.

use super::*;

const MAX: &str = "net.netfilter.nf_conntrack_max";

/// A machine that is a folder.
fn machine(folder: &Path) -> Machine {
    let machine = Machine {
        settings: folder.join("sys"),
        journal: folder.join("state/machine.json"),
    };
    fs::create_dir_all(folder.join("sys/net/netfilter")).unwrap();
    fs::write(machine.path(MAX), "262144\n").unwrap();
    machine
}

fn larger() -> BTreeMap<String, String> {
    [(MAX.to_owned(), "524288".to_owned())].into()
}

#[test]
fn a_setting_is_changed_and_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(folder.path());
    let changed = machine.change(&larger()).unwrap();
    assert_eq!(machine.read(MAX).unwrap(), "524288");
    assert_eq!(changed.told(), format!("{MAX} from 262144 to 524288"));
    let said = changed.set_back().unwrap();
    assert_eq!(said, [format!("set {MAX} back from 524288 to 262144")]);
    assert_eq!(machine.read(MAX).unwrap(), "262144");
    drop(machine.change(&larger()).unwrap());
    assert_eq!(
        machine.read(MAX).unwrap(),
        "262144",
        "also when it is dropped"
    );
    assert_eq!(machine.undo_left().unwrap(), [""; 0]);
}

#[test]
fn a_value_that_the_kernel_rounds_is_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(folder.path());
    // As it makes 200192 buckets of 200000, it makes 15 bytes of a thread's name.
    let name = "net.name";
    std::os::unix::fs::symlink("/proc/thread-self/comm", machine.path(name)).unwrap();
    let before = machine.read(name).unwrap();
    let wanted = [(name.to_owned(), "sixteen-bytes-ab".to_owned())].into();
    let changed = machine.change(&wanted).unwrap();
    let told = changed.told();
    assert_eq!(told, format!("{name} from {before} to sixteen-bytes-a"));
    let said = changed.set_back().unwrap();
    assert_eq!(
        said,
        [format!("set {name} back from sixteen-bytes-a to {before}")]
    );
    assert_eq!(machine.read(name).unwrap(), before);
}

#[test]
fn what_a_run_was_setting_when_it_was_killed_is_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(folder.path());
    let mut killed = machine.change(&larger()).unwrap();
    drop(killed.file.take());
    // Killed before what was set had been read.
    let text = fs::read_to_string(&machine.journal).unwrap();
    let (first, _) = text.split_once('\n').unwrap();
    fs::write(&machine.journal, format!("{first}\n{{\"boot\":")).unwrap();
    let said = machine.undo_left().unwrap();
    assert_eq!(said, [format!("set {MAX} back from 524288 to 262144")]);
}

#[test]
fn nothing_is_left_of_a_journal_when_everything_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(folder.path());
    drop(machine.change(&larger()).unwrap());
    assert!(!machine.journal.exists());
    let unknown = [("net.unknown".to_owned(), "1".to_owned())].into();
    drop(machine.change(&unknown).unwrap_err());
    assert!(!machine.journal.exists());
}

#[test]
fn what_a_killed_run_has_changed_is_set_back_by_whoever_comes_next() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(folder.path());
    let mut killed = machine.change(&larger()).unwrap();
    assert_eq!(machine.undo_left().unwrap(), [""; 0], "it lives");
    assert!(machine.change(&larger()).is_err(), "it lives");
    // As the kernel closes what a killed process had open.
    drop(killed.file.take());
    assert_eq!(machine.read(MAX).unwrap(), "524288");
    let said = machine.undo_left().unwrap();
    assert_eq!(said, [format!("set {MAX} back from 524288 to 262144")]);
    assert_eq!(machine.read(MAX).unwrap(), "262144");
}

#[test]
fn a_value_of_somebody_else_and_one_of_another_boot_stay() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(folder.path());
    let changed = machine.change(&larger()).unwrap();
    fs::write(machine.path(MAX), "300000\n").unwrap();
    let said = changed.set_back().unwrap();
    assert_eq!(
        said,
        [format!(
            "left {MAX} at 300000: somebody has changed it from 524288"
        )]
    );
    let mut killed = machine.change(&larger()).unwrap();
    drop(killed.file.take());
    let text = fs::read_to_string(&machine.journal).unwrap();
    fs::write(&machine.journal, text.replace(&boot(), "another")).unwrap();
    assert_eq!(machine.undo_left().unwrap(), [""; 0]);
    assert_eq!(machine.read(MAX).unwrap(), "524288");
}

#[test]
fn of_several_settings_none_stays_changed_when_one_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(folder.path());
    // Root may open it for writing, and cannot write.
    std::os::unix::fs::symlink("/proc/version", machine.path("net.read_only")).unwrap();
    let mut wanted = larger();
    wanted.insert("net.read_only".to_owned(), "1".to_owned());
    let refused = machine.change(&wanted).unwrap_err().to_string();
    assert!(refused.starts_with("could not write 1 to "), "{refused}");
    assert_eq!(machine.read(MAX).unwrap(), "262144");
}
