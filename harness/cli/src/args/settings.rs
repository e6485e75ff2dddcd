//! `--matrix a=1 b=2 PATH`: the settings that follow an option, and the paths that follow them.

use std::ffi::{OsStr, OsString};

/// The arguments with a `--matrix` before each of the settings that follow one: `--matrix a=1 b=2 PATH` is
/// `--matrix a=1 --matrix b=2 PATH`. An option that takes several values would take the paths as well.
pub(crate) fn spread(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    const FLAG: &str = "--matrix";
    let mut spread: Vec<OsString> = Vec::new();
    let mut literal = false;
    let mut settings = false;
    for arg in args {
        literal |= arg == "--";
        let flag = arg.to_string_lossy().starts_with("--matrix=");
        let value = spread.last().is_some_and(|before| before == FLAG);
        if !literal && settings && !value && is_setting(&arg) {
            spread.push(FLAG.into());
        } else {
            settings = flag || value;
        }
        spread.push(arg);
    }
    spread
}

/// `key=value`; a file of such a name is written `./key=value`.
fn is_setting(arg: &OsStr) -> bool {
    let text = arg.to_string_lossy();
    let word = text.split_once('=').map_or("", |(word, _)| word);
    !word.is_empty()
        && !word.starts_with('-')
        && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_takes_the_settings_that_follow_it_and_nothing_else() {
        let cases = [
            (
                "run PATH --matrix a=1 b=2",
                "run PATH --matrix a=1 --matrix b=2",
            ),
            ("run --matrix a=1 PATH", "run --matrix a=1 PATH"),
            (
                "run --matrix a=1 b=2,3 PATH c=3",
                "run --matrix a=1 --matrix b=2,3 PATH c=3",
            ),
            (
                "run --matrix a=1 --jobs 1 b=2",
                "run --matrix a=1 --jobs 1 b=2",
            ),
            ("run --matrix=a=1 b=2", "run --matrix=a=1 --matrix b=2"),
            ("run --matrix a=1 -- b=2", "run --matrix a=1 -- b=2"),
            ("run --matrix a=1 ./b=2", "run --matrix a=1 ./b=2"),
            ("run --matrix PATH b=2", "run --matrix PATH --matrix b=2"),
            (
                "shell n1 -- x --matrix a=1 b=2",
                "shell n1 -- x --matrix a=1 b=2",
            ),
        ];
        for (given, taken) in cases {
            let spread = spread(given.split(' ').map(OsString::from));
            assert_eq!(spread.join(OsStr::new(" ")), taken, "{given}");
        }
    }
}
