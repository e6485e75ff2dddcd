//! The shim's end of the talk with its recorder.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
};

use crate::{
    call::Call,
    wire::{self, Done, Tag},
};

/// A recorder that let the command go. It may go away meanwhile, when its world is taken down: the
/// command still comes to its end.
#[derive(Debug)]
pub(crate) struct Recorder(Option<UnixStream>);

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
        Ok(Self(Some(stream)))
    }

    pub(crate) fn input(&mut self, bytes: &[u8]) {
        self.say(Tag::Input, bytes);
    }

    pub(crate) fn stderr(&mut self, bytes: &[u8]) {
        self.say(Tag::Stderr, bytes);
    }

    pub(crate) fn done(&mut self, done: Done) {
        self.say(Tag::Done, &done.bytes());
    }

    fn say(&mut self, tag: Tag, bytes: &[u8]) {
        let frame = wire::frame(tag, bytes);
        self.0.take_if(|stream| stream.write_all(&frame).is_err());
    }

    /// Returns when the event is in the history: nobody sees the command's end before.
    pub(crate) fn told(mut self) {
        if let Some(stream) = &mut self.0 {
            // A recorder that goes away now has nothing to say either.
            drop(stream.read_exact(&mut [0]));
        }
    }
}
