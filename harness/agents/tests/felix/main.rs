//! The model Felix against the real kernel, and under a stepped clock.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod cleanup;
mod converges;
mod fight;
mod kube_proxy;
mod life;
mod netns;
mod node;
mod programs;
mod property;
mod proxy_mode;
mod timing;
