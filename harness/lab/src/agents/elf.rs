//! Whether a file can be run on this machine, by its first bytes (elf(5)): the kernel's own answer to a
//! foreign program is "Exec format error", and a shell's is worse.

/// So many bytes decide.
pub(super) const HEAD: u64 = 20;

/// `e_machine` and the name that Rust has for it, of what Kubernetes and Calico are released for.
const MACHINES: [(u16, &str); 7] = [
    (3, "x86"),
    (21, "powerpc64"),
    (22, "s390x"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
];

/// An error is what the file is instead: `for aarch64, and this machine is x86_64`.
pub(super) fn runs_here(head: &[u8]) -> Result<(), String> {
    runs_on(std::env::consts::ARCH, head)
}

fn runs_on(here: &str, head: &[u8]) -> Result<(), String> {
    if head.starts_with(b"#!") {
        return Ok(());
    }
    let is_elf = head.starts_with(b"\x7fELF");
    let (Some(&[low, high]), true) = (head.get(18..20).and_then(<[u8]>::first_chunk), is_elf)
    else {
        return Err("neither an ELF program nor a script".to_owned());
    };
    // EI_DATA: 2 is big-endian.
    let machine = match head[5] {
        2 => u16::from_be_bytes([low, high]),
        _ => u16::from_le_bytes([low, high]),
    };
    let known = MACHINES.iter().find(|(number, _)| *number == machine);
    let name = known.map_or_else(
        || format!("machine number {machine}"),
        |(_, name)| (*name).to_owned(),
    );
    if name == here {
        Ok(())
    } else {
        Err(format!("for {name}, and this machine is {here}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(order: u8, machine: [u8; 2]) -> Vec<u8> {
        let mut head = b"\x7fELF\x02".to_vec();
        head.push(order);
        head.resize(18, 0);
        head.extend(machine);
        head
    }

    #[test]
    fn a_program_for_another_machine_is_told_from_ones_own() {
        assert_eq!(runs_on("x86_64", &head(1, [62, 0])), Ok(()));
        assert_eq!(runs_on("s390x", &head(2, [0, 22])), Ok(()));
        let refused = |head: &[u8]| runs_on("x86_64", head).unwrap_err();
        let foreign = refused(&head(1, [183, 0]));
        assert_eq!(foreign, "for aarch64, and this machine is x86_64");
        let unknown = refused(&head(1, [1, 1]));
        assert_eq!(
            unknown,
            "for machine number 257, and this machine is x86_64"
        );
    }

    #[test]
    fn scripts_run_anywhere_and_other_files_nowhere() {
        assert_eq!(runs_on("x86_64", b"#!/bin/sh\n"), Ok(()));
        for file in [&b"\x7fELF"[..], b"", b"hello, this is a text file"] {
            let refused = runs_on("x86_64", file).unwrap_err();
            assert_eq!(refused, "neither an ELF program nor a script");
        }
    }

    #[test]
    fn this_very_program_runs_here() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(runs_here(&program[..20]), Ok(()));
    }
}
