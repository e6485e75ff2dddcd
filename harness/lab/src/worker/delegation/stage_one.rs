//! What stage 1, which is outside of the world's user namespace and has the rights there, does for the worker: it makes file systems that
//! the worker has opened in that namespace, and maps. To a token the kernel gives arrays with a guard against speculation, whoever will
//! use them; programs that call others by one of two such arrays, as Felix's do, are refused then (`tail_call abusing map_ptr`, 6.18).

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{Mutex, OnceLock, PoisonError},
};

use nix::errno::Errno;

use super::{
    COMMANDS,
    attributes::{Attributes, Making},
    calls,
};
use crate::{error::LabError, worker::own_root::Beside};

/// Which programs are delegated, by their numbers in linux/bpf.h: socket filters, of tc, XDP, and those of cgroups and sockets that are about
/// packets and addresses.
const PROGRAMS: [u32; 14] = [1, 3, 4, 6, 8, 9, 13, 14, 16, 18, 21, 22, 25, 30];
/// Which maps stage 1 makes: hashes, arrays, of programs, of perf events, of maps, of prefixes, of devices and sockets, queues and rings.
const MAPS: [u32; 23] = [
    1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 27,
];

/// A file system that stage 1 makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bpf,
    Cgroups,
}

impl Kind {
    pub(super) fn name(self) -> &'static CStr {
        match self {
            Self::Bpf => c"bpf",
            Self::Cgroups => c"cgroup2",
        }
    }
}

/// What is asked for, by the first byte. A map's attributes follow, behind the number of places in them that are of a descriptor, and these.
const BPF: u8 = b'b';
const CGROUPS: u8 = b'c';
const MAP: u8 = b'm';
/// The answer: it is done, or the error's number.
const DONE: u8 = b'!';
const FAILED: u8 = b'?';

/// The way to stage 1, in a worker whose world may load programs.
static STAGE_ONE: OnceLock<Mutex<Beside>> = OnceLock::new();

/// In a worker: it may ask from now on.
pub(in super::super) fn offer(stage_one: Beside) {
    drop(STAGE_ONE.set(Mutex::new(stage_one)));
}

/// Whether it may ask.
pub(super) fn is_there() -> bool {
    STAGE_ONE.get().is_some()
}

/// Has a file system made that was opened.
pub(super) fn make(kind: Kind, opened: &OwnedFd) -> io::Result<()> {
    let letter = match kind {
        Kind::Bpf => BPF,
        Kind::Cgroups => CGROUPS,
    };
    ask(&[letter], &[opened.as_raw_fd()]).map(drop)
}

/// Has a map made of these attributes, which have descriptors at these places.
pub(super) fn map(
    attributes: &mut Attributes,
    places: &[usize],
    about: &[RawFd],
) -> io::Result<OwnedFd> {
    let count = u8::try_from(places.len()).map_err(io::Error::other)?;
    let places = places.iter().map(|&place| u8::try_from(place));
    let places: Vec<u8> = places.collect::<Result<_, _>>().map_err(io::Error::other)?;
    let words = [&[MAP, count][..], &places, attributes.as_mut()].concat();
    ask(&words, about)?.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn ask(words: &[u8], about: &[RawFd]) -> io::Result<Option<OwnedFd>> {
    let stage_one = STAGE_ONE.get().ok_or(io::ErrorKind::Unsupported)?;
    let mut stage_one = stage_one.lock().unwrap_or_else(PoisonError::into_inner);
    stage_one.send(words, about)?;
    let (answer, made) = stage_one.receive().ok_or(io::ErrorKind::BrokenPipe)?;
    match answer[..] {
        [DONE] => Ok(made.first().copied().map(calls::received)),
        [FAILED, error] => Err(io::Error::from_raw_os_error(error.into())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// In stage 1: does what the worker asks for, until that ends. Without a cgroup of the world's own none is shown.
pub(in super::super) fn serve(worker: &mut Beside, has_group: bool) -> Result<(), LabError> {
    while let Some((words, about)) = worker.receive() {
        let about: Vec<OwnedFd> = about.into_iter().map(calls::received).collect();
        let done = match (&words[..], &about[..]) {
            ([BPF], [opened]) => delegate(opened).map(|()| None),
            ([CGROUPS], [opened]) if has_group => calls::create(opened).map(|()| None),
            ([MAP, count, rest @ ..], _) => made_of(usize::from(*count), rest, &about).map(Some),
            _ => Err(Errno::EOPNOTSUPP.into()),
        };
        let answered = match &done {
            Ok(None) => worker.send(&[DONE], &[]),
            Ok(Some(made)) => worker.send(&[DONE], &[made.as_raw_fd()]),
            Err(error) => worker.send(&[FAILED, number_of(error)], &[]),
        };
        match answered.map_err(|error| (error.kind(), error)) {
            Ok(()) => {}
            // It has ended while it waited.
            Err((io::ErrorKind::BrokenPipe, _)) => break,
            Err((_, error)) => return Err(LabError::isolate("answer the worker")(error)),
        }
    }
    Ok(())
}

fn number_of(error: &io::Error) -> u8 {
    let number = error.raw_os_error().and_then(|it| u8::try_from(it).ok());
    number.unwrap_or(Errno::EINVAL as u8)
}

/// A map of the attributes behind so many places.
fn made_of(count: usize, rest: &[u8], about: &[OwnedFd]) -> io::Result<OwnedFd> {
    let (places, attributes) = rest.split_at_checked(count).ok_or(Errno::EINVAL)?;
    let mut attributes = Attributes::new(attributes).ok_or(Errno::E2BIG)?;
    if !attributes.is_map_of(&MAPS) || places.len() != about.len() {
        return Err(Errno::EPERM.into());
    }
    for (&place, ours) in places.iter().zip(about) {
        if !attributes.has(place.into()) {
            return Err(Errno::EINVAL.into());
        }
        let number = u32::try_from(ours.as_raw_fd()).map_err(io::Error::other)?;
        attributes.put_number(place.into(), number);
    }
    calls::make(Making::Map.command(), attributes.as_mut())
}

fn delegate(opened: &OwnedFd) -> io::Result<()> {
    let options = [
        (c"delegate_cmds", set_of(&COMMANDS)),
        (c"delegate_maps", "any".to_owned()),
        (c"delegate_progs", set_of(&PROGRAMS)),
        (c"delegate_attachs", "any".to_owned()),
    ];
    for (option, value) in options {
        calls::set(opened, option, &CString::new(value)?)?;
    }
    calls::create(opened)
}

fn set_of(numbers: &[u32]) -> String {
    let set = numbers.iter().fold(0_u64, |set, number| set | 1 << number);
    format!("{set:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::own_root::beside;

    #[test]
    fn a_worker_that_ends_while_it_waits_for_an_answer_has_ended_and_no_more() {
        let (mut stage_one, mut worker) = beside().expect("two ends");
        worker.send(b"what nobody knows", &[]).expect("it is heard");
        drop(worker);
        serve(&mut stage_one, false).expect("nothing went wrong");
    }
}
