//! Which functions of the kernel a program may call. Who loads for others has `CAP_PERFMON`: without it the verifier takes no arithmetic with
//! pointers as compilers make it, and none of Felix's programs (v3.28.1, on Linux 6.18). With it, it also takes functions that read the
//! kernel's memory, and what hands out pointers by which that can be read. Pure.

use std::ops::RangeInclusive;

/// Helpers by their numbers (linux/bpf.h, `___BPF_FUNC_MAPPER`, up to Linux 6.1's last): those of maps, packets, sockets, tunnels,
/// routes, cgroups and times, and by which a program tells something: by rings, or in the machine's trace (6, 177), which no world reads, as Felix's do where
/// something is wrong. Not those that read memory by its address (4, 45, 113, 115; 165 by its `%pks`), or hand out pointers of the
/// kernel's types (35, 136 to 140, 153, 154, 158, 178, 194, 196).
const ALLOWED: [RangeInclusive<i32>; 28] = [
    1..=3,
    5..=21,
    23..=26,
    28..=34,
    38..=44,
    46..=54,
    57..=57,
    59..=66,
    68..=72,
    79..=91,
    93..=100,
    105..=108,
    110..=110,
    118..=118,
    122..=125,
    128..=135,
    142..=144,
    151..=152,
    155..=155,
    160..=160,
    163..=164,
    169..=172,
    177..=177,
    181..=182,
    186..=190,
    192..=192,
    195..=195,
    197..=208,
];

/// `BPF_JMP | BPF_CALL`.
pub(super) const CALL: u8 = 0x85;
/// `BPF_LD | BPF_DW | BPF_IMM`, of two instructions.
pub(super) const LOAD_64: u8 = 0x18;
/// How long an instruction is.
pub(super) const INSTRUCTION: usize = 8;

/// An instruction; the second one of two is passed over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instruction<'a> {
    /// Where it is in the program.
    pub(super) at: usize,
    bytes: &'a [u8],
}

impl Instruction<'_> {
    pub(super) fn code(self) -> u8 {
        self.bytes[0]
    }

    /// Its source register, which says what the immediate of some is (`BPF_PSEUDO_…`).
    pub(super) fn source(self) -> u8 {
        self.bytes[1] >> 4
    }

    pub(super) fn immediate(self) -> i32 {
        i32::from_ne_bytes(self.bytes[4..8].try_into().expect("four bytes"))
    }
}

/// All of a program's.
pub(super) fn instructions(program: &[u8]) -> impl Iterator<Item = Instruction<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let bytes = program.get(at..at + INSTRUCTION)?;
        let one = Instruction { at, bytes };
        at += INSTRUCTION;
        if one.code() == LOAD_64 {
            at += INSTRUCTION;
        }
        Some(one)
    })
}

/// Whether a program calls nothing but these helpers and itself, and has no variable of the kernel's.
pub(super) fn is_allowed(program: &[u8]) -> bool {
    instructions(program).all(|one| match (one.code(), one.source()) {
        (CALL, 0) => ALLOWED
            .iter()
            .any(|helpers| helpers.contains(&one.immediate())),
        (CALL, 1) => true,
        (CALL, _) | (LOAD_64, 3) => false,
        _ => true,
    })
}

#[cfg(test)]
pub(super) fn instruction(code: u8, source: u8, offset: i16, immediate: i32) -> Vec<u8> {
    let (offset, immediate) = (offset.to_ne_bytes(), immediate.to_ne_bytes());
    [&[code, source << 4][..], &offset, &immediate].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_calls_what_networks_need_and_itself_and_nothing_that_reads_the_kernels_memory() {
        let call = |source, number| is_allowed(&instruction(CALL, source, 0, number));
        // bpf_map_lookup_elem, bpf_fib_lookup, bpf_redirect_peer; a function of its own.
        assert!(call(0, 1) && call(0, 69) && call(0, 155) && call(1, 4));
        let reads = [4, 45, 113, 115, 158, 165, 35, 137, 194];
        assert!(reads.iter().all(|&number| !call(0, number)));
        assert!(!call(0, -1) && !call(0, 212), "younger than the list");
        assert!(!call(2, 1), "a kfunc");
        assert!(
            !is_allowed(&instruction(LOAD_64, 3, 0, 9)),
            "a variable of the kernel's"
        );
        // The second half of a load is no instruction.
        let load = [instruction(LOAD_64, 0, 0, 1), instruction(CALL, 0, 0, 113)].concat();
        assert!(is_allowed(&load));
    }
}
