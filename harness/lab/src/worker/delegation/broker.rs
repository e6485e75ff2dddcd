//! A thread of the worker that loads programs for those on a node. Each call of bpf(2) there that makes a map, a program or BTF waits
//! until this thread has made the same one with the node's token, and gets what came of it; all others pass, but nobody else gets a token.
//!
//! So what was delegated is had without asking for it: no Felix up to v3.32 asks for a token wherever it would have to. And what a
//! program may call is looked at ([`super::helpers`]): root of the world, who has `CAP_SYS_ADMIN` in its user namespace, could read the
//! kernel's memory by a program that it loads with a token of its own.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::mpsc,
    thread,
};

use nix::errno::Errno;

use super::{
    COMMANDS,
    attributes::{Attributes, Making, Reference, references},
    calls,
    helpers::is_allowed,
    notify::{Call, Caller, Listener},
    stage_one,
};
use crate::{
    error::tolerate,
    worker::{filter, rights},
};

/// Of such a thread.
const STACK: usize = 256 * 1024;
/// A list or a log of a program that is longer is no network's: the kernel takes a million instructions, and libbpf 16 MiB of log.
const LONGEST: u64 = 64 << 20;
/// The kernel reads no more of a license.
const LICENSE: usize = 128;

/// Gives the calling thread, and all that it starts from now on, what this token stands for.
pub(super) fn lend(token: OwnedFd) -> io::Result<()> {
    let (tell, told) = mpsc::channel();
    // Before the filter is there: calls of its own wait for nobody.
    let serving = move || {
        if let Ok(calls) = told.recv() {
            let broker = Broker { calls, token };
            let served = rights::keep_loading().map_err(io::Error::other);
            let served = served.and_then(|()| broker.serve());
            tolerate("load programs for a node", served);
        }
    };
    thread::Builder::new()
        .name("bpf".to_owned())
        .stack_size(STACK)
        .spawn(serving)?;
    // It lives as long as those do who wait for it.
    let listener = filter::listen(calls::TOKEN_CREATE, &COMMANDS)?;
    drop(tell.send(Listener::new(listener)));
    Ok(())
}

struct Broker {
    calls: Listener,
    token: OwnedFd,
}

impl Broker {
    fn serve(&self) -> io::Result<()> {
        while let Some(call) = self.calls.next()? {
            // A caller that was killed meanwhile wants no answer.
            let answered = match self.make(&call) {
                Ok(Some(made)) => self.calls.hand_over(&call, &made),
                Ok(None) => self.calls.let_pass(&call),
                Err(error) => self.calls.refuse(&call, number_of(&error)),
            };
            if let Err(error) = answered {
                tracing::debug!(%error, "answer a call of bpf(2)");
            }
        }
        Ok(())
    }

    /// `None` where the kernel is to take the call as it is.
    fn make(&self, call: &Call) -> io::Result<Option<OwnedFd>> {
        let caller = self.calls.caller(call)?;
        let size = usize::try_from(call.size).map_err(io::Error::other)?;
        let given = caller.read(call.attributes, size.min(Attributes::MOST + 1))?;
        let (Some(making), Some(attributes)) = (Making::of(call.command), Attributes::new(&given))
        else {
            return Ok(None);
        };
        if given.len() < size {
            return Ok(None);
        }
        let token = u32::try_from(self.token.as_raw_fd()).map_err(io::Error::other)?;
        let request = Request {
            caller: &caller,
            attributes,
            held: Vec::new(),
            lists: Vec::new(),
        };
        request.make(call, making, token).map(Some)
    }
}

fn number_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EFAULT, Errno::from_raw)
}

/// A call, made ours: with our descriptors of the same things, and copies of what it points to.
struct Request<'a> {
    caller: &'a Caller,
    attributes: Attributes,
    /// What the numbers in it stand for, until it is made.
    held: Vec<OwnedFd>,
    /// What the addresses in it lead to.
    lists: Vec<Vec<u8>>,
}

impl Request<'_> {
    fn make(mut self, call: &Call, making: Making, token: u32) -> io::Result<OwnedFd> {
        match making {
            Making::Map => return self.map(),
            Making::Program => self.program()?,
            Making::Btf => self.list(0, u64::from(self.attributes.number(16)))?,
        }
        let log = making.log().filter(|log| {
            self.attributes.number(log.level) != 0 && self.attributes.address(log.at) != 0
        });
        let theirs = log.map(|log| self.attributes.address(log.at));
        if let Some(log) = log {
            let size = bounded(u64::from(self.attributes.number(log.size)))?;
            self.point(log.at, vec![0; size]);
        }
        self.attributes.put_token(making, token);
        let made = calls::make(call.command, self.attributes.as_mut());
        if let (Some(log), Some(at), Some(said)) = (log, theirs, self.lists.pop()) {
            // The kernel writes to the end of the words and a zero.
            let end = said.iter().position(|&byte| byte == 0);
            let said = &said[..end.map_or(said.len(), |end| end + 1)];
            self.caller.write(at, said)?;
            if self.attributes.has(log.written) && call.size >= log.written as u64 + 4 {
                let written = self.attributes.number(log.written).to_ne_bytes();
                self.caller
                    .write(call.attributes + log.written as u64, &written)?;
            }
        }
        made
    }

    fn map(&mut self) -> io::Result<OwnedFd> {
        let places = self.attributes.descriptors_of_a_map();
        self.take_all(&places)?;
        let about: Vec<RawFd> = self.held.iter().map(AsRawFd::as_raw_fd).collect();
        stage_one::map(&mut self.attributes, &places, &about)
    }

    fn program(&mut self) -> io::Result<()> {
        self.take_all(&self.attributes.descriptors_of_a_program())?;
        let license = self.caller.read(self.attributes.address(16), LICENSE)?;
        // Where its memory ends, so does the license.
        self.point(16, [license, vec![0]].concat());
        let [instructions, others @ ..] = self.attributes.lists_of_a_program();
        for (at, bytes) in others {
            self.list(at, bytes)?;
        }
        let (at, bytes) = instructions;
        let mut code = self.copy(at, bytes)?;
        if !is_allowed(&code) {
            return Err(Errno::EPERM.into());
        }
        let references = references(&code);
        self.listed(&references)?;
        for reference in references {
            if let Reference::Number(range) = reference {
                let theirs = i32::from_ne_bytes(code[range.clone()].try_into().expect("a number"));
                let ours = self.take(theirs)?;
                code[range].copy_from_slice(&ours.to_ne_bytes());
            }
        }
        self.point(at, code);
        Ok(())
    }

    /// Its list of descriptors (`fd_array`), as long as it says (from Linux 6.14 on), or as its instructions need.
    fn listed(&mut self, references: &[Reference]) -> io::Result<()> {
        const AT: usize = 120;
        const LENGTH: usize = 148;
        let needed = references.iter().filter_map(|reference| match reference {
            Reference::Listed(number) => Some(number + 1),
            Reference::Number(_) => None,
        });
        let said = self.attributes.number(LENGTH) as usize;
        let all_count = said > 0;
        let length = if all_count {
            said
        } else {
            needed.max().unwrap_or(0)
        };
        if length == 0 || self.attributes.address(AT) == 0 {
            return Ok(());
        }
        let mut list = self.copy(AT, 4 * length as u64)?;
        for (number, one) in list.chunks_exact_mut(4).enumerate() {
            if !all_count && !references.contains(&Reference::Listed(number)) {
                continue;
            }
            let theirs = i32::from_ne_bytes((&*one).try_into().expect("a number"));
            one.copy_from_slice(&self.take(theirs)?.to_ne_bytes());
        }
        self.point(AT, list);
        Ok(())
    }

    /// Puts our descriptors of the same in the places of the caller's.
    fn take_all(&mut self, places: &[usize]) -> io::Result<()> {
        for &at in places {
            let ours = self.take(self.attributes.number(at).cast_signed())?;
            self.attributes.put_number(at, ours.cast_unsigned());
        }
        Ok(())
    }

    fn take(&mut self, theirs: i32) -> io::Result<i32> {
        let ours = self.caller.descriptor(theirs)?;
        let number = ours.as_raw_fd();
        self.held.push(ours);
        Ok(number)
    }

    /// Copies what the address there leads to.
    fn list(&mut self, at: usize, bytes: u64) -> io::Result<()> {
        if bytes > 0 {
            let copy = self.copy(at, bytes)?;
            self.point(at, copy);
        }
        Ok(())
    }

    fn copy(&self, at: usize, bytes: u64) -> io::Result<Vec<u8>> {
        let bytes = bounded(bytes)?;
        let copy = self.caller.read(self.attributes.address(at), bytes)?;
        if copy.len() < bytes {
            return Err(Errno::EFAULT.into());
        }
        Ok(copy)
    }

    fn point(&mut self, at: usize, mut to: Vec<u8>) {
        // The kernel writes into logs.
        self.attributes
            .put_address(at, to.as_mut_ptr().expose_provenance());
        self.lists.push(to);
    }
}

fn bounded(bytes: u64) -> io::Result<usize> {
    let size = usize::try_from(bytes.min(LONGEST + 1)).map_err(io::Error::other)?;
    if bytes > LONGEST {
        return Err(Errno::E2BIG.into());
    }
    Ok(size)
}
