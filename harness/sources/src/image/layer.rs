//! A layer's blob, unfolded into a plain archive: nothing of it is looked at before its size and both of its digests are right.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::{limits::Left, unpack::LayerError};

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Gzip,
    Zstd,
}

impl Form {
    /// What a media type says of it, Docker's (`….tar.gzip`) or OCI's (`….tar+gzip`).
    pub(crate) fn of(media_type: &str) -> Option<Self> {
        match media_type.rsplit_once(".tar")?.1 {
            "" => Some(Self::Plain),
            ".gzip" | "+gzip" => Some(Self::Gzip),
            ".zstd" | "+zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Unfolds a blob of that size, unless it becomes too much. Returns the digest of what it is unfolded to.
pub(crate) fn unfold(
    (blob, size): (impl Read, u64),
    form: Form,
    into: impl Write,
    left: &mut Left,
    stop: &CancellationToken,
) -> Result<String, LayerError> {
    let blob = BufReader::new(blob);
    let plain: Box<dyn Read> = match form {
        Form::Plain => Box::new(blob),
        Form::Gzip => Box::new(MultiGzDecoder::new(blob)),
        Form::Zstd => Box::new(Zstd::new(blob)),
    };
    // One more than is allowed is enough to know.
    let mut plain = plain.take(left.for_layer(size).saturating_add(1));
    let mut into = Hashing {
        into,
        hash: Sha256::new(),
    };
    let mut unpacked = 0_u64;
    let mut part = vec![0; 1 << 16];
    loop {
        if stop.is_cancelled() {
            return Err(LayerError::Stopped);
        }
        let read = match plain.read(&mut part) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.map_err(LayerError::Folded)?,
        };
        let Some(bytes) = part.get(..read).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        into.write_all(bytes).map_err(LayerError::Write)?;
        unpacked += bytes.len() as u64;
    }
    left.take_bytes(size, unpacked)
        .map_err(LayerError::TooMuch)?;
    into.flush().map_err(LayerError::Write)?;
    let digest = data_encoding::HEXLOWER.encode(&into.hash.finalize());
    Ok(format!("sha256:{digest}"))
}

struct Hashing<W> {
    into: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.into.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.flush()
    }
}

/// Frames of zstd one after the other, and what lies between them left out: layers that can be read in parts are made so.
struct Zstd<R> {
    blob: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(blob: R) -> Self {
        Self {
            blob,
            decoder: FrameDecoder::new(),
            in_frame: false,
        }
    }

    /// Begins the next frame; `false` at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.blob.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.blob) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.blob).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.in_frame = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.blob, one);
                decoded.map_err(io::Error::other)?;
            }
            let read = self.decoder.read(into)?;
            if read > 0 {
                return Ok(read);
            }
            self.in_frame = false;
        }
    }
}
