//! Traffic: what a probe is told and says ([`wire`]), and the probe itself.

pub mod clock;
pub mod wire;
