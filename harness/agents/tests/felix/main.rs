//! The model Felix against the real kernel, and under a stepped clock.

mod cleanup;
mod converges;
mod kube_proxy;
mod life;
mod netns;
mod node;
mod timing;
