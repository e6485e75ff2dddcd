//! Looking into a world.

use clap::Args;

pub(super) const EXAMPLES: &str = "Examples:
  chainbreak shell
  chainbreak shell -- kubectl get pods -A -o wide
  chainbreak shell pod/test/web -- curl -s 10.96.0.10
  chainbreak shell n1 -- iptables-save -t nat
  chainbreak shell --list

kubectl and calicoctl are those of your PATH. What they can do there: docs/kubectl.md";

#[derive(Debug, Args)]
pub(crate) struct Shell {
    /// A node (`n1`), `pod/NAMESPACE/NAME` or `host/NAME`; the first node without it
    #[arg(value_name = "PLACE")]
    pub(crate) place: Option<String>,
    /// Say which worlds there are, and their places
    #[arg(long, conflicts_with_all = ["place", "command", "kubeconfig"])]
    pub(crate) list: bool,
    /// Print a configuration for clients that run in the world's places: nothing of a world can be reached from outside
    #[arg(long, conflicts_with_all = ["place", "command"])]
    pub(crate) kubeconfig: bool,
    /// What to run there instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
