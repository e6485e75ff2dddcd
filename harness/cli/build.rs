//! How the program is linked.

use std::env;

/// Each case starts it two times, and relocating 100,000 pointers is most of a start: 5 to 6 ms, and 2.4 ms at a fixed address. A static
/// program is linked as its target says.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name, value: &str| env::var(name).is_ok_and(|it| it.split(',').any(|it| it == value));
    let glibc = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if glibc && !is("CARGO_CFG_TARGET_FEATURE", "crt-static") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
