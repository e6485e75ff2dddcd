//! `chainbreak versions`: what real clusters are made of, and whether that is still so.

use std::process::ExitCode;

use chainbreak_kind::{Checked, Pinned, versions::Versions};

use crate::args;

/// Something that is pinned is not there any more as it was.
const STALE: u8 = 10;
/// Of something it could not be found out.
const UNKNOWN: u8 = 11;

/// Prints every pin; with `--check` what became of it. Succeeds when nothing is stale or unknown.
pub(crate) async fn versions(args: &args::Versions) -> anyhow::Result<ExitCode> {
    let pins = Versions::pinned()?;
    crate::say(&format!("kind        {} or newer\n", pins.kind.at_least))?;
    let mut worst = 0;
    for pin in pins.all() {
        let Pinned { what, name, .. } = &pin;
        if !args.check {
            crate::say(&format!("{what:<12}{name}\n"))?;
            continue;
        }
        let (code, text) = match pin.check().await {
            Checked::AsPinned => (0, format!("as pinned   {name}\n")),
            Checked::Stale(why) => (STALE, format!("stale       {name}: {why}\n")),
            Checked::Unknown(why) => (UNKNOWN, format!("unknown     {name}: {why}\n")),
        };
        crate::say(&text)?;
        // What is stale is worse than what nobody knows.
        worst = if worst == STALE {
            worst
        } else {
            code.max(worst)
        };
        if code == STALE {
            worst = STALE;
        }
    }
    Ok(ExitCode::from(worst))
}
