//! The model kube-proxy held to what is known of the real one.
//!
//! `golden` and `kernel` compare rules with recorded ones, `kernel` and `interleavings` on the real
//! netfilter, in network namespaces of their own; the others step the core with invented outputs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod before_1_28;
mod conntrack;
mod convergence;
mod counters;
mod desk;
mod early;
mod endpoints;
mod failures;
mod golden;
mod health;
mod interleavings;
mod kernel;
mod monitor;
mod netlink;
mod netns;
mod nftables;
mod objects;
mod regressions;
mod scale;
mod settings;
mod timing;
