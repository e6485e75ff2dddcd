//! Lines that a real agent writes, made entries as a model logs them.

use chainbreak_model::agent::LogFormat;

/// An entry of several lines has at most so many bytes, and a line more: kube-proxy's longest is an input of iptables-restore.
const LONGEST: usize = 4 << 20;

/// The joiner. klog writes an entry with one call, so that all its lines are there at once: an entry is
/// complete when the next begins, or when there is nothing more to read and no ` >` is missing.
#[derive(Debug)]
pub struct Entries {
    format: LogFormat,
    begun: Vec<String>,
    /// Its bytes.
    bytes: usize,
    /// A block of lines that ends with ` >` has begun.
    quoting: bool,
}

impl Entries {
    /// Nothing has begun.
    pub fn new(format: LogFormat) -> Self {
        Self {
            format,
            begun: Vec::new(),
            bytes: 0,
            quoting: false,
        }
    }

    /// Takes a line, without its newline. Returns the entry that it completes.
    pub fn line(&mut self, line: &str) -> Option<String> {
        if self.format == LogFormat::Lines {
            return Some(line.to_owned());
        }
        let begins = is_header(line);
        // A header inside a block means that its end was lost.
        let is_full = self.bytes > LONGEST;
        let complete = (begins || is_full).then(|| self.take()).flatten();
        let closes = self.quoting && line.starts_with(" >");
        self.quoting = line.ends_with("=<") || (self.quoting && !begins && !closes);
        self.bytes += line.len();
        self.begun.push(line.to_owned());
        complete
    }

    /// There is nothing more to read at the moment. Returns the entry that is complete now.
    pub fn pause(&mut self) -> Option<String> {
        if self.quoting { None } else { self.take() }
    }

    /// There will be nothing more to read. Returns what has begun, complete or not.
    pub fn end(&mut self) -> Option<String> {
        self.take()
    }

    /// Whether every line that was taken is in an entry that was returned.
    pub fn is_complete(&self) -> bool {
        self.begun.is_empty()
    }

    fn take(&mut self) -> Option<String> {
        self.quoting = false;
        self.bytes = 0;
        let entry = std::mem::take(&mut self.begun);
        (!entry.is_empty()).then(|| entry.join("\n"))
    }
}

/// `Lmmdd hh:mm:ss.uuuuuu …` (klog v2, `formatHeader`).
fn is_header(line: &str) -> bool {
    has_form(line, b"L0000 00:00:00.000000 ")
}

/// Whether an entry has the header of either format, Felix's being `yyyy-mm-dd hh:mm:ss.mmm […`.
pub(crate) fn has_header(entry: &str) -> bool {
    is_header(entry) || has_form(entry, b"0000-00-00 00:00:00.000 [")
}

fn has_form(line: &str, form: &[u8]) -> bool {
    let fits = |(byte, form): (&u8, &u8)| match form {
        b'L' => b"IWEF".contains(byte),
        b'0' => byte.is_ascii_digit(),
        form => byte == form,
    };
    line.len() >= form.len() && line.as_bytes().iter().zip(form).all(fits)
}

/// Whether the agent says in it what it ends for: klog's `F`, logrus' two worst levels.
pub(crate) fn is_fatal(entry: &str) -> bool {
    let level = |word| entry.contains(word) && !is_header(entry);
    has_header(entry) && (entry.starts_with('F') || level("[PANIC]") || level("[FATAL]"))
}

/// Whether it is the first line of a stack, as Go's runtime writes one.
pub(crate) fn is_stack(entry: &str) -> bool {
    entry.starts_with("goroutine ") && entry.lines().next().is_some_and(|it| it.ends_with("]:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of a text that comes in one piece, and then nothing for a while.
    fn klog(text: &str) -> Vec<String> {
        let mut entries = Entries::new(LogFormat::Klog);
        let mut found: Vec<String> = text.lines().filter_map(|l| entries.line(l)).collect();
        found.extend(entries.pause());
        found
    }

    const I: &str =
        "I1024 11:40:55.597700       1 proxier.go:860] \"Sync failed\" retryingTime=\"30s\"";

    #[test]
    fn an_error_of_1_20_ends_where_the_next_entry_begins() {
        let error = "E0610 07:32:16.910840       1 proxier.go:1595] Failed to execute iptables-restore: \
            exit status 2 (iptables-restore v1.8.5 (legacy): Couldn't load target `KUBE-SVC-X'\n\n\
            Error occurred at line: 177\n\
            Try `iptables-restore -h' or 'iptables-restore --help' for more information.\n)";
        assert_eq!(klog(&format!("{error}\n{I}\n")), [error, I]);
        assert_eq!(klog(error), [error]);
    }

    #[test]
    fn a_structured_error_ends_with_its_bracket_and_what_follows_that() {
        for end in [" >", " > ipFamily=\"IPv4\""] {
            let error = format!(
                "E1024 11:40:55.597686       1 proxier.go:1546] \"Failed to execute iptables-restore\" \
                 err=<\n\texit status 2: iptables-restore v1.8.7 (nf_tables): Chain 'X' does not exist\n\
                 \tError occurred at line: 367\n{end}"
            );
            assert_eq!(klog(&format!("{error}\n{I}")), [error.as_str(), I]);
        }
    }

    #[test]
    fn half_a_structured_error_waits_for_the_rest() {
        let mut entries = Entries::new(LogFormat::Klog);
        let first = "E1024 11:40:55.597686       1 proxier.go:1546] \"Failed\" err=<";
        assert!(entries.is_complete());
        assert_eq!(entries.line(first), None);
        assert_eq!(entries.pause(), None);
        assert!(!entries.is_complete());
        assert_eq!(entries.line("\texit status 2"), None);
        assert_eq!(entries.pause(), None);
        assert_eq!(entries.line(" > rules=<"), None);
        assert_eq!(entries.pause(), None, "one block after the other");
        assert_eq!(entries.line(" >"), None);
        let whole = format!("{first}\n\texit status 2\n > rules=<\n >");
        assert_eq!(entries.pause(), Some(whole));
        assert_eq!(entries.pause(), None);
    }

    #[test]
    fn nothing_is_lost_when_a_block_is_never_closed() {
        let first = "E1024 11:40:55.597686       1 proxier.go:1546] \"Failed\" err=<";
        assert_eq!(klog(&format!("{first}\n{I}")), [first, I]);
        let mut entries = Entries::new(LogFormat::Klog);
        assert_eq!(entries.line(first), None);
        assert_eq!(entries.end().as_deref(), Some(first));
    }

    #[test]
    fn words_without_a_header_are_entries_too() {
        let usage = "Error: unknown flag: --no\nUsage:\n  kube-proxy [flags]";
        assert_eq!(klog(usage), [usage]);
        let almost = "I1024 is not a header";
        assert_eq!(
            klog(&format!("{I}\n{almost}\n{I}")),
            [format!("{I}\n{almost}"), I.to_owned()]
        );
    }

    #[test]
    fn an_entry_that_never_ends_is_told_in_pieces() {
        let mut entries = Entries::new(LogFormat::Klog);
        let begun = "E1024 11:40:55.597686       1 proxier.go:1546] \"Failed\" err=<";
        assert_eq!(entries.line(begun), None);
        let line = "x".repeat(LONGEST);
        assert_eq!(entries.line(&line), None);
        assert_eq!(entries.line("more"), Some(format!("{begun}\n{line}")));
    }

    #[test]
    fn each_line_of_felix_is_an_entry() {
        let mut entries = Entries::new(LogFormat::Lines);
        let line = "2025-06-10 07:32:16.910 [WARNING][53] felix/table.go 698: err=<";
        assert_eq!(entries.line(line).as_deref(), Some(line));
        assert_eq!(entries.end(), None);
    }
}
