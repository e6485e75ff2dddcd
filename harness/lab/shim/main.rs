//! Stands first in an agent's `PATH` under the names of the netfilter programs, so that each of its
//! commands is an event: asks the recorder, runs the program that stands behind it, and tells how that
//! ended.
//!
//! Nothing about the command changes but its parent: arguments, environment (less the shims' folder),
//! working directory, open files, output, exit code or signal are those of the program. It is told
//! nothing by the environment, which agents may clear: `/proc/self/exe` is
//! `FOLDER/bin/NAME`, and the recorder listens at `FOLDER/socket`.
//!
//! One static program without a crate, because it must run in the root file system of any image.

mod call;
mod input;
mod recorder;
mod relay;
mod sys;
#[expect(dead_code, reason = "the recorder reads what this writes")]
mod wire;

use std::{
    env,
    io::{self, Write},
};

use call::Call;
use recorder::Recorder;

/// What a shell answers for a command that it cannot start.
const NOT_STARTED: i32 = 127;

fn main() {
    let ended = run().unwrap_or_else(|problem| {
        let called = env::args_os().next().unwrap_or_default();
        // Where nobody hears it, the exit code has to do.
        drop(writeln!(
            io::stderr(),
            "{}: {problem}",
            called.to_string_lossy()
        ));
        NOT_STARTED
    });
    sys::end(ended)
}

/// The exit code, or minus the signal's number.
fn run() -> Result<i32, String> {
    let call = Call::of_this_process()?;
    let mut recorder = Recorder::ask(&call)?;
    let ended = relay::run(&call, &mut recorder);
    recorder.told();
    ended
}
