//! Sans-IO models of kube-proxy and Felix ([`step`] says how a core is written and stepped), and the
//! driver that runs one against a Kubernetes API.

pub mod driver;
pub mod felix;
pub mod kube_proxy;
pub mod step;
