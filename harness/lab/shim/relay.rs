//! Runs the program and stands beside it: its input and standard error pass through here.

use std::{
    fs::File,
    io::{self, ErrorKind, PipeReader, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::{
            fs::{FileTypeExt, MetadataExt},
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
};

use crate::{
    call::Call,
    input,
    recorder::Recorder,
    sys::{self, Interest},
    wire::Done,
};

/// What a pipe holds on Linux.
const PIECE: usize = 64 * 1024;

/// Runs the program and reports it. Its exit code, or minus the signal's number.
pub(crate) fn run(call: &Call, recorder: &mut Recorder) -> Result<i32, String> {
    let begin_us = sys::now_us();
    let report = |recorder: &mut Recorder, exit, end_us| {
        recorder.done(Done {
            exit,
            begin_us,
            end_us,
        });
    };
    let mut started = match Running::start(call) {
        Ok(started) => started,
        Err(problem) => {
            recorder.stderr(problem.as_bytes());
            report(recorder, crate::NOT_STARTED, sys::now_us());
            return Err(problem);
        }
    };
    let lost = |error: io::Error| format!("the shim lost its command: {error}");
    started.until_end(recorder).map_err(lost)?;
    let end_us = sys::now_us();
    started.last_words(recorder);
    let status = started.reap().map_err(lost)?;
    report(recorder, exit_code(status), end_us);
    Ok(status
        .code()
        .unwrap_or_else(|| -status.signal().unwrap_or(0)))
}

fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

struct Running {
    child: Child,
    /// Readable when the child has ended.
    ended: OwnedFd,
    feed: Option<Feed>,
    words: Option<Words>,
}

impl Running {
    fn start(call: &Call) -> Result<Self, String> {
        let Some(program) = &call.program else {
            return Err("not found behind its shim".to_owned());
        };
        let arguments: Vec<_> = call
            .argv
            .iter()
            .skip(1)
            .map(|word| word.to_string_lossy())
            .collect();
        let words: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let reads = input::is_read(&call.name, &words);
        Self::spawn(call, program, reads).map_err(|error| format!("{}: {error}", program.display()))
    }

    fn spawn(call: &Call, program: &std::path::Path, reads: bool) -> io::Result<Self> {
        let (words, to_words) = io::pipe()?;
        let both = outputs_are_one();
        let mut command = Command::new(program);
        command
            .arg0(call.argv.first().map_or(program.as_os_str(), |name| name))
            .args(call.argv.iter().skip(1))
            .env("PATH", &call.path);
        if both {
            command.stdout(to_words.try_clone()?);
        }
        command.stderr(to_words);
        if reads {
            command.stdin(Stdio::piped());
        }
        sys::die_with_this_process(&mut command);
        sys::keep_signals();
        let mut child = command.spawn()?;
        sys::pass_signals_on(&child);
        sys::never_block(words.as_fd())?;
        let feed = child.stdin.take().map(Feed::new).transpose()?;
        Ok(Self {
            ended: sys::pidfd(&child)?,
            child,
            feed,
            words: Some(Words {
                from: words,
                both,
                piece: vec![0; PIECE],
            }),
        })
    }

    /// Passes input and words on until the program has ended.
    fn until_end(&mut self, recorder: &mut Recorder) -> io::Result<()> {
        loop {
            let mut wanted = [Interest::none(); 4];
            wanted[0] = Interest::readable(self.ended.as_raw_fd());
            if let Some(words) = &self.words {
                wanted[1] = Interest::readable(words.from.as_raw_fd());
            }
            if let Some(feed) = &self.feed {
                [wanted[2], wanted[3]] = feed.interests();
            }
            sys::wait(&mut wanted)?;
            if wanted[1].is_ready() {
                self.words.take_if(|words| words.pass(recorder).is_err());
            }
            if wanted[2].is_ready() || wanted[3].is_ready() {
                let broken = wanted[3].is_broken();
                let over = self
                    .feed
                    .take_if(|feed| broken || feed.pass(recorder).is_err());
                if over.is_some() {
                    // It is closed first, so that the program reads its end meanwhile.
                    drop(over);
                    recorder.input_is_over();
                }
            }
            if wanted[0].is_ready() {
                return Ok(());
            }
        }
    }

    /// What the program wrote and nobody has read yet. What others write into its standard error
    /// afterwards is not its own.
    fn last_words(&mut self, recorder: &mut Recorder) {
        if let Some(words) = &mut self.words {
            while words.pass(recorder).is_ok() {}
        }
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        sys::pass_no_signals_on();
        self.child.wait()
    }
}

/// Where agents read both outputs from one pipe or file, one pipe keeps their order. Not so for devices
/// as `/dev/null`, where nobody reads.
fn outputs_are_one() -> bool {
    let file = |fd: io::Result<OwnedFd>| File::from(fd?).metadata();
    let out = file(io::stdout().as_fd().try_clone_to_owned());
    let err = file(io::stderr().as_fd().try_clone_to_owned());
    let (Ok(out), Ok(err)) = (out, err) else {
        return false;
    };
    !out.file_type().is_char_device() && (out.dev(), out.ino()) == (err.dev(), err.ino())
}

/// Standard error on its way to the agent; both outputs where they are one.
struct Words {
    from: PipeReader,
    both: bool,
    piece: Vec<u8>,
}

impl Words {
    /// One piece. An error when there is none, or nobody to hear it.
    fn pass(&mut self, recorder: &mut Recorder) -> io::Result<()> {
        let length = self.from.read(&mut self.piece)?;
        let piece = &self.piece[..length];
        if piece.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        recorder.stderr(piece);
        if self.both {
            let mut out = io::stdout();
            out.write_all(piece)?;
            out.flush()
        } else {
            io::stderr().write_all(piece)
        }
    }
}

/// Standard input on its way to the program. Dropping it tells both sides that it is over.
struct Feed {
    from: File,
    to: ChildStdin,
    /// What was read, and how much of it the program's pipe has taken.
    piece: Vec<u8>,
    taken: usize,
}

impl Feed {
    fn new(to: ChildStdin) -> io::Result<Self> {
        sys::never_block(to.as_fd())?;
        let from = sys::standard_input();
        sys::widen(from.as_fd());
        sys::widen(to.as_fd());
        Ok(Self {
            from,
            to,
            piece: Vec::new(),
            taken: 0,
        })
    }

    /// Either side's turn. That of the program is watched all the time: it may have heard enough.
    fn interests(&self) -> [Interest; 2] {
        let to: RawFd = self.to.as_raw_fd();
        if self.taken == self.piece.len() {
            [
                Interest::readable(self.from.as_raw_fd()),
                Interest::broken(to),
            ]
        } else {
            [Interest::none(), Interest::writable(to)]
        }
    }

    /// One step. An error at the end of the input, or when the program does not want more.
    fn pass(&mut self, recorder: &mut Recorder) -> io::Result<()> {
        if self.taken < self.piece.len() {
            self.taken += self.to.write(&self.piece[self.taken..])?;
            return Ok(());
        }
        self.piece.resize(PIECE, 0);
        self.taken = 0;
        let length = self.from.read(&mut self.piece)?;
        self.piece.truncate(length);
        recorder.input(&self.piece);
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}
