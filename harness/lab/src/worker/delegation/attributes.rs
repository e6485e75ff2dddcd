//! The attributes of bpf(2) (`union bpf_attr` of linux/bpf.h), as far as what makes maps, programs and BTF concerns them. Pure.

use std::ops::Range;

use super::helpers::{INSTRUCTION, LOAD_64, instructions};

/// Asks for what a token stands for, in each command's flags.
const TOKEN: u32 = 1 << 16;

/// `BPF_MAP_CREATE`, `BPF_PROG_LOAD`, `BPF_BTF_LOAD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Making {
    Map,
    Program,
    Btf,
}

impl Making {
    /// By the number of the command.
    pub(super) fn of(command: u32) -> Option<Self> {
        match command {
            0 => Some(Self::Map),
            5 => Some(Self::Program),
            18 => Some(Self::Btf),
            _ => None,
        }
    }

    /// The number of the command.
    pub(super) fn command(self) -> u32 {
        match self {
            Self::Map => 0,
            Self::Program => 5,
            Self::Btf => 18,
        }
    }

    /// Where its flags are, and its token.
    fn token_at(self) -> [usize; 2] {
        match self {
            Self::Map => [16, 76],
            Self::Program => [44, 144],
            Self::Btf => [32, 36],
        }
    }

    /// What the verifier writes: where its level is (0: nothing), the size and the address of where to, and how much it was.
    pub(super) fn log(self) -> Option<Log> {
        match self {
            Self::Map => None,
            Self::Program => Some(Log {
                level: 24,
                size: 28,
                at: 32,
                written: 140,
            }),
            Self::Btf => Some(Log {
                level: 24,
                size: 20,
                at: 8,
                written: 28,
            }),
        }
    }
}

/// Where the attributes have what is about the verifier's words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    pub(super) level: usize,
    pub(super) size: usize,
    pub(super) at: usize,
    pub(super) written: usize,
}

/// The attributes of one call.
#[derive(Debug, Clone)]
pub(super) struct Attributes {
    bytes: [u8; Self::MOST],
    /// How many the caller knows.
    given: usize,
}

impl Attributes {
    /// More than any kernel's so far.
    pub(super) const MOST: usize = 256;

    /// `None` of more than are known here.
    pub(super) fn new(given: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MOST];
        bytes.get_mut(..given.len())?.copy_from_slice(given);
        let given = given.len();
        Some(Self { bytes, given })
    }

    /// Whether the caller knows of the number there.
    pub(super) fn has(&self, at: usize) -> bool {
        at + 4 <= self.given
    }

    /// The number there.
    pub(super) fn number(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    /// The address there.
    pub(super) fn address(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    pub(super) fn put_number(&mut self, at: usize, number: u32) {
        self.bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }

    pub(super) fn put_address(&mut self, at: usize, address: usize) {
        self.bytes[at..at + 8].copy_from_slice(&address.to_ne_bytes());
    }

    /// Asks for what a token stands for.
    pub(super) fn put_token(&mut self, making: Making, token: u32) {
        let [flags, at] = making.token_at();
        self.put_number(flags, self.number(flags) | TOKEN);
        self.put_number(at, token);
        self.given = self.given.max(at + 4);
    }

    /// Whether it is a map of one of these types, for no device of its own, and by no token.
    pub(super) fn is_map_of(&self, types: &[u32]) -> bool {
        let [flags, _] = Making::Map.token_at();
        types.contains(&self.number(0)) && self.number(44) == 0 && self.number(flags) & TOKEN == 0
    }

    /// What the kernel is given.
    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.given]
    }

    /// Where a map's attributes have the caller's descriptors.
    pub(super) fn descriptors_of_a_map(&self) -> Vec<usize> {
        // BPF_MAP_TYPE_ARRAY_OF_MAPS and BPF_MAP_TYPE_HASH_OF_MAPS; BPF_F_VTYPE_BTF_OBJ_FD.
        let is_of_maps = [12, 13].contains(&self.number(0));
        let has_types = [52, 56, 60].iter().any(|&at| self.number(at) != 0);
        let is_of_another = self.number(16) & 1 << 15 != 0;
        let all = [(20, is_of_maps), (48, has_types), (72, is_of_another)];
        let all = all.into_iter().filter(|(_, is_there)| *is_there);
        all.map(|(at, _)| at).collect()
    }

    /// Where a program's attributes have them, beside its instructions.
    pub(super) fn descriptors_of_a_program(&self) -> Vec<usize> {
        let has_types = [88, 104, 116].iter().any(|&at| self.number(at) != 0);
        let all = [(72, has_types), (112, self.number(112) != 0)];
        let all = all.into_iter().filter(|(_, is_there)| *is_there);
        all.map(|(at, _)| at).collect()
    }

    /// A program's lists: where each one's address is, and its length in bytes.
    pub(super) fn lists_of_a_program(&self) -> [(usize, u64); 4] {
        let list = |at, count, size: u64| (at, u64::from(self.number(count)) * size);
        let size = |at| u64::from(self.number(at));
        [
            list(8, 4, INSTRUCTION as u64),
            list(80, 88, size(76)),
            list(96, 104, size(92)),
            list(128, 116, size(136)),
        ]
    }
}

/// A place in a program's instructions that is about a descriptor of its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reference {
    /// The four bytes there are one.
    Number(Range<usize>),
    /// It is in the list of descriptors (`fd_array`), as the one of this number.
    Listed(usize),
}

/// All of them, in order.
pub(super) fn references(program: &[u8]) -> Vec<Reference> {
    let mut found = Vec::new();
    for one in instructions(program) {
        let immediate = one.at + INSTRUCTION / 2;
        match (one.code(), one.source()) {
            (LOAD_64, 1 | 2) => found.push(Reference::Number(immediate..immediate + 4)),
            (LOAD_64, 5 | 6) => {
                found.extend(usize::try_from(one.immediate()).map(Reference::Listed));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{
        super::helpers::{CALL, instruction},
        *,
    };

    #[test]
    fn what_an_instruction_has_of_its_callers_descriptors_is_found_and_nothing_else() {
        let none = instruction(0, 0, 0, 0);
        let program = [
            instruction(0xb7, 1, 0, 7),
            instruction(LOAD_64, 1, 0, 7),
            // The second half of it, which looks like another one.
            instruction(LOAD_64, 1, 0, 0),
            instruction(LOAD_64, 0, 0, 7),
            none.clone(),
            instruction(LOAD_64, 6, 0, 3),
            none,
            instruction(CALL, 0, 0, 1),
        ]
        .concat();
        let found = references(&program);
        assert_eq!(found, [Reference::Number(12..16), Reference::Listed(3)]);
        for cut in 0..program.len() {
            // Nothing that somebody hands in is too short.
            references(&program[..cut]);
        }
    }

    #[test]
    fn a_token_is_asked_for_where_each_command_has_it_whatever_the_caller_has_there() {
        for (command, flags, at) in [(0, 16, 76), (5, 44, 144), (18, 32, 36)] {
            let making = Making::of(command).unwrap();
            let mut attributes = Attributes::new(&[0; 48]).unwrap();
            attributes.put_number(flags, 1);
            attributes.put_token(making, 9);
            assert_eq!(attributes.number(flags), TOKEN | 1);
            assert_eq!(attributes.number(at), 9);
            assert_eq!(attributes.as_mut().len(), 48.max(at + 4));
        }
        assert_eq!(Making::of(1), None);
        assert!(Attributes::new(&[0; Attributes::MOST + 1]).is_none());
    }

    #[test]
    fn descriptors_count_only_where_the_kernel_looks_at_them() {
        let none = Attributes::new(&[0; 152]).unwrap();
        assert!(none.descriptors_of_a_map().is_empty());
        assert!(none.descriptors_of_a_program().is_empty());
        let mut map = none.clone();
        map.put_number(0, 13);
        map.put_number(56, 2);
        assert_eq!(map.descriptors_of_a_map(), [20, 48]);
        let mut program = none;
        program.put_number(104, 1);
        program.put_number(92, 16);
        assert_eq!(program.descriptors_of_a_program(), [72]);
        assert_eq!(program.lists_of_a_program()[2], (96, 16));
    }
}
