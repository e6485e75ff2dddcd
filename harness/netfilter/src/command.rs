//! What one `iptables` call, or one line of a restore input, is told to do.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    error::NetfilterError,
    rule::{Counters, Rule},
    words::{is_closed, join, words},
};

/// Which protocol's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// `iptables`.
    V4,
    /// `ip6tables`.
    V6,
}

/// A program of the iptables family and what its arguments ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// `iptables …`: one command on one table.
    Single {
        /// Whose tables.
        family: Family,
        /// The table, `filter` unless said.
        table: String,
        /// The command.
        command: Command,
    },
    /// `iptables-restore …`: what it does stands in its input.
    Restore {
        /// Whose tables.
        family: Family,
        /// With `--noflush`, what the input does not name stays.
        noflush: bool,
        /// With `--table`, other tables of the input are skipped.
        only: Option<String>,
        /// With `--test`, nothing is committed.
        test: bool,
    },
    /// Changes nothing: `iptables-save`, `--version`, `--help`.
    NoChange,
}

/// One command on one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `:CHAIN POLICY [0:0]` of a restore input: a user chain is made, or emptied when it is there; a
    /// built-in chain gets its policy (`-` leaves it).
    Declare {
        /// The chain.
        chain: String,
        /// `ACCEPT` or `DROP`; a user chain has none.
        policy: Option<String>,
        /// Its counters, with `--counters`.
        counters: Option<Counters>,
    },
    /// `-A`.
    Append {
        /// The chain.
        chain: String,
        /// The rule.
        rule: Rule,
    },
    /// `-I`.
    Insert {
        /// The chain.
        chain: String,
        /// Before which rule, from 1.
        number: usize,
        /// The rule.
        rule: Rule,
    },
    /// `-R`.
    Replace {
        /// The chain.
        chain: String,
        /// Which rule, from 1.
        number: usize,
        /// The rule.
        rule: Rule,
    },
    /// `-D` by value.
    Delete {
        /// The chain.
        chain: String,
        /// The rule.
        rule: Rule,
    },
    /// `-D` by number.
    DeleteNumber {
        /// The chain.
        chain: String,
        /// Which rule, from 1.
        number: usize,
    },
    /// `-F`; without a chain, every chain.
    Flush {
        /// The chain.
        chain: Option<String>,
    },
    /// `-N`.
    NewChain {
        /// The chain.
        chain: String,
    },
    /// `-X`; without a chain, every user chain that nothing refers to.
    DeleteChain {
        /// The chain.
        chain: Option<String>,
    },
    /// `-P`.
    Policy {
        /// The chain.
        chain: String,
        /// `ACCEPT` or `DROP`.
        policy: String,
    },
    /// `-E`.
    Rename {
        /// The chain.
        chain: String,
        /// Its new name.
        to: String,
    },
    /// `-C`, `-L`, `-S`, `-Z`, `-V`, `-h`: no rule changes.
    NoChange,
}

impl Invocation {
    /// Reads program and arguments. A path before the program's name, a `-legacy` or `-nft` in it, and a
    /// multi-call binary in front of it do not matter.
    pub fn parse<S: AsRef<str>>(argv: &[S]) -> Result<Self, NetfilterError> {
        let argv: Vec<&str> = argv.iter().map(AsRef::as_ref).collect();
        let bad = || NetfilterError::Argv {
            text: argv.join(" "),
        };
        let (first, mut arguments) = argv.split_first().ok_or_else(bad)?;
        let mut name = base_name(first);
        if name.ends_with("-multi") {
            let (second, rest) = arguments.split_first().ok_or_else(bad)?;
            (name, arguments) = (base_name(second), rest);
        }
        let family = if name.starts_with("ip6tables") {
            Family::V6
        } else if name.starts_with("iptables") {
            Family::V4
        } else {
            return Err(bad());
        };
        if name.ends_with("-save") {
            return Ok(Self::NoChange);
        }
        if name.ends_with("-restore") {
            return Ok(restore(family, arguments));
        }
        let line = Line::read(arguments.iter().map(|&word| Cow::Borrowed(word)));
        Ok(Self::Single {
            family,
            table: line.table.clone().unwrap_or_else(|| "filter".to_owned()),
            command: line.command().ok_or_else(bad)?,
        })
    }
}

pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn restore(family: Family, arguments: &[&str]) -> Invocation {
    let mut only = None;
    let (mut noflush, mut test) = (false, false);
    let mut arguments = arguments.iter();
    while let Some(&argument) = arguments.next() {
        match argument {
            "--noflush" | "-n" => noflush = true,
            "--test" | "-t" => test = true,
            "--table" | "-T" => only = arguments.next().map(|&table| table.to_owned()),
            "--help" | "-h" | "--version" | "-V" => return Invocation::NoChange,
            _ => {
                let table = argument.strip_prefix("--table=");
                only = table.map(str::to_owned).or(only);
            }
        }
    }
    Invocation::Restore {
        family,
        noflush,
        only,
        test,
    }
}

impl Command {
    /// Reads a rule or chain line of a restore input: `:CHAIN - [0:0]`, or `[1:2] -A CHAIN …`.
    /// `line` is its number, for complaints.
    pub(crate) fn parse_line(text: &str, line: usize) -> Result<Self, NetfilterError> {
        let bad = || NetfilterError::Line {
            line,
            text: text.to_owned(),
        };
        if let Some(declaration) = text.strip_prefix(':') {
            return declare(declaration).ok_or_else(bad);
        }
        if !is_closed(text) {
            return Err(NetfilterError::OpenQuote {
                line,
                text: text.to_owned(),
            });
        }
        let (counters, text) = match text.split_once(' ') {
            Some((first, rest)) if first.starts_with('[') => {
                (Some(Counters::parse(first).ok_or_else(bad)?), rest)
            }
            _ => (None, text),
        };
        let command = Line::read(words(text)).command().ok_or_else(bad)?;
        Ok(command.with_counters(counters))
    }

    fn with_counters(mut self, given: Option<Counters>) -> Self {
        if let Self::Append { rule, .. } | Self::Insert { rule, .. } | Self::Replace { rule, .. } =
            &mut self
        {
            rule.counters = given;
        }
        self
    }
}

/// `CHAIN POLICY [0:0]`; Felix writes `CHAIN - -`.
fn declare(declaration: &str) -> Option<Command> {
    let mut words = declaration.split_ascii_whitespace();
    let chain = words.next()?.to_owned();
    let policy = words.next()?;
    Some(Command::Declare {
        chain,
        policy: (policy != "-").then(|| policy.to_owned()),
        counters: words.next().and_then(Counters::parse),
    })
}

/// Arguments of `iptables` taken apart: the command's option and operands, and the words of the rule.
#[derive(Debug, Default)]
struct Line {
    table: Option<String>,
    verb: Option<char>,
    operands: Vec<String>,
    rule: Vec<String>,
}

impl Line {
    fn read<'a>(words: impl Iterator<Item = Cow<'a, str>>) -> Self {
        let mut line = Self::default();
        let mut words = words.peekable();
        while let Some(word) = words.next().map(unbundled) {
            let (option, attached) = split_option(&word);
            if let Some((verb, operands)) = verb(option) {
                line.verb = Some(verb);
                line.operands.extend(attached.map(str::to_owned));
                while line.operands.len() < operands
                    && let Some(operand) = words.next_if(|next| is_operand(next))
                {
                    line.operands.push(operand.into_owned());
                }
                continue;
            }
            match option {
                "-t" | "--table" => {
                    line.table = match attached {
                        Some(table) => Some(table.to_owned()),
                        None => words.next().map(Cow::into_owned),
                    };
                }
                "-w" | "--wait" | "-W" | "--wait-interval" if attached.is_none() => {
                    words.next_if(|next| !next.starts_with(['-', '!']));
                }
                "-M" | "--modprobe" if attached.is_none() => drop(words.next()),
                "-c" | "--set-counters" => drop((words.next(), words.next())),
                "-w" | "--wait" | "-W" | "--wait-interval" | "-M" | "--modprobe" | "-v"
                | "--verbose" | "-n" | "--numeric" | "-4" | "--ipv4" | "-6" | "--ipv6"
                | "--line-numbers" | "-x" | "--exact" | "-f" => {}
                _ => {
                    let comment = word == "--comment";
                    line.rule.push(word.into_owned());
                    line.rule
                        .extend(words.next_if(|_| comment).map(Cow::into_owned));
                }
            }
        }
        line
    }

    fn command(self) -> Option<Command> {
        let text = join(self.rule.iter().map(String::as_str));
        let rule = Rule::new(text);
        let mut operands = self.operands.into_iter();
        let chain = operands.next();
        let second = operands.next();
        let number = second.as_deref().and_then(|text| text.parse().ok());
        Some(match (self.verb?, chain) {
            ('A', Some(chain)) => Command::Append { chain, rule },
            ('I', Some(chain)) => Command::Insert {
                chain,
                number: number.unwrap_or(1),
                rule,
            },
            ('R', Some(chain)) => Command::Replace {
                chain,
                number: number?,
                rule,
            },
            ('D', Some(chain)) => match number {
                Some(number) => Command::DeleteNumber { chain, number },
                None => Command::Delete { chain, rule },
            },
            ('N', Some(chain)) => Command::NewChain { chain },
            ('P', Some(chain)) => Command::Policy {
                chain,
                policy: second?,
            },
            ('E', Some(chain)) => Command::Rename { chain, to: second? },
            ('F', chain) => Command::Flush { chain },
            ('X', chain) => Command::DeleteChain { chain },
            ('C' | 'L' | 'S' | 'Z' | 'V' | 'h', _) => Command::NoChange,
            _ => return None,
        })
    }
}

/// The command that an option stands for, and how many operands it takes at most.
fn verb(option: &str) -> Option<(char, usize)> {
    Some(match option {
        "-A" | "--append" => ('A', 1),
        "-C" | "--check" => ('C', 1),
        "-D" | "--delete" => ('D', 2),
        "-I" | "--insert" => ('I', 2),
        "-R" | "--replace" => ('R', 2),
        "-L" | "--list" => ('L', 2),
        "-S" | "--list-rules" => ('S', 2),
        "-Z" | "--zero" => ('Z', 2),
        "-F" | "--flush" => ('F', 1),
        "-N" | "--new" | "--new-chain" => ('N', 1),
        "-X" | "--delete-chain" => ('X', 1),
        "-P" | "--policy" => ('P', 2),
        "-E" | "--rename-chain" => ('E', 2),
        "-V" | "--version" => ('V', 0),
        "-h" | "--help" => ('h', 0),
        _ => return None,
    })
}

/// A second operand of `-D`, `-I`, `-R`, `-L` is a number, of `-P` and `-E` a name; a rule begins with an
/// option or `!`.
fn is_operand(next: &str) -> bool {
    !next.is_empty() && !next.starts_with(['-', '!'])
}

/// `-nvL` is `-L` with flags that only change what is printed.
fn unbundled(word: Cow<'_, str>) -> Cow<'_, str> {
    match word
        .strip_prefix('-')
        .map(|letters| letters.trim_start_matches(['n', 'v', 'x']))
    {
        Some(rest) if !rest.is_empty() && !rest.starts_with('-') && word.len() > rest.len() + 1 => {
            Cow::Owned(format!("-{rest}"))
        }
        _ => word,
    }
}

/// `--table=nat` and `-tnat` are an option with its value attached.
fn split_option(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
    }
    match word.split_at_checked(2) {
        Some((
            option @ ("-t" | "-w" | "-W" | "-M" | "-A" | "-D" | "-I" | "-N" | "-F" | "-X"),
            value,
        )) if !value.is_empty() => (option, Some(value)),
        _ => (word, None),
    }
}
