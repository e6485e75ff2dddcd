//! Everything the server knows, and the small decisions that writes share: time, uids, random-looking
//! names. All of them follow from the seed and the order of writes, so that a run can be repeated.

use std::{fmt, sync::Arc};

use crate::{
    error::ApiError,
    kinds::{Kind, Kinds},
    object::{Key, Object},
    server::{Clock, ServerConfig},
    service::Addresses,
    store::Store,
};

/// What `generateName` draws from: no vowels, so no words.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The server's state; one lock guards it.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) addresses: Addresses,
    clock: Clock,
    seed: u64,
    drawn: u64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("revision", &self.store.revision())
            .finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self {
            store: Store::new(config.watch_window),
            kinds: Kinds::default(),
            addresses: Addresses::new(&config.service_cidrs),
            clock: Arc::clone(&config.clock),
            seed: config.seed,
            drawn: 0,
        }
    }

    /// A copy to try writes in: they come to the same as here, and nobody sees them.
    pub(crate) fn trial(&self) -> Self {
        Self {
            store: self.store.trial(),
            ..self.clone()
        }
    }

    /// The time as metadata carries it: whole seconds.
    pub(crate) fn now(&self) -> String {
        self.after(0)
    }

    /// The time in so many seconds.
    pub(crate) fn after(&self, seconds: i64) -> String {
        let now = (self.clock)();
        let then = jiff::Timestamp::from_second(now.as_second().saturating_add(seconds));
        then.unwrap_or(now)
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string()
    }

    pub(crate) fn clock(&self) -> jiff::Timestamp {
        (self.clock)()
    }

    pub(crate) fn new_uid(&mut self) -> String {
        let (high, low) = (self.draw(), self.draw());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48) & 0x3fff,
            low & 0xffff_ffff_ffff
        )
    }

    /// Five characters for `generateName`.
    pub(crate) fn new_suffix(&mut self) -> String {
        let mut drawn = self.draw();
        let mut suffix = String::new();
        for _ in 0..5 {
            let base = SUFFIX.len() as u64;
            suffix.push(char::from(
                SUFFIX[usize::try_from(drawn % base).unwrap_or_default()],
            ));
            drawn /= base;
        }
        suffix
    }

    /// The next number of splitmix64.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let mut z = self
            .seed
            .wrapping_add(self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The object, or the refusal that names it.
    pub(crate) fn existing(&self, kind: &Kind, key: &Key) -> Result<Arc<Object>, ApiError> {
        self.store
            .get(&kind.storage, key)
            .cloned()
            .ok_or_else(|| ApiError::NotFound {
                resource: kind.resource(),
                name: key.name.clone(),
            })
    }
}
