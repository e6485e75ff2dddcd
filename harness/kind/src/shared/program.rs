//! This program on nodes and hosts: the probe of every place, and Felix's model.

use std::{
    fs::File,
    io::{self, Read},
    process::Stdio,
    time::Duration,
};

use chainbreak_engine::cluster::Command;
use futures::future::try_join_all;
use object::{
    Endianness, U16, U64,
    elf::FileHeader64,
    pod::from_bytes_mut,
    read::elf::{FileHeader, ProgramHeader},
};
use serde::Serialize;
use tokio::{io::AsyncWriteExt, process::Child};

use crate::{
    error::KindError,
    hash,
    shared::nodes::{Node, Nodes},
    tool::Tool,
};

/// Where kind gives each node a volume of its own.
pub(crate) const VOLUME: &str = "/var";
/// Where the program is in a node that is ours: in its volume, which hosts beside the cluster see, too.
pub(crate) const PROGRAM: &str = "/var/lib/chainbreak";
/// So much of a program has what says where its parts are.
const HEADERS: u64 = 4096;
/// What copying may take: a build that is not optimised is sixty megabytes.
const COPY: Duration = Duration::from_secs(120);
/// What it may take to say its version.
const TRY: Duration = Duration::from_secs(30);
/// An earlier one may be running: it is replaced, not overwritten.
pub(crate) const PUT: &str = "cat > \"$1.new\" && chmod 755 \"$1.new\" && mv \"$1.new\" \"$1\"";
/// Prints which program was put there, if that file is the one that is there: summing sixty megabytes up takes a node a second. A file is known by
/// number, size and time.
const NOTED: &str = "{ read -r sum && read -r file; } < \"$1.sha256\" && \
    [ \"$file\" = \"$(stat -c '%i %s %Y' \"$1\")\" ] && echo \"$sum\"";
const FORGET: &str = "rm -f \"$1.sha256\"";
const NOTE: &str = "{ cat; stat -c '%i %s %Y' \"$1\"; } > \"$1.sha256\"";

/// Copies the running program to every node and tries it there.
pub(crate) async fn place(nodes: &Nodes) -> Result<(), KindError> {
    let own = own()?;
    for node in &nodes.0 {
        put(node, &own).await?;
    }
    Ok(())
}

/// The same, but for nodes on which it is already, as those of a cluster that is kept.
pub(crate) async fn place_once(nodes: &Nodes, own: &[u8]) -> Result<(), KindError> {
    let sum = hash::sha256(own);
    let placed = nodes.0.iter().map(async |node| {
        let at_program = |script| ["sh", "-c", script, "sh", &node.program];
        let noted = node.run(&at_program(NOTED)).await;
        if noted.is_ok_and(|it| it.trim() == sum) {
            return Ok(());
        }
        // Whatever ends this run: no note speaks of another program than is there.
        node.run(&at_program(FORGET)).await?;
        put(node, own).await?;
        node.feed(&at_program(NOTE), &format!("{sum}\n"))
            .await
            .map(drop)
    });
    try_join_all(placed).await.map(drop)
}

/// Starts this program on a node, by a verb that reads an order first. What holds the verb there is its standard input: it ends with what this
/// returns, which has it.
pub(crate) async fn start(node: &Node, verb: &str, order: &impl Serialize) -> io::Result<Child> {
    let argv = node.argv([node.program.as_str(), verb]);
    let mut child = tokio::process::Command::new(&argv[0])
        .args(&argv[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()?;
    let mut order = serde_json::to_string(order)?;
    order.push('\n');
    let stdin = child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
    stdin.write_all(order.as_bytes()).await?;
    Ok(child)
}

/// A command in words, where this program is there.
pub(crate) fn words(program: &str, command: &Command) -> Vec<String> {
    match command {
        Command::Argv(argv) => argv.clone(),
        Command::Probe => vec![program.to_owned(), "probe".to_owned()],
    }
}

/// The running program itself, also when its file was rebuilt meanwhile: as much of it as runs.
pub(crate) fn own() -> Result<Vec<u8>, KindError> {
    let own = "/proc/self/exe";
    let read = || {
        let file = File::open(own)?;
        let mut program = Vec::new();
        (&file).take(HEADERS).read_to_end(&mut program)?;
        let end = end_of_what_runs(&mut program).unwrap_or(u64::MAX);
        (&file)
            .take(end.saturating_sub(HEADERS))
            .read_to_end(&mut program)?;
        Ok(program)
    };
    read().map_err(KindError::file("read", own))
}

/// Where a program's segments end, which are all that a kernel loads, by its beginning, which is as it is when it is cut there: without sections.
/// Those are for debuggers, and of a build with their information two thirds of it. `None`, and as it was, where it is no ELF file of 64 bits.
fn end_of_what_runs(program: &mut [u8]) -> Option<u64> {
    let header = FileHeader64::<Endianness>::parse(&*program).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &*program).ok()?.iter();
    let ends = segments.map(|it| it.p_offset(endian).saturating_add(it.p_filesz(endian)));
    let end = ends.max()?;
    let (header, _) = from_bytes_mut::<FileHeader64<Endianness>>(program).ok()?;
    header.e_shoff = U64::new(endian, 0);
    header.e_shnum = U16::new(endian, 0);
    header.e_shstrndx = U16::new(endian, 0);
    Some(end)
}

/// Copies it to a node, and tries it there.
async fn put(node: &Node, own: &[u8]) -> Result<(), KindError> {
    let path = node.program.as_str();
    let copy = node.argv(["sh", "-c", PUT, "sh", path]);
    Tool::new(COPY, copy).reading(own).output().await?;
    let tried = Tool::new(TRY, node.argv([path, "--version"]))
        .output()
        .await;
    tried.map(drop).map_err(|error| {
        KindError::Unable(format!(
            "this program does not run on {}: it has to be linked statically for that (`make static`)\n{error}",
            node.name
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use super::*;

    #[test]
    fn what_is_put_on_nodes_runs_and_has_nothing_that_no_kernel_loads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own");
        let own = own().unwrap();
        // By a process of its own, as on nodes: what has it open for writing is gone when it is to run.
        let put = duct::cmd!("sh", "-c", PUT, "sh", &path).stdin_bytes(own.clone());
        put.run().unwrap();
        let ran = duct::cmd!(&path, "--list").read().unwrap();
        let this = "what_is_put_on_nodes_runs_and_has_nothing_that_no_kernel_loads";
        assert!(ran.contains(this), "{ran}");
        let whole = fs::metadata("/proc/self/exe").unwrap().len();
        let left = u64::try_from(own.len()).unwrap();
        assert!(left * 10 < whole * 9, "{left} of {whole}");
    }

    #[tokio::test]
    async fn a_program_is_placed_again_where_another_one_is_noted_or_none_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chainbreak");
        let node = Node {
            program: path.display().to_string(),
            ..Node::entered_by(&["env"])
        };
        let nodes = Nodes(vec![node]);
        let text = || fs::read_to_string(&path).unwrap();
        let (first, second) = ("#!/bin/sh\n: first\n", "#!/bin/sh\n: second\n");
        let file = || fs::metadata(&path).unwrap().ino();
        place_once(&nodes, first.as_bytes()).await.unwrap();
        assert_eq!(text(), first);
        let placed = file();
        place_once(&nodes, first.as_bytes()).await.unwrap();
        assert_eq!(file(), placed, "it is copied once");
        // By a program that makes no note.
        fs::write(&path, "another").unwrap();
        place_once(&nodes, first.as_bytes()).await.unwrap();
        assert_eq!(text(), first);
        place_once(&nodes, second.as_bytes()).await.unwrap();
        assert_eq!(text(), second);
        fs::remove_file(&path).unwrap();
        place_once(&nodes, second.as_bytes()).await.unwrap();
        assert_eq!(text(), second);
        // One that does not run here is not taken for placed.
        let broken = "#!/bin/sh\nexit 3\n";
        for _ in 0..2 {
            let refused = place_once(&nodes, broken.as_bytes()).await.unwrap_err();
            assert!(
                refused.to_string().contains("does not run on n1"),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_is_no_program_is_left_as_it_is() {
        for text in ["", "#!/bin/sh\n", "\u{7f}ELF\u{2}\u{1}\u{1}"] {
            let mut text = text.as_bytes().to_vec();
            let before = text.clone();
            assert_eq!(end_of_what_runs(&mut text), None);
            assert_eq!(text, before);
        }
    }
}
