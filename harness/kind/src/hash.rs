//! Checksums, as they are written.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// SHA-256 of a text or a file, 64 digits.
pub(crate) fn sha256(text: impl AsRef<[u8]>) -> String {
    HEXLOWER.encode(&Sha256::digest(text))
}

/// Enough of it to tell texts of one kind apart.
pub(crate) fn short(text: &str) -> String {
    sha256(text).chars().take(10).collect()
}
