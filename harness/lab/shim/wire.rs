//! What a shim and its recorder say to each other over a Unix socket, one connection a command.
//!
//! The shim sends frames: a byte that says what it is, four bytes of length (little-endian), and so
//! many bytes. First [`Tag::Ask`]; when it got one byte back, it runs the command, sends its input when
//! it has passed, in pieces that were given at other times, and its standard error as it passes, and [`Tag::Done`]; when it got one more byte, it ends.
//! A connection that ends before [`Tag::Done`] is that of a shim that was killed.

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// May this run? Program and arguments, as [`words`].
    Ask = b'a',
    /// A piece of standard input: [`piece`].
    Input = b'i',
    /// A piece of standard error.
    Stderr = b'e',
    /// The command ended: [`Done`].
    Done = b'd',
}

impl Tag {
    /// What this byte stands for.
    pub(crate) fn of(byte: u8) -> Option<Self> {
        [Self::Ask, Self::Input, Self::Stderr, Self::Done]
            .into_iter()
            .find(|tag| *tag as u8 == byte)
    }
}

/// A whole frame. Pieces are far below the four gigabytes that its length can say.
pub(crate) fn frame(tag: Tag, bytes: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(bytes.len() + 5);
    frame.push(tag as u8);
    push(&mut frame, bytes);
    frame
}

/// Words as bytes: each with its length before it, as an argument may hold any byte but 0.
pub(crate) fn words(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in words {
        push(&mut bytes, word);
    }
    bytes
}

/// A piece of standard input as bytes: after when it was given, in microseconds of `CLOCK_MONOTONIC`.
pub(crate) fn piece(given_us: u64, input: &[u8]) -> Vec<u8> {
    [&given_us.to_le_bytes()[..], input].concat()
}

/// When, and what; `None` of what [`piece`] did not make.
pub(crate) fn read_piece(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (given_us, input) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*given_us), input))
}

fn push(to: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(bytes);
}

/// The words that [`words`] made bytes of; `None` when it did not.
pub(crate) fn read_words(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut words = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (word, rest) = rest.split_at_checked(length)?;
        words.push(word);
        bytes = rest;
    }
    Some(words)
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    /// Exit code; 128 + n for signal n.
    pub(crate) exit: i32,
    /// When it was started, in microseconds of `CLOCK_MONOTONIC`.
    pub(crate) begin_us: u64,
    /// When it had ended.
    pub(crate) end_us: u64,
}

impl Done {
    /// For a frame.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let exit = self.exit.to_le_bytes();
        let times = [self.begin_us.to_le_bytes(), self.end_us.to_le_bytes()];
        [&exit[..], &times[0], &times[1]].concat()
    }

    /// Of a frame; `None` when it has another length.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (exit, rest) = bytes.split_first_chunk()?;
        let (begin, rest) = rest.split_first_chunk()?;
        let end = rest.try_into().ok()?;
        Some(Self {
            exit: i32::from_le_bytes(*exit),
            begin_us: u64::from_le_bytes(*begin),
            end_us: u64::from_le_bytes(end),
        })
    }
}
