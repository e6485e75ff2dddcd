//! The server over loopback, as its real clients meet it.

mod asked;
mod common;
mod kubectl;
mod kubelets;
mod requests;
mod scale;
mod watch;
