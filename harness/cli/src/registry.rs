//! The backends of this program. Adding one touches its crate, and adds a line here.

use std::fmt;

use chainbreak_engine::backend::BackendFactory;
#[cfg(feature = "clusters")]
use chainbreak_kind::{existing::ClusterFactory, made::KindFactory};
use chainbreak_lab::LabFactory;
use serde::{Deserialize, Serialize};

/// In the order of the help.
static BACKENDS: &[&dyn BackendFactory] = &[
    &LabFactory,
    #[cfg(feature = "clusters")]
    &KindFactory,
    #[cfg(feature = "clusters")]
    &ClusterFactory,
];

/// Every one.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn BackendFactory> {
    BACKENDS.iter().copied()
}

/// The one of that name.
pub(crate) fn named(name: &str) -> Option<Registered> {
    all().find(|it| it.name() == name).map(Registered)
}

/// One of them, which is its name wherever it is written.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Registered(&'static dyn BackendFactory);

impl Registered {
    /// What it is.
    pub(crate) fn factory(self) -> &'static dyn BackendFactory {
        self.0
    }
}

impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl From<Registered> for String {
    fn from(registered: Registered) -> Self {
        registered.0.name().to_owned()
    }
}

impl TryFrom<String> for Registered {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        named(&name).ok_or_else(|| format!("there is no backend {name}"))
    }
}
