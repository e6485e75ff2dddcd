//! Questions and answers over UDP.
//!
//! A question is one line, `chainbreak-probe NUMBER`; no two of a run have the same number. An answer is a datagram that
//! begins with the question's line. In the lines after it the server may name itself and the client as it does
//! in HTTP, [`super::BACKEND_HEADER`] and [`super::CLIENT_HEADER`]; others mean nothing. So a server that sends back whatever
//! comes (`echo` of RFC 862) answers, too, though it does not say who it is.

/// The first word of every question.
pub const QUESTION: &str = "chainbreak-probe";

/// The datagram of a question.
pub fn question(number: u64) -> String {
    format!("{QUESTION} {number}\n")
}
