//! How a run goes on: how often, until when, what is kept, and how much is said of it.

use clap::Args;

use crate::worker::Keep;

/// So often a case is run at most until one fails.
const UNTIL_FAILS: u32 = 10_000;

/// How often, and until when.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Repetition {
    /// Run each case so often, each time with another seed, and say how often it came out as expected [default: 1, with --until-fails
    /// 10000]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(UNTIL_FAILS)))]
    repeat: Option<u32>,
    /// Run the cases again and again until one does not come out as expected
    #[arg(long)]
    pub(crate) until_fails: bool,
    /// Begin no other case once one did not come out as expected
    #[arg(short = 'x', long)]
    fail_fast: bool,
}

impl Repetition {
    /// How often each case is run, at most.
    pub(crate) fn times(&self) -> u32 {
        let default = if self.until_fails { UNTIL_FAILS } else { 1 };
        self.repeat.unwrap_or(default)
    }

    /// Whether no case begins once one has failed.
    pub(crate) fn ends_with_a_failure(&self) -> bool {
        self.fail_fast || self.until_fails
    }
}

/// Which worlds stay when their cases are over.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Keeping {
    /// Keep the world of the last case for `chainbreak shell`, until this command is interrupted
    #[arg(long, conflicts_with_all = ["keep_failed", "until_fails"])]
    keep: bool,
    /// Keep the worlds of cases that do not come out as expected, the first five; the others go on
    #[arg(long)]
    keep_failed: bool,
}

impl Keeping {
    /// Whether a case's world stays.
    pub(crate) fn of(&self, is_last: bool) -> Keep {
        match self {
            Self {
                keep_failed: true, ..
            } => Keep::Failed,
            Self { keep: true, .. } if is_last => Keep::Always,
            _ => Keep::Never,
        }
    }
}

/// How much is said while cases run.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Told {
    /// Say what happens in each case as well
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Say nothing of cases that come out as expected
    #[arg(short, long)]
    quiet: bool,
}

/// How much is said of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amount {
    /// Only if it did not come out as expected.
    Failures,
    /// How it came out.
    Cases,
    /// Also what happens in it.
    Everything,
}

impl Told {
    pub(crate) fn amount(&self) -> Amount {
        match self {
            Self { verbose: true, .. } => Amount::Everything,
            Self { quiet: true, .. } => Amount::Failures,
            _ => Amount::Cases,
        }
    }
}
