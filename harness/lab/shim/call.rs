//! What was called, and what would have been without the shim.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

/// Where programs are looked for when `PATH` is not set (the default of execvp(3) and of shells).
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One call of one program.
#[derive(Debug)]
pub(crate) struct Call {
    /// Program and arguments as the program would have got them.
    pub(crate) argv: Vec<OsString>,
    /// The program behind the shim, if there is one.
    pub(crate) program: Option<PathBuf>,
    /// `PATH` without the shims.
    pub(crate) path: OsString,
    /// Of the shims: it has the recorder's socket.
    pub(crate) folder: PathBuf,
    /// As which program the shim stands there.
    pub(crate) name: String,
}

impl Call {
    pub(crate) fn of_this_process() -> Result<Self, String> {
        let me = Path::new("/proc/self/exe");
        let unknown = |error| format!("the shim cannot find itself: {error}");
        let shim = fs::read_link(me).map_err(unknown)?;
        let inode = fs::metadata(me).map_err(unknown)?;
        let is_shim = |file: &Path| {
            let found = fs::metadata(file);
            found.is_ok_and(|found| (found.dev(), found.ino()) == (inode.dev(), inode.ino()))
        };
        let (Some(bin), Some(name)) = (shim.parent(), shim.file_name()) else {
            return Err("the shim has no name".to_owned());
        };
        let searched = env::var_os("PATH").unwrap_or_else(|| PATH.into());
        let behind: Vec<PathBuf> = env::split_paths(&searched)
            .filter(|folder| folder != bin && !is_shim(&folder.join(name)))
            .collect();
        let mut found = behind.iter().map(|folder| folder.join(name));
        let program = found.find(|file| file.is_absolute() && is_executable(file));
        Ok(Self {
            argv: argv(program.as_deref()),
            program,
            path: env::join_paths(&behind).map_err(|error| error.to_string())?,
            folder: bin.parent().unwrap_or(bin).to_owned(),
            name: name.to_string_lossy().into_owned(),
        })
    }
}

/// Whoever called by path looked that path up in `PATH` and would have found the program's.
fn argv(program: Option<&Path>) -> Vec<OsString> {
    let mut argv: Vec<OsString> = env::args_os().collect();
    if let (Some(called), Some(program)) = (argv.first_mut(), program)
        && has_folder(called)
    {
        *called = program.into();
    }
    argv
}

fn has_folder(called: &OsStr) -> bool {
    called.as_bytes().contains(&b'/')
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
