//! What a path stands for that was given for an agent: a binary, or an unpacked root file system with
//! one in it. Looked at from outside of every world; nothing is run here.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use chainbreak_model::{agent::DIRECTORIES, names::AgentName};
use nix::{
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    sys::stat::Mode,
};
use sha2::{Digest, Sha256};

use super::elf;

/// Without it neither agent can do anything, in any mode of theirs.
const NEEDED: &str = "iptables";

/// A program found and opened.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its path, in `root` if there is one.
    pub(crate) path: PathBuf,
    /// The root file system that it runs in, unless in the node's.
    pub(crate) root: Option<PathBuf>,
    file: File,
}

impl Program {
    /// Finds the agent's program. An error says what is wrong with the path, as a person acts on it.
    pub(crate) fn find(agent: AgentName, path: &Path) -> Result<Self, String> {
        let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
        let mut program = if metadata.is_dir() {
            Self::in_root(agent, path)?
        } else if !metadata.is_file() {
            // Opening a pipe would wait for somebody who writes to it.
            return Err(format!("{} is not a program", path.display()));
        } else {
            Self {
                path: path.to_owned(),
                root: None,
                file: File::open(path).map_err(|error| error.to_string())?,
            }
        };
        program.check()?;
        Ok(program)
    }

    /// The file's hash, in hexadecimal. Some tenths of a second of work.
    pub(crate) fn sha256(mut self) -> io::Result<String> {
        let mut hash = Sha256::new();
        io::copy(&mut self.file, &mut hash)?;
        Ok(data_encoding::HEXLOWER.encode(&hash.finalize()))
    }

    fn in_root(agent: AgentName, root: &Path) -> Result<Self, String> {
        let programs = agent.kind().programs;
        let find = |name: &str| {
            let paths = DIRECTORIES.map(|directory| Path::new(directory).join(name));
            paths.into_iter().find_map(|path| {
                let file = open_in(root, &path).ok()?;
                Some((path, file))
            })
        };
        let places = DIRECTORIES.join(", ");
        let words = |name: &str| format!("it is a folder without {name} in its {places}");
        let found = programs.iter().find_map(|program| find(program.name));
        let (path, file) = found.ok_or_else(|| words(programs[0].name))?;
        find(NEEDED).ok_or_else(|| words(NEEDED))?;
        Ok(Self {
            path,
            root: Some(root.to_owned()),
            file,
        })
    }

    fn check(&mut self) -> Result<(), String> {
        let at = self.path.display();
        let metadata = self.file.metadata().map_err(|error| error.to_string())?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            return Err(format!("{at} is not executable"));
        }
        let mut head = Vec::new();
        let read = Read::by_ref(&mut self.file)
            .take(elf::HEAD)
            .read_to_end(&mut head);
        read.map_err(|error| error.to_string())?;
        io::Seek::rewind(&mut self.file).map_err(|error| error.to_string())?;
        elf::runs_here(&head).map_err(|why| format!("{at} is {why}"))
    }
}

/// Opens a file as the programs in the root see it: links lead to where they lead there.
fn open_in(root: &Path, path: &Path) -> nix::Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = open(root, flags, Mode::empty())?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    openat2(root, path, how).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it can be made");
        fs::write(path, "#!/bin/sh\n").expect("it can be written");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }

    fn refusal(path: &Path) -> String {
        Program::find(AgentName::KubeProxy, path)
            .map(drop)
            .unwrap_err()
    }

    #[test]
    fn a_program_is_found_in_its_root_where_links_are_the_roots_own() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().join("opt/real");
        script(&real, 0o755);
        script(&root.path().join("usr/sbin/iptables"), 0o755);
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        std::os::unix::fs::symlink("/opt/real", root.path().join("usr/bin/kube-proxy")).unwrap();
        let found = Program::find(AgentName::KubeProxy, root.path()).unwrap();
        assert_eq!(found.path, Path::new("/usr/bin/kube-proxy"));
        assert_eq!(found.root.as_deref(), Some(root.path()));
        let hash = "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf";
        assert_eq!(found.sha256().unwrap(), hash, "`#!/bin/sh` and a newline");
    }

    #[test]
    fn what_cannot_be_an_agent_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(
            refusal(&at("none")),
            "No such file or directory (os error 2)"
        );
        script(&at("plain"), 0o644);
        assert!(refusal(&at("plain")).ends_with("plain is not executable"));
        assert!(
            refusal(folder.path()).starts_with("it is a folder without kube-proxy in its /usr")
        );
        script(&at("bin/kube-proxy"), 0o755);
        assert!(refusal(folder.path()).starts_with("it is a folder without iptables in "));
    }
}
