//! Where the machine has mounts, from `mountinfo` in `/proc`.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// All mount points, each once.
pub(super) struct MountPoints(BTreeSet<PathBuf>);

impl MountPoints {
    /// Of the calling thread's namespace.
    pub(super) fn read() -> io::Result<Self> {
        fs::read_to_string("/proc/thread-self/mountinfo").map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let paths = text.lines().filter_map(|line| line.split(' ').nth(4));
        Self(paths.map(unescape).collect())
    }

    /// The mount points strictly below a directory that have no other one between, in order.
    pub(super) fn next_below(&self, directory: &Path) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for point in &self.0 {
            let below = point != directory && point.starts_with(directory);
            if below && !found.iter().any(|upper| point.starts_with(upper)) {
                found.push(point.clone());
            }
        }
        found
    }
}

/// The kernel writes space, tab, newline and backslash as `\040` and so on (proc(5)).
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\').then(|| tail.first_chunk::<3>()).flatten();
        let code = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &tail[3..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_and_stacked_mounts_are_found_level_by_level() {
        let text = "22 27 0:21 / / rw - ext4 /dev/vda rw\n\
                    23 22 0:22 / /sys rw - sysfs s rw\n\
                    24 23 0:6 / /sys/fs rw - tmpfs t rw\n\
                    25 22 0:6 / /data\\040x rw - xfs t rw\n\
                    26 22 0:6 / /data\\040x rw - xfs t rw\n\
                    27 22 0:6 / /data\\040x/a rw - xfs t rw\n";
        let points = MountPoints::parse(text);
        let below = |path: &str| points.next_below(Path::new(path));
        assert_eq!(
            below("/"),
            [PathBuf::from("/data x"), PathBuf::from("/sys")]
        );
        assert_eq!(below("/data x"), [PathBuf::from("/data x/a")]);
        assert!(below("/data").is_empty());
    }
}
