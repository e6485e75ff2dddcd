//! Options of backends, as their crates describe them: the command line makes its own of that.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The option of a run, on every backend, by which a person lets cases change what the machine's worlds share.
pub const HOST_CHANGES: &str = "allow-host-changes";

/// The option of a run by which a person lets worlds load eBPF programs.
pub const EBPF: &str = "allow-ebpf";

/// An option of a backend.
#[derive(Debug, Clone, Copy)]
pub struct BackendOption {
    /// After `--`, and in [`Given`].
    pub name: &'static str,
    /// Its value.
    pub takes: Takes,
    /// When it has to be there.
    pub wanted: Wanted,
    /// A line of the help.
    pub help: &'static str,
}

/// What follows an option. The name is the value's in the help.
#[derive(Debug, Clone, Copy)]
pub enum Takes {
    /// It is there or not.
    Nothing,
    /// Any text.
    Text(&'static str),
    /// A path.
    Path(&'static str),
    /// One of these words, each with a line of the help; without the option the first one.
    OneOf(&'static str, &'static [(&'static str, &'static str)]),
}

/// When an option has to be there.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// Never.
    Freely,
    /// When its backend is chosen.
    Always,
    /// It means nothing without that other option.
    With(&'static str),
}

/// What a person gave of a backend's options, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Given(BTreeMap<String, String>);

impl Given {
    /// Whether the option is there.
    pub fn is_on(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The option's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The option is there, with that value; of a switch it is empty.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }
}
