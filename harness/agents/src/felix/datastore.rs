//! What Felix says when the API does not answer (libcalico-go, `watchersyncer/watchercache.go`; felix/daemon/daemon.go). But for a start, none of it
//! is an error to Felix: `logSeverityScreen: Error` hides it all.

use super::{Version, log::Line};
use crate::step::Severity;

const SITE: &str = "felix/watchercache.go 274";
/// What is listed before anything else, once in a life.
const FIRST: [&str; 2] = ["felixconfigurations", "ippools"];

/// One request to the API that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreached {
    /// The resource's plural name: `felixconfigurations`.
    pub plural: &'static str,
    /// What was tried.
    pub attempt: Attempt,
    /// Why it failed.
    pub error: String,
}

/// What is asked of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// To list what there is.
    List,
    /// To watch.
    Watch {
        /// How often that has failed in a row, this time among them.
        failed: u32,
    },
    /// To watch, from v3.30 on, where nobody listens.
    RefusedWatch,
}

impl Unreached {
    /// The line of a Felix that has read its configuration.
    pub(super) fn line(&self, version: Version) -> Line {
        let line = match self.attempt {
            Attempt::List => {
                Line::info(SITE, "Failed to perform list of current data during resync")
            }
            Attempt::RefusedWatch => {
                Line::warning(SITE, "API server refused connection, will retry.")
            }
            Attempt::Watch { failed } if version.watches_again() => {
                Line::warning(SITE, "Failed to create watcher; will retry.")
                    .with("errorsWithoutProgress", failed)
                    .with("performFullResync", false)
            }
            Attempt::Watch { .. } => {
                Line::info(SITE, "Failed to create watcher").with("performFullResync", false)
            }
        };
        let root = if version.watches_again() {
            ".../v3/pc.org/"
        } else {
            "/calico/resources/v3/projectcalico.org/"
        };
        line.text("ListRoot", &format!("{root}{}", self.plural))
            .with("error", &self.error)
    }

    /// The line of a Felix that begins, if that is what it waits for: it does not know yet what it is to be silent about.
    pub(super) fn line_at_start(&self) -> Option<Line> {
        let line = Line::new(
            Severity::Error,
            "felix/daemon.go 247",
            "Failed to get config from datastore",
        );
        FIRST
            .contains(&self.plural)
            .then(|| line.with("error", &self.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreached(plural: &'static str, attempt: Attempt) -> Unreached {
        Unreached {
            plural,
            attempt,
            error: "no route to host".to_owned(),
        }
    }

    fn line(version: &str, attempt: Attempt) -> (Severity, String) {
        let version = version.parse().unwrap();
        let line = unreached("nodes", attempt).line(version).build();
        (line.severity, line.text)
    }

    #[test]
    fn an_api_that_is_not_reached_is_no_error_to_felix() {
        let list = "Failed to perform list of current data during resync";
        let old =
            r#"ListRoot="/calico/resources/v3/projectcalico.org/nodes" error=no route to host"#;
        let new = r#"ListRoot=".../v3/pc.org/nodes" error=no route to host"#;
        for (version, attempt, severity, text) in [
            (
                "v3.28.1",
                Attempt::List,
                Severity::Info,
                format!("{list} {old}"),
            ),
            (
                "v3.30.0",
                Attempt::List,
                Severity::Info,
                format!("{list} {new}"),
            ),
            (
                "v3.29.7",
                Attempt::Watch { failed: 1 },
                Severity::Info,
                format!("Failed to create watcher {old} performFullResync=false"),
            ),
            (
                "v3.32.1",
                Attempt::Watch { failed: 2 },
                Severity::Warning,
                format!(
                    "Failed to create watcher; will retry. {new} errorsWithoutProgress=2 performFullResync=false"
                ),
            ),
            (
                "v3.32.1",
                Attempt::RefusedWatch,
                Severity::Warning,
                format!("API server refused connection, will retry. {new}"),
            ),
        ] {
            assert_eq!(line(version, attempt), (severity, text), "{version}");
        }
    }

    #[test]
    fn only_a_felix_that_begins_calls_it_one_and_once_for_each_try() {
        let at_start = |plural| unreached(plural, Attempt::List).line_at_start();
        let line = at_start("ippools").unwrap().build();
        let text = "Failed to get config from datastore error=no route to host";
        assert_eq!((line.severity, &*line.text), (Severity::Error, text));
        assert!(at_start("nodes").is_none());
    }
}
