//! Reads the datagrams that come over UDP. Pure.

use std::net::SocketAddr;

use crate::wire::{BACKEND_HEADER, CLIENT_HEADER, question::QUESTION};

/// Longest part of a strange datagram that is told.
const TOLD: usize = 40;

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// Which question it answers.
    pub(crate) number: u64,
    /// [`BACKEND_HEADER`], or nothing.
    pub(crate) backend: String,
    /// [`CLIENT_HEADER`].
    pub(crate) seen_as: Option<SocketAddr>,
}

impl Said {
    /// Reads an answer, or says what came instead.
    pub(crate) fn read(datagram: &[u8]) -> Result<Self, String> {
        let Some(number) = number(datagram) else {
            let head = datagram.get(..TOLD).unwrap_or(datagram);
            let head = String::from_utf8_lossy(head);
            return Err(format!("no answer of ours: {head:?}"));
        };
        let text = String::from_utf8_lossy(datagram);
        let value = |name: &str| {
            let mut headers = text.lines().filter_map(|line| line.split_once(':'));
            let header = headers.find(|(known, _)| known.trim().eq_ignore_ascii_case(name))?;
            Some(header.1.trim().to_owned())
        };
        Ok(Self {
            number,
            backend: value(BACKEND_HEADER).unwrap_or_default(),
            seen_as: value(CLIENT_HEADER).and_then(|address| address.parse().ok()),
        })
    }
}

/// The number of the question that a datagram is, or begins with: a whole line. What an ICMP error gives back of
/// one may be cut off, and then it has none.
pub(crate) fn number(datagram: &[u8]) -> Option<u64> {
    let end = datagram.iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(datagram.get(..end)?).ok()?;
    let number = line.trim_end().strip_prefix(QUESTION)?.strip_prefix(' ')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::question::question;

    #[test]
    fn an_answer_names_its_question_its_server_and_the_client() {
        let text = format!(
            "{}X-Chainbreak-Backend: web-1\r\nx-chainbreak-client: [fd00::1]:40000\n",
            question(7)
        );
        let said = Said::read(text.as_bytes()).unwrap();
        assert_eq!((said.number, said.backend.as_str()), (7, "web-1"));
        assert_eq!(said.seen_as, "[fd00::1]:40000".parse().ok());
    }

    #[test]
    fn a_question_that_was_sent_back_is_an_answer_of_nobody() {
        let said = Said::read(question(7).as_bytes()).unwrap();
        assert_eq!((said.number, said.backend.as_str()), (7, ""));
        assert_eq!(said.seen_as, None);
    }

    #[test]
    fn what_repeats_no_question_is_told() {
        let strange: [&[u8]; 5] = [
            b"",
            b"pong",
            b"chainbreak-probe 7",
            b"chainbreak-probe x\n",
            b"chainbreak-probe7\n",
        ];
        for datagram in strange {
            let told = Said::read(datagram).unwrap_err();
            assert!(told.starts_with("no answer of ours: "), "{told}");
        }
    }
}
