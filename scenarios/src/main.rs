//! The program `chainbreak`, for the scenario tests.

fn main() -> std::process::ExitCode {
    chainbreak_cli::main()
}
