//! The recorder's end of the talk with one shim.

use std::{
    io,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

use super::wire::{Done, Tag, read_words};
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
    let (mut input, mut stderr) = (Vec::new(), Vec::new());
    let done = loop {
        match frame(&mut shim).await {
            Ok(Some((Tag::Input, piece))) => input.extend(piece),
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
    recorder.record(Ended {
        argv,
        input: text(&input),
        exit,
        stderr: text(&stderr),
        took: end.saturating_duration_since(begin),
        end,
    });
    shim.write_all(&GO).await
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
