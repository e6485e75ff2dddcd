//! The recorder's end of the talk with one shim.

use std::{
    io,
    time::{Duration, Instant},
};

use chainbreak_model::event::Named;
use nix::time::{ClockId, clock_gettime};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

use super::wire::{Done, Tag, read_piece, read_words};
use crate::{
    error::tolerate,
    recorder::{Ended, Recorder},
};

/// The kernel gives an argument list less, and a shim's pieces are smaller.
const LONGEST_FRAME: usize = 16 << 20;
/// How a shell says that something was killed (128 + SIGKILL). By which signal a shim was, nobody knows.
const KILLED: i32 = 137;
/// Go on: to a command that may run, and to a shim whose event is in the history.
const GO: [u8; 1] = [0];
/// Others are at work beside a command that takes so long.
const LONG_US: u64 = 50_000;

/// Follows one command and records it, also when its shim was killed.
pub(super) async fn follow(stream: UnixStream, recorder: Recorder) {
    tolerate("follow a command", session(stream, recorder).await);
}

async fn session(stream: UnixStream, recorder: Recorder) -> io::Result<()> {
    let mut shim = BufReader::new(stream);
    let Some((Tag::Ask, words)) = frame(&mut shim).await? else {
        return Err(nonsense());
    };
    let words = read_words(&words).ok_or_else(nonsense)?;
    let argv: Vec<String> = words.into_iter().map(text).collect();
    tokio::select! {
        () = recorder.pass(&argv) => {}
        // A shim that waits says nothing.
        _ = shim.fill_buf() => {}
    }
    // One that is gone meanwhile is found to be so when it does not say how its command ended.
    tolerate("let a command go", shim.write_all(&GO).await);
    let begin = Instant::now();
    let (mut input, mut stderr) = (Input::default(), Vec::new());
    let done = loop {
        match frame(&mut shim).await {
            Ok(Some((Tag::Input, piece))) => input.take(&piece).ok_or_else(nonsense)?,
            Ok(Some((Tag::Stderr, piece))) => stderr.extend(piece),
            Ok(Some((Tag::Done, done))) => break Done::read(&done),
            Ok(Some((Tag::Ask, _)) | None) | Err(_) => break None,
        }
    };
    let now = Instant::now();
    let (exit, begin, end) = match done {
        Some(done) => (done.exit, instant(done.begin_us)?, instant(done.end_us)?),
        None => (KILLED, begin, now),
    };
    let restores = argv.first().is_some_and(|it| it.ends_with("-restore"));
    let named = done.filter(|_| restores);
    recorder.record(Ended {
        named: named.map_or_else(Vec::new, |done| input.named(done.end_us)),
        argv,
        input: text(&input.bytes),
        exit,
        stderr: text(&stderr),
        took: end.saturating_duration_since(begin),
        end,
    });
    shim.write_all(&GO).await
}

/// What a command was given.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// Where each piece begins, and when it was given.
    pieces: Vec<(usize, u64)>,
}

impl Input {
    /// Takes in a frame.
    fn take(&mut self, piece: &[u8]) -> Option<()> {
        let (given_us, bytes) = read_piece(piece)?;
        self.pieces.push((self.bytes.len(), given_us));
        self.bytes.extend(bytes);
        Some(())
    }

    /// The tables that it named long before the command's end.
    fn named(&self, end_us: u64) -> Vec<Named> {
        let mut begin = 0;
        let lines = self.bytes.split_inclusive(|&byte| byte == b'\n');
        let named = lines.filter_map(|line| {
            begin += line.len();
            let table = line.strip_prefix(b"*")?;
            let pieces = self.pieces.iter().take_while(|(at, _)| *at < begin);
            let (_, given_us) = pieces.last()?;
            Some(Named {
                table: text(table).trim_end().to_owned(),
                before_us: end_us.saturating_sub(*given_us),
            })
        });
        named.filter(|it| it.before_us >= LONG_US).collect()
    }
}

/// The next frame; `None` where there is none any more.
async fn frame(shim: &mut BufReader<UnixStream>) -> io::Result<Option<(Tag, Vec<u8>)>> {
    if shim.fill_buf().await?.is_empty() {
        return Ok(None);
    }
    let tag = Tag::of(shim.read_u8().await?).ok_or_else(nonsense)?;
    let length = usize::try_from(shim.read_u32_le().await?).unwrap_or(usize::MAX);
    if length > LONGEST_FRAME {
        return Err(nonsense());
    }
    let mut bytes = vec![0; length];
    shim.read_exact(&mut bytes).await?;
    Ok(Some((tag, bytes)))
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is no shim")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// When the clock of all processes, which `Instant` does not show, had that many microseconds.
fn instant(stamp_us: u64) -> io::Result<Instant> {
    let (clock, now) = (clock_gettime(ClockId::CLOCK_MONOTONIC)?, Instant::now());
    let age = Duration::from(clock).saturating_sub(Duration::from_micros(stamp_us));
    Ok(now.checked_sub(age).unwrap_or(now))
}
