//! The embedded Kubernetes API: what a node agent, `kubectl` and `kube` need of an API server, in
//! memory, over plain HTTP and JSON.
//!
//! From the outside in: [`Server`] accepts connections and turns requests into calls, `path` and
//! `query` say what is asked for, `handle` leads to `create`, `update`, `patch` and `delete` change the state,
//! `store` keeps objects, the one revision counter and the history that watches are fed from.
//! Everything between a request and its answer is synchronous and under one lock, so that every
//! client sees every change in the same order.

mod admission;
mod bootstrap;
mod convert;
mod crd;
mod create;
mod delete;
mod discovery;
mod error;
mod handle;
mod kinds;
mod kubelets;
mod object;
mod openapi;
mod options;
mod patch;
mod path;
mod protobuf;
mod query;
mod request_counts;
mod respond;
mod review;
mod schema;
mod selector;
mod server;
mod service;
mod state;
mod store;
mod subresource;
mod table;
mod update;
mod watch;

pub use kubelets::{ContainerId, Kubelets, Line, Prepare, Said};
pub use request_counts::{Asked, OnUnknown};
pub use server::{Clock, Server, ServerConfig};
pub use service::first_ip;
