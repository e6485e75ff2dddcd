//! Reads one HTTP/1 answer as it comes in pieces. Pure.

use std::net::SocketAddr;

use crate::wire::{BACKEND_HEADER, CLIENT_HEADER};

/// A longer head is no answer of ours.
const LONGEST_HEAD: usize = 16 * 1024;
/// A longer line inside a chunked body is no chunk's.
const LONGEST_LINE: usize = 4 * 1024;
const MOST_HEADERS: usize = 64;

/// What a complete answer said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// 200, 503, ….
    pub(crate) status: u16,
    /// [`BACKEND_HEADER`], or nothing.
    pub(crate) backend: String,
    /// [`CLIENT_HEADER`].
    pub(crate) seen_as: Option<SocketAddr>,
    /// The server will close the connection.
    pub(crate) closes: bool,
}

/// An answer on its way.
#[derive(Debug)]
pub(crate) struct Answer {
    head: Option<Head>,
    /// The head so far; inside a chunked body, the line so far.
    text: Vec<u8>,
    body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Bytes { left: u64 },
    Chunks(Chunk),
    UntilEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Size,
    Data { left: u64 },
    DataEnd,
    Trailer,
}

impl Answer {
    pub(crate) fn new() -> Self {
        Self {
            head: None,
            text: Vec::new(),
            body: Body::UntilEnd,
        }
    }

    /// Takes the next bytes: the head once the answer is complete, or what is wrong with it.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<Option<Head>, String> {
        if self.head.is_none() {
            let had = self.text.len();
            self.text.extend_from_slice(bytes);
            let Some(length) = self.read_head()? else {
                return match self.text.len() {
                    0..LONGEST_HEAD => Ok(None),
                    _ => Err(format!("a head of more than {LONGEST_HEAD} bytes")),
                };
            };
            bytes = bytes.get(length - had..).unwrap_or_default();
            self.text.clear();
        }
        match self.skip_body(bytes)? {
            None => Ok(None),
            Some(rest) => {
                // When more than one answer came, the connection is of no further use.
                let surplus = !rest.is_empty();
                Ok(self.head.take().map(|head| Head {
                    closes: head.closes || surplus,
                    ..head
                }))
            }
        }
    }

    /// The connection ended: the head if that completes the answer, none if something is missing.
    pub(crate) fn end(&mut self) -> Option<Head> {
        if self.body == Body::UntilEnd {
            self.head.take()
        } else {
            None
        }
    }

    /// Parses the head in `text` and gives its length, once all of it is there.
    fn read_head(&mut self) -> Result<Option<usize>, String> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(&self.text) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(format!("not HTTP: {error}")),
        };
        let status = response.code.unwrap_or_default();
        let value = |name: &str| {
            let mut headers = response.headers.iter();
            let header = headers.find(|header| header.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(header.value).ok().map(str::trim)
        };
        let says = |name: &str, word: &str| {
            let mut words = value(name).unwrap_or_default().split(',');
            words.any(|other| other.trim().eq_ignore_ascii_case(word))
        };
        let body = if says("transfer-encoding", "chunked") {
            Body::Chunks(Chunk::Size)
        } else if matches!(status, 204 | 304) {
            Body::Bytes { left: 0 }
        } else if let Some(length) = value("content-length") {
            let left = length
                .parse()
                .map_err(|error| format!("a content-length of {length:?}: {error}"))?;
            Body::Bytes { left }
        } else {
            Body::UntilEnd
        };
        let kept = response.version == Some(1) && !says("connection", "close")
            || says("connection", "keep-alive");
        let head = Head {
            status,
            backend: value(BACKEND_HEADER).unwrap_or_default().to_owned(),
            seen_as: value(CLIENT_HEADER).and_then(|address| address.parse().ok()),
            closes: !kept || body == Body::UntilEnd,
        };
        (self.head, self.body) = (Some(head), body);
        Ok(Some(length))
    }

    /// Skips the body's bytes; what follows it, once all of it was there.
    fn skip_body<'a>(&mut self, mut bytes: &'a [u8]) -> Result<Option<&'a [u8]>, String> {
        loop {
            match &mut self.body {
                Body::UntilEnd => return Ok(None),
                Body::Bytes { left } => {
                    let rest = skip(bytes, left);
                    return Ok((*left == 0).then_some(rest));
                }
                Body::Chunks(Chunk::Data { left }) => {
                    bytes = skip(bytes, left);
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.body = Body::Chunks(Chunk::DataEnd);
                }
                Body::Chunks(at) => {
                    let at = *at;
                    let Some(rest) = self.read_line(bytes)? else {
                        return Ok(None);
                    };
                    bytes = rest;
                    match self.next_chunk(at)? {
                        Some(next) => self.body = Body::Chunks(next),
                        None => return Ok(Some(bytes)),
                    }
                }
            }
        }
    }

    /// Collects a line of a chunked body in `text`; what follows it, once its end was there.
    fn read_line<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, String> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let (line, rest) = match end {
            Some(end) => bytes.split_at(end + 1),
            None => (bytes, &[][..]),
        };
        self.text.extend_from_slice(line);
        if self.text.len() > LONGEST_LINE {
            return Err("a chunk without a size".to_owned());
        }
        Ok(end.map(|_| rest))
    }

    /// What follows the line in `text`; nothing after the last one.
    fn next_chunk(&mut self, at: Chunk) -> Result<Option<Chunk>, String> {
        let line = std::mem::take(&mut self.text);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        match at {
            Chunk::Trailer if line.is_empty() => Ok(None),
            Chunk::Trailer => Ok(Some(Chunk::Trailer)),
            Chunk::DataEnd if line.is_empty() => Ok(Some(Chunk::Size)),
            _ => {
                let size = line.split(';').next().unwrap_or_default().trim();
                match u64::from_str_radix(size, 16) {
                    Ok(0) if at == Chunk::Size => Ok(Some(Chunk::Trailer)),
                    Ok(left) if at == Chunk::Size => Ok(Some(Chunk::Data { left })),
                    _ => Err(format!("a chunk size of {size:?}")),
                }
            }
        }
    }
}

/// Passes over up to `left` bytes and counts them off.
fn skip<'a>(bytes: &'a [u8], left: &mut u64) -> &'a [u8] {
    let take = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
    *left -= take as u64;
    bytes.get(take..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "HTTP/1.1 200 OK\r\nX-ChainBreak-Backend: web-1\r\nX-CHAINBREAK-client: \
        10.0.0.7:4711\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        5;x=y\r\nhello\r\n0a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";

    /// Feeds the answer in pieces of the given size; the head must come with the last piece.
    fn read(text: &str, piece: usize) -> Result<Head, String> {
        let mut answer = Answer::new();
        let mut pieces = text.as_bytes().chunks(piece).peekable();
        while let Some(piece) = pieces.next() {
            if let Some(head) = answer.take(piece)? {
                assert!(pieces.peek().is_none(), "complete before its end");
                return Ok(head);
            }
        }
        answer.end().ok_or_else(|| "cut off".to_owned())
    }

    #[test]
    fn an_answer_may_come_in_any_pieces() {
        for text in [PLAIN, CHUNKED] {
            for piece in 1..=text.len() {
                let head = read(text, piece).unwrap();
                assert_eq!((head.status, head.closes), (200, false), "{piece}");
            }
        }
    }

    #[test]
    fn headers_are_read_in_any_case() {
        let head = read(PLAIN, 1000).unwrap();
        assert_eq!(head.backend, "web-1");
        assert_eq!(head.seen_as, Some("10.0.0.7:4711".parse().unwrap()));
    }

    #[test]
    fn a_short_answer_is_not_complete() {
        for text in [PLAIN, CHUNKED] {
            for length in 0..text.len() {
                let mut answer = Answer::new();
                assert_eq!(answer.take(&text.as_bytes()[..length]), Ok(None));
                assert_eq!(answer.end(), None, "{length}");
            }
        }
    }

    #[test]
    fn a_body_without_length_ends_with_the_connection() {
        let head = read("HTTP/1.1 503 No\r\n\r\nall of it", 7).unwrap();
        assert_eq!((head.status, head.closes), (503, true));
    }

    #[test]
    fn the_server_says_whether_it_closes() {
        let closes = |head: &str| {
            read(&format!("{head}Content-Length: 0\r\n\r\n"), 99)
                .unwrap()
                .closes
        };
        assert!(!closes("HTTP/1.1 200 OK\r\n"));
        assert!(closes("HTTP/1.1 200 OK\r\nConnection: Close\r\n"));
        assert!(closes("HTTP/1.0 200 OK\r\n"));
        assert!(!closes("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n"));
        let mut answer = Answer::new();
        let two = answer
            .take(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP")
            .unwrap();
        assert!(two.unwrap().closes);
    }

    #[test]
    fn garbage_is_called_so() {
        for text in [
            "SSH-2.0-OpenSSH_9.2\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        ] {
            assert!(Answer::new().take(text.as_bytes()).is_err(), "{text:?}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(LONGEST_HEAD));
        assert!(Answer::new().take(long.as_bytes()).is_err());
    }
}
