//! Requests over UDP: a question and its answer, from due to their end.
//!
//! **Open loop.** Each question is sent when it is due, also with a kept port: answers belong to their questions by number,
//! so any number of questions may be under way. One whose time is over has timed out, and an answer that comes later
//! is nobody's.
//!
//! **New connections** are sockets of their own: a port of the kernel's choice for each question, closed with
//! its end. conntrack remembers an answered flow for `nf_conntrack_udp_timeout` (30 s) all the same, so whoever
//! gets the port of an earlier question goes where that one went: with 28,000 ports, one in a hundred at ten
//! questions a second.
//!
//! **A kept connection** is one socket from the first question to the last. Neither silence nor an ICMP error ends it, as
//! with a client that never looks back: it is what keeps a stale conntrack entry alive.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::SocketAddr,
};

use crate::{
    connection::outcome_of,
    course::{Carrier, Course},
    datagram::{Said, number},
    reactor::Token,
    socket::{Heard, Socket},
    wire::{Connections, Outcome, question::question},
};

/// How often a question is sent once more because an error of an earlier one came in between.
const TRIES: usize = 16;

/// A question under way.
#[derive(Debug, Clone, Copy)]
struct Question {
    due: u64,
    socket: Token,
}

/// An order's requests over UDP.
#[derive(Debug)]
pub(crate) struct Asker {
    course: Course,
    sockets: BTreeMap<Token, Socket>,
    /// By their numbers.
    open: BTreeMap<u64, Question>,
    /// When questions time out, in that order, with their numbers.
    deadlines: VecDeque<(u64, u64)>,
    /// The number of the next question.
    next: u64,
    buffer: Box<[u8]>,
}

impl Carrier for Asker {
    fn course(&mut self) -> &mut Course {
        &mut self.course
    }

    fn into_course(self) -> Course {
        self.course
    }

    fn begin(&mut self, due: u64) {
        let number = self.next;
        self.next += 1;
        // Numbers are never used twice, so that an event for a socket closed a moment ago finds nobody.
        let socket = match self.course.order.connections {
            Connections::New => number,
            Connections::Kept => 0,
        };
        let expires = self.course.now() + self.course.order.timeout_us;
        self.deadlines.push_back((expires, number));
        self.open.insert(number, Question { due, socket });
        if let Err(error) = self.ask(socket, number) {
            self.end(number, outcome_of(&error));
        }
    }

    fn go_on(&mut self, token: Token, readable: bool) {
        if readable {
            self.hear(token);
        }
    }

    fn expire(&mut self, now: u64) {
        while let Some(&(expires, number)) = self.deadlines.front()
            && expires <= now
        {
            self.deadlines.pop_front();
            self.end(number, Outcome::TimedOut);
        }
    }

    fn deadline(&self) -> Option<u64> {
        self.deadlines.front().map(|(expires, _)| *expires)
    }

    fn is_idle(&self) -> bool {
        true
    }
}

impl Asker {
    pub(crate) fn new(course: Course) -> Self {
        Self {
            course,
            sockets: BTreeMap::new(),
            open: BTreeMap::new(),
            deadlines: VecDeque::new(),
            next: 0,
            buffer: vec![0; 64 * 1024].into_boxed_slice(),
        }
    }

    /// Sends a question; opens its socket if that is not there.
    fn ask(&mut self, token: Token, number: u64) -> io::Result<()> {
        if !self.sockets.contains_key(&token) {
            let port = self.course.ports.take();
            let order = &self.course.order;
            let socket = Socket::open(order.target, order.source, port)?;
            self.course.reactor.watch(&socket, token)?;
            self.sockets.insert(token, socket);
        }
        let text = question(number);
        let mut tries = 0;
        loop {
            let Some(socket) = self.sockets.get(&token) else {
                return Ok(());
            };
            let Err(error) = socket.send(text.as_bytes()) else {
                return Ok(());
            };
            // The error may be an earlier question's, and is gone now that it was told: then nothing was sent.
            tries += 1;
            let heard = self.hear(token);
            if tries > TRIES || tries > 1 && heard == 0 {
                return Err(error);
            }
        }
    }

    /// Takes in everything that came: how many errors of questions were among it.
    fn hear(&mut self, token: Token) -> usize {
        let mut errors = 0;
        while let Some(socket) = self.sockets.get(&token) {
            let Some((heard, length)) = socket.hear(&mut self.buffer) else {
                break;
            };
            let datagram = self.buffer.get(..length).unwrap_or_default();
            match heard {
                Heard::Datagram => {
                    let said = Said::read(datagram);
                    let local = socket.local();
                    self.answered(token, said, local);
                }
                Heard::Error(error) => {
                    errors += 1;
                    let asked = number(datagram).or_else(|| self.oldest(token));
                    let asked = asked.filter(|number| self.is_of(*number, token));
                    if let Some(number) = asked {
                        self.end(number, outcome_of(&error));
                    }
                }
            }
        }
        errors
    }

    fn answered(
        &mut self,
        token: Token,
        said: Result<Said, String>,
        local: io::Result<SocketAddr>,
    ) {
        match said {
            Ok(said) if self.is_of(said.number, token) => {
                let outcome = match local {
                    Ok(local) => Outcome::Answered {
                        backend: said.backend,
                        seen_as: said.seen_as,
                        local,
                    },
                    Err(error) => outcome_of(&error),
                };
                self.end(said.number, outcome);
            }
            // Too late: that question has timed out.
            Ok(_) => {}
            Err(what) => {
                if let Some(number) = self.oldest(token) {
                    self.end(number, Outcome::Wrong { what });
                }
            }
        }
    }

    fn is_of(&self, number: u64, token: Token) -> bool {
        let question = self.open.get(&number);
        question.is_some_and(|question| question.socket == token)
    }

    /// The question that waits longest on a socket: what says not whom it answers is about that one.
    fn oldest(&self, token: Token) -> Option<u64> {
        let mut open = self.open.iter();
        open.find(|(_, question)| question.socket == token)
            .map(|(number, _)| *number)
    }

    /// Ends a question, unless it has ended.
    fn end(&mut self, number: u64, outcome: Outcome) {
        let Some(question) = self.open.remove(&number) else {
            return;
        };
        if self.course.order.connections == Connections::New {
            self.sockets.remove(&question.socket);
        }
        self.course.end(question.due, outcome);
    }
}
