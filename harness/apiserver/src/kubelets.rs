//! What only the kubelet of a pod's node knows, and clusters answer through their API: what a container says, and commands in it.

mod exec;
mod log;

use std::{fmt, io, sync::Arc};

use futures::{future::BoxFuture, stream::BoxStream};
use hyper::{Response, http::request::Parts};
use jiff::Timestamp;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::{
    error::ApiError,
    object::{Key, items, text},
    query::Query,
    server::{Body, Server},
};

pub(crate) use self::exec::Later;

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerId {
    /// Of the pod.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// As the pod's specification calls it.
    pub container: String,
}

/// What a container said in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When it was read.
    pub at: Timestamp,
    /// Without the line's end.
    pub text: Arc<str>,
}

/// What is kept of what a container has said.
pub struct Said {
    /// In order.
    pub lines: Vec<Line>,
    /// What it says from then on, until it ends. Of a life that is over: nothing.
    pub more: BoxStream<'static, Line>,
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Said")
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}

/// Prepares the streams of a command, which are pipes otherwise.
pub type Prepare = Box<dyn FnOnce(&mut Command) + Send>;

/// The kubelets of a cluster's nodes.
pub trait Kubelets: Send + Sync {
    /// What a container has said since it was started last, or with `previous` in its life before. `None` where it had no such life.
    fn said(&self, of: &ContainerId, previous: bool) -> Option<Said>;

    /// Starts a command where a container is; dropped, it is killed. [`io::ErrorKind::NotFound`] where there is no such container, or
    /// program.
    fn start(
        &self,
        of: &ContainerId,
        argv: Vec<String>,
        prepare: Prepare,
    ) -> BoxFuture<'static, io::Result<Child>>;
}

/// What is asked of a pod's kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Log,
    Exec,
}

impl What {
    pub(crate) fn of(subresource: &str) -> Option<Self> {
        match subresource {
            "log" => Some(Self::Log),
            "exec" => Some(Self::Exec),
            _ => None,
        }
    }
}

/// Answers what is asked of a pod's kubelet.
pub(crate) fn answer(
    server: &Arc<Server>,
    (pod, what): (&Key, What),
    head: Parts,
    query: &Query,
) -> Result<Response<Body>, ApiError> {
    let Some(kubelets) = server.kubelets() else {
        return Err(ApiError::NotServed("no kubelets are asked here".to_owned()));
    };
    let object = server.with(|state| {
        let kind = state.kinds.find("", "v1", "pods");
        let kind = kind.ok_or(ApiError::NoSuchResource)?;
        state.existing(kind, pod)
    })?;
    let container = container(object.value(), query.text("container"))?;
    let of = ContainerId {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container,
    };
    match what {
        What::Log if head.method == "GET" => {
            let now = server.with(|state| state.clock());
            log::answer(kubelets.as_ref(), &of, query, now)
        }
        What::Log => Err(ApiError::MethodNotAllowed),
        What::Exec => exec::answer(kubelets, of, head, query),
    }
}

/// The container of a pod that is meant: the only one where none is named.
fn container(pod: &Value, named: &str) -> Result<String, ApiError> {
    let names: Vec<&str> = items(pod, "/spec/containers")
        .iter()
        .map(|container| text(container, "/name"))
        .collect();
    let name = text(pod, "/metadata/name");
    match names.as_slice() {
        [only] if named.is_empty() => Ok((*only).to_owned()),
        _ if named.is_empty() => Err(ApiError::BadRequest(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            names.join(" ")
        ))),
        names if names.contains(&named) => Ok(named.to_owned()),
        _ => Err(ApiError::BadRequest(format!(
            "container {named} is not valid for pod {name}"
        ))),
    }
}
