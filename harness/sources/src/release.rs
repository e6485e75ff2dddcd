//! Releases of Kubernetes, and which of them a person means.

use std::{fmt, str::FromStr};

/// `1.34.2`: the patch of a minor version of Kubernetes 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// 34.
    pub minor: u16,
    /// 2.
    pub patch: u16,
}

impl Release {
    /// The one that scripts build, from Debian's source and with the Go of its time.
    pub const OF_SCRIPTS: Self = Self {
        minor: 20,
        patch: 2,
    };
    /// The first minor version that is built from Go modules. Of older ones the modules ask for a Go of their time.
    pub const FIRST_MINOR: u16 = 28;

    /// Whether there is a way to build it.
    pub fn can_be_built(self) -> bool {
        self == Self::OF_SCRIPTS || self.minor >= Self::FIRST_MINOR
    }

    /// As tags and modules have it.
    pub fn tag(self) -> String {
        format!("v{self}")
    }

    /// Of the staging modules that were released with it.
    pub fn staging(self) -> String {
        format!("v0.{}.{}", self.minor, self.patch)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("1.{}.{}", self.minor, self.patch))
    }
}

impl FromStr for Release {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match numbers(text).as_deref() {
            Some([1, minor, patch]) => Ok(Self {
                minor: *minor,
                patch: *patch,
            }),
            _ => Err(format!("{text:?} is no release: write 1.34.2")),
        }
    }
}

/// The numbers of `1.34` or `v1.34.2`; `None` where there is anything else.
pub(crate) fn numbers(text: &str) -> Option<Vec<u16>> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let digits = |part: &str| {
        let plain = part.bytes().all(|it| it.is_ascii_digit());
        plain.then(|| part.parse().ok()).flatten()
    };
    text.split('.').map(digits).collect()
}

/// The releases that are pinned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins(Vec<Release>);

impl Pins {
    /// Of these releases, in any order.
    pub fn new(releases: impl IntoIterator<Item = Release>) -> Self {
        let mut releases: Vec<Release> = releases.into_iter().collect();
        releases.sort_unstable();
        releases.dedup();
        Self(releases)
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> &[Release] {
        &self.0
    }

    /// What a person means by `1.34.2`, or by `1.34`: the newest pinned patch. 1.20 is the one that scripts build.
    pub fn meant(&self, written: &str) -> Result<Release, String> {
        let minor = match numbers(written).as_deref() {
            Some([1, minor, patch]) => {
                return Ok(Release {
                    minor: *minor,
                    patch: *patch,
                });
            }
            Some([1, minor]) => *minor,
            _ => {
                return Err(format!(
                    "{written:?} is no version of kube-proxy: write 1.34.2, or 1.34 for its newest pinned patch"
                ));
            }
        };
        let mut known = self.0.iter().rev().copied().chain([Release::OF_SCRIPTS]);
        let found = known.find(|release| release.minor == minor);
        found.ok_or_else(|| {
            let minors: Vec<String> = self.minors().map(|minor| format!("1.{minor}")).collect();
            format!(
                "no release of {written} is pinned: write its patch, as {written}.0, or one of {}",
                minors.join(", ")
            )
        })
    }

    fn minors(&self) -> impl Iterator<Item = u16> {
        let mut minors: Vec<u16> = self.0.iter().map(|release| release.minor).collect();
        minors.dedup();
        minors.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins() -> Pins {
        let releases = ["1.34.12", "1.33.5", "1.34.2", "1.33.13"];
        Pins::new(releases.map(|text| text.parse().unwrap()))
    }

    #[test]
    fn a_minor_version_means_its_newest_pinned_patch_and_a_patch_itself() {
        let meant = |written| pins().meant(written).map(|it| it.to_string());
        assert_eq!(meant("1.34"), Ok("1.34.12".to_owned()));
        assert_eq!(meant("1.33"), Ok("1.33.13".to_owned()));
        assert_eq!(meant("1.34.2"), Ok("1.34.2".to_owned()));
        assert_eq!(meant("v1.30.4"), Ok("1.30.4".to_owned()));
        assert_eq!(meant("1.20"), Ok("1.20.2".to_owned()));
    }

    #[test]
    fn what_nobody_can_mean_is_refused_with_what_to_write() {
        let why = pins().meant("1.27").unwrap_err();
        assert!(
            why.contains("write its patch") && why.contains("1.33, 1.34"),
            "{why}"
        );
        for text in ["", "latest", "2.1", "1.34.2-rc.0", "1", "1.34.2.1", "1.+4"] {
            let why = pins().meant(text).unwrap_err();
            assert!(why.contains("is no version of kube-proxy"), "{text}: {why}");
        }
    }
}
