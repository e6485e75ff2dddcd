//! The shell's language.

/// A word of a command as a POSIX shell reads it back.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
