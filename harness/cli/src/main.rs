//! The program `chainbreak`.

fn main() -> std::process::ExitCode {
    chainbreak_cli::main()
}
