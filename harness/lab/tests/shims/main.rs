//! What a real agent's commands become: each an event as a model's is, and nothing else changes.

mod bench;
mod pass;
mod record;
