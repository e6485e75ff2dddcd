//! Requests over TCP, from due to their end.
//!
//! **Open loop.** A request is begun when it is due; nothing waits for an answer. What made it late, the
//! machine or (with a kept connection) the request before it, counts into its time.
//!
//! **New connections** ask the server to close (`Connection: close`) and are closed after it did. So it is
//! the server that keeps `TIME_WAIT`, the client's ports are free again at once, and conntrack sees the same
//! four-packet end that real clients give. (An RST would free ports too, but puts conntrack entries on
//! another path, which is just what this harness is to observe.) Ports come [one after the other](crate::ports);
//! 28,000 of them bound how many conntrack entries one flow can fill.
//!
//! **A kept connection** carries one request at a time, as a client with one connection does: a request due
//! meanwhile waits its turn, and its own timeout runs while it waits. A connection whose request timed out,
//! was reset or answered wrongly is closed, and the next request opens a new one.

use std::{collections::VecDeque, mem};

use crate::{
    answer::Head,
    connection::{Connection, Reading, Stage, outcome_of},
    course::{Carrier, Course},
    reactor::Token,
    wire::{Connections, Outcome},
};

/// One place for a connection, and how often it was reused.
#[derive(Debug, Default)]
struct Place {
    generation: u64,
    connection: Option<Connection>,
}

/// An order's requests over TCP.
#[derive(Debug)]
pub(crate) struct Probe {
    course: Course,
    request: Vec<u8>,
    places: Vec<Place>,
    free: Vec<usize>,
    /// When begun requests time out, in that order, with their due times and connections.
    deadlines: VecDeque<(u64, u64, Token)>,
    /// Due times of requests that wait for the kept connection.
    queue: VecDeque<u64>,
    kept: Option<Token>,
    /// How many answered connections wait for the server's end.
    draining: usize,
    buffer: Box<[u8]>,
}

impl Carrier for Probe {
    fn course(&mut self) -> &mut Course {
        &mut self.course
    }

    fn into_course(self) -> Course {
        self.course
    }

    fn begin(&mut self, due: u64) {
        match self.course.order.connections {
            Connections::New => drop(self.open(due)),
            Connections::Kept => {
                self.queue.push_back(due);
                self.use_kept();
            }
        }
    }

    fn go_on(&mut self, token: Token, readable: bool) {
        let Some(mut connection) = self.take(token) else {
            return;
        };
        if connection.stage == Stage::Connecting {
            let sent = connection
                .connected()
                .and_then(|()| connection.send(&self.request));
            if let Err(error) = sent {
                return self.close(token, &connection, outcome_of(&error));
            }
        }
        if !readable {
            return self.put_back(token, connection);
        }
        let reading = connection.read(&mut self.buffer);
        match (connection.stage, reading) {
            (_, None) => self.put_back(token, connection),
            (Stage::Idle, Some(_)) => self.forget(token),
            (Stage::Draining, Some(_)) => self.drained(token),
            (_, Some(Reading::Complete(head))) => self.answered(token, connection, head),
            (_, Some(Reading::Garbage(what))) => {
                self.close(token, &connection, Outcome::Wrong { what });
            }
            (_, Some(Reading::Ended)) => self.close(token, &connection, Outcome::Reset),
            (_, Some(Reading::Failed(error))) => {
                self.close(token, &connection, outcome_of(&error));
            }
        }
    }

    fn expire(&mut self, now: u64) {
        while let Some(&due) = self.queue.front()
            && due + self.course.order.timeout_us <= now
        {
            self.queue.pop_front();
            self.course.end(due, Outcome::TimedOut);
        }
        while let Some(&(expires, due, token)) = self.deadlines.front()
            && expires <= now
        {
            self.deadlines.pop_front();
            let Some(connection) = self.take(token) else {
                continue;
            };
            match connection.stage {
                Stage::Connecting | Stage::Awaiting if connection.due_us == due => {
                    self.close(token, &connection, Outcome::TimedOut);
                }
                Stage::Draining => self.drained(token),
                _ => self.put_back(token, connection),
            }
        }
    }

    fn deadline(&self) -> Option<u64> {
        let timeout = self.course.order.timeout_us;
        let begun = self.deadlines.front().map(|(expires, ..)| *expires);
        let queued = self.queue.front().map(|due| due + timeout);
        begun.into_iter().chain(queued).min()
    }

    /// A connection that ended with this process would be closed by the client first.
    fn is_idle(&self) -> bool {
        self.draining == 0
    }
}

impl Probe {
    pub(crate) fn new(course: Course) -> Self {
        let connection = match course.order.connections {
            Connections::New => "close",
            Connections::Kept => "keep-alive",
        };
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {}\r\nUser-Agent: chainbreak-probe\r\nConnection: {connection}\r\n\r\n",
            course.order.target
        );
        Self {
            course,
            request: request.into_bytes(),
            places: Vec::new(),
            free: Vec::new(),
            deadlines: VecDeque::new(),
            queue: VecDeque::new(),
            kept: None,
            draining: 0,
            buffer: vec![0; 64 * 1024].into_boxed_slice(),
        }
    }

    fn answered(&mut self, token: Token, mut connection: Connection, head: Head) {
        let closes = head.closes || self.course.order.connections == Connections::New;
        self.course.end(connection.due_us, connection.outcome(head));
        if closes {
            connection.stage = Stage::Draining;
            self.draining += 1;
            self.put_back(token, connection);
            if self.kept == Some(token) {
                self.kept = None;
            }
            // The server's end may have come with the answer, and then no event follows.
            self.drain(token);
        } else {
            connection.stage = Stage::Idle;
            self.put_back(token, connection);
        }
        self.use_kept();
    }

    fn drain(&mut self, token: Token) {
        if let Some(mut connection) = self.take(token) {
            match connection.read(&mut self.buffer) {
                None => self.put_back(token, connection),
                Some(_) => self.drained(token),
            }
        }
    }

    fn drained(&mut self, token: Token) {
        self.draining -= 1;
        self.forget(token);
    }

    /// Sends the next waiting request on the kept connection if that is free, or opens one.
    fn use_kept(&mut self) {
        while let Some(&due) = self.queue.front() {
            let Some(token) = self.kept else {
                self.queue.pop_front();
                self.kept = self.open(due);
                continue;
            };
            let Some(mut connection) = self.take(token) else {
                self.kept = None;
                continue;
            };
            if connection.stage != Stage::Idle {
                return self.put_back(token, connection);
            }
            self.queue.pop_front();
            connection.due_us = due;
            self.deadlines.push_back((self.expires(due), due, token));
            match connection.send(&self.request) {
                Ok(()) => self.put_back(token, connection),
                Err(error) => {
                    self.course.end(due, outcome_of(&error));
                    self.forget(token);
                }
            }
        }
    }

    /// Begins a connection for a request; none when that failed at once.
    fn open(&mut self, due: u64) -> Option<Token> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        let token = self.places[index].generation << 32 | index as u64;
        let port = self.course.ports.take();
        let order = &self.course.order;
        let opened =
            Connection::open(order.target, order.source, port, due).and_then(|connection| {
                self.course
                    .reactor
                    .watch(&connection, token)
                    .map(|()| connection)
            });
        match opened {
            Ok(connection) => {
                self.places[index].connection = Some(connection);
                self.deadlines.push_back((self.expires(due), due, token));
                Some(token)
            }
            Err(error) => {
                self.free.push(index);
                self.course.end(due, outcome_of(&error));
                None
            }
        }
    }

    /// A request that begins now times out then. The time for which the machine kept the probe from
    /// beginning it is not the network's; the time for which a kept connection was busy is.
    fn expires(&self, due: u64) -> u64 {
        let from = match self.course.order.connections {
            Connections::New => self.course.now(),
            Connections::Kept => due,
        };
        from + self.course.order.timeout_us
    }

    /// The request ends with its connection; the next one may have waited for that.
    fn close(&mut self, token: Token, connection: &Connection, outcome: Outcome) {
        self.course.end(connection.due_us, outcome);
        self.forget(token);
        self.use_kept();
    }

    fn take(&mut self, token: Token) -> Option<Connection> {
        let place = self.places.get_mut(index(token))?;
        if place.generation == token >> 32 {
            place.connection.take()
        } else {
            None
        }
    }

    fn put_back(&mut self, token: Token, connection: Connection) {
        self.places[index(token)].connection = Some(connection);
    }

    /// Frees the place of a connection that was taken. Dropping the connection closes it.
    fn forget(&mut self, token: Token) {
        let place = &mut self.places[index(token)];
        place.generation = (place.generation + 1) & u64::from(u32::MAX >> 1);
        drop(mem::take(&mut place.connection));
        self.free.push(index(token));
        if self.kept == Some(token) {
            self.kept = None;
        }
    }
}

fn index(token: Token) -> usize {
    usize::try_from(token & u64::from(u32::MAX)).expect("places are counted in 32 bits")
}
