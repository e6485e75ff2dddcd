//! The shim's end of the talk with its recorder.

use std::{
    io::{self, Read, Write},
    mem,
    os::unix::net::UnixStream,
};

use crate::{
    call::Call,
    sys,
    wire::{self, Done, Tag},
};

/// How much input is kept back at most, and sent at once.
const KEPT_BACK: usize = 4 << 20;
/// What is given so long after the rest is a piece of its own.
const LATER_US: u64 = 50_000;

/// A recorder that let the command go. It may go away meanwhile, when its world is taken down: the
/// command still comes to its end.
#[derive(Debug)]
pub(crate) struct Recorder {
    stream: Option<UnixStream>,
    /// Input that it has not heard of.
    input: Vec<u8>,
    /// When the first of it was given.
    given_us: u64,
}

impl Recorder {
    /// Returns when the command may run.
    pub(crate) fn ask(call: &Call) -> Result<Self, String> {
        let gone = |error: io::Error| format!("nobody records this command any more: {error}");
        let mut stream = UnixStream::connect(call.folder.join("socket")).map_err(gone)?;
        let argv: Vec<&[u8]> = call
            .argv
            .iter()
            .map(|word| word.as_encoded_bytes())
            .collect();
        let asked = wire::frame(Tag::Ask, &wire::words(&argv));
        stream.write_all(&asked).map_err(gone)?;
        stream.read_exact(&mut [0]).map_err(gone)?;
        Ok(Self {
            stream: Some(stream),
            input: Vec::new(),
            given_us: 0,
        })
    }

    /// Takes a piece of input, for later: while there is more of it, the program waits for the shim.
    pub(crate) fn input(&mut self, bytes: &[u8]) {
        let now_us = sys::now_us();
        if now_us.saturating_sub(self.given_us) >= LATER_US {
            self.input_is_over();
        }
        if self.input.is_empty() {
            self.given_us = now_us;
        }
        self.input.extend_from_slice(bytes);
        if self.input.len() >= KEPT_BACK {
            self.input_is_over();
        }
    }

    /// Sends the input: the program has all of it, and has to work now.
    pub(crate) fn input_is_over(&mut self) {
        let input = mem::take(&mut self.input);
        if !input.is_empty() {
            self.say(Tag::Input, &wire::piece(self.given_us, &input));
        }
    }

    pub(crate) fn stderr(&mut self, bytes: &[u8]) {
        self.say(Tag::Stderr, bytes);
    }

    pub(crate) fn done(&mut self, done: Done) {
        self.input_is_over();
        self.say(Tag::Done, &done.bytes());
    }

    fn say(&mut self, tag: Tag, bytes: &[u8]) {
        let frame = wire::frame(tag, bytes);
        self.stream
            .take_if(|stream| stream.write_all(&frame).is_err());
    }

    /// Returns when the event is in the history: nobody sees the command's end before.
    pub(crate) fn told(mut self) {
        if let Some(stream) = &mut self.stream {
            // A recorder that goes away now has nothing to say either.
            drop(stream.read_exact(&mut [0]));
        }
    }
}
