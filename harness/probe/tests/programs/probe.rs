//! The probe as a program of its own; `chainbreak` carries the same one.

use std::process::ExitCode;

fn main() -> ExitCode {
    chainbreak_probe::main()
}
