//! How much an image may be. What exceeds it is a bomb, or nothing that a node agent comes in.

/// Limits of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of all its layers, as archives that are not compressed.
    pub bytes: u64,
    /// Of all its layers.
    pub entries: u64,
    /// How many times its size a layer may unpack to, beyond [`Self::slack`].
    pub ratio: u64,
    /// Bytes that any layer may unpack to, however small it is.
    pub slack: u64,
    /// How many folders may lie in each other.
    pub depth: usize,
}

impl Default for Limits {
    /// Ten times what calico/node is, and the density of nothing that programs are made of.
    fn default() -> Self {
        Self {
            bytes: 5_000_000_000,
            entries: 500_000,
            ratio: 100,
            slack: 50_000_000,
            depth: 100,
        }
    }
}

/// What is left of the limits, layer after layer.
#[derive(Debug)]
pub(crate) struct Left {
    limits: Limits,
    bytes: u64,
    entries: u64,
}

/// More than the limit, in words.
pub(crate) type Excess = String;

impl Left {
    pub(crate) fn of(limits: Limits) -> Self {
        Self {
            limits,
            bytes: limits.bytes,
            entries: limits.entries,
        }
    }

    /// How many bytes a layer of that size may unpack to.
    pub(crate) fn for_layer(&self, size: u64) -> u64 {
        let dense = size.saturating_mul(self.limits.ratio);
        self.bytes.min(dense.max(self.limits.slack))
    }

    /// Takes what a layer of that size was unpacked to.
    pub(crate) fn take_bytes(&mut self, size: u64, unpacked: u64) -> Result<(), Excess> {
        if unpacked <= self.for_layer(size) {
            self.bytes -= unpacked;
            return Ok(());
        }
        let Limits { bytes, ratio, .. } = self.limits;
        Err(if unpacked > self.bytes {
            format!("the image unpacks to more than {}", megabytes(bytes))
        } else {
            format!("it unpacks to more than {ratio} times its size")
        })
    }

    /// Takes one entry.
    pub(crate) fn take_entry(&mut self) -> Result<(), Excess> {
        let most = self.limits.entries;
        let left = self.entries.checked_sub(1);
        self.entries = left.ok_or_else(|| format!("the image has more than {most} entries"))?;
        Ok(())
    }
}

/// `12.3 MB`.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
