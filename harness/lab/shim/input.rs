//! Which commands read standard input. Theirs passes through the shim, which hands a copy to the
//! recorder; others get the agent's own, as a shell's `while read` loop would lose lines otherwise.

/// Whether this program reads standard input when it is called like this.
pub(crate) fn is_read(name: &str, arguments: &[&str]) -> bool {
    match name {
        "nft" => is_nft_input(arguments),
        "ipset" => is_ipset_input(arguments),
        "conntrack" => follows(arguments, &["-R", "--load-file"]),
        _ => name.ends_with("-restore") && !names_file(arguments),
    }
}

/// `nft -f -`, also `-cf -`, `--file=-`, `/dev/stdin`; and `nft -i`.
fn is_nft_input(arguments: &[&str]) -> bool {
    let attached = ["-f-", "--file=-", "-i", "--interactive"];
    let bundled = |option: &str| {
        let letters = option.strip_prefix('-');
        letters.is_some_and(|letters| !letters.starts_with('-') && letters.ends_with('f'))
    };
    arguments.iter().any(|word| attached.contains(word))
        || arguments
            .windows(2)
            .any(|pair| (pair[0] == "--file" || bundled(pair[0])) && is_standard_input(pair[1]))
}

/// `ipset restore` without `-file NAME`, and `ipset -`, which takes commands.
fn is_ipset_input(arguments: &[&str]) -> bool {
    let from_file = |word: &&str| matches!(*word, "-f" | "-file" | "--file");
    let mut words = arguments.iter();
    let mut command = None;
    while let Some(&word) = words.next() {
        match word {
            "-o" | "-output" | "--output" | "-f" | "-file" | "--file" => drop(words.next()),
            "-" | "-R" | "-restore" | "--restore" => command = command.or(Some("restore")),
            _ if word.starts_with('-') => {}
            _ => command = command.or(Some(word)),
        }
    }
    command == Some("restore") && !arguments.iter().any(from_file)
}

/// Whether a restore is given a file's name, which is the one word that belongs to no option. Asked for
/// its version, it reads nothing either.
fn names_file(arguments: &[&str]) -> bool {
    let mut words = arguments.iter().peekable();
    while let Some(&word) = words.next() {
        match word {
            "-T" | "--table" | "-M" | "--modprobe" => drop(words.next()),
            "-w" | "--wait" | "-W" | "--wait-interval" => {
                // Seconds or microseconds; a lone `-w` waits forever.
                words.next_if(|next| next.starts_with(|first: char| first.is_ascii_digit()));
            }
            "-V" | "--version" | "-h" | "--help" => return true,
            _ if word.starts_with('-') => {}
            _ => return !is_standard_input(word),
        }
    }
    false
}

fn follows(arguments: &[&str], options: &[&str]) -> bool {
    arguments
        .windows(2)
        .any(|pair| options.contains(&pair[0]) && is_standard_input(pair[1]))
}

fn is_standard_input(file: &str) -> bool {
    matches!(file, "-" | "/dev/stdin" | "/proc/self/fd/0" | "/dev/fd/0")
}
