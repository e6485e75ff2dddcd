//! What clients of Kubernetes need to find a world's cluster.

use std::{env, net::SocketAddr, path::PathBuf};

use crate::worker::PATH;

/// What people look at a cluster with.
const TOOLS: [&str; 2] = ["kubectl", "calicoctl"];

/// kubectl takes the server from `KUBERNETES_MASTER` where no configuration names one (client-go, `clientcmd/client_config.go`), and
/// the user's own configuration, which is of another cluster, must not; calicoctl reads the others (libcalico-go,
/// apiconfig/load.go).
pub(super) fn environment(api: SocketAddr) -> [(&'static str, String); 4] {
    let url = format!("http://{api}");
    [
        ("KUBERNETES_MASTER", url.clone()),
        ("KUBECONFIG", "/dev/null".to_owned()),
        ("DATASTORE_TYPE", "kubernetes".to_owned()),
        ("K8S_API_ENDPOINT", url),
    ]
}

/// The same as a file. It is made here: what a world says of commands and certificates nobody should run or trust.
pub(super) fn kubeconfig(api: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
         clusters: [{{name: lab, cluster: {{server: \"http://{api}\"}}}}]\n\
         contexts: [{{name: lab, context: {{cluster: lab, user: lab}}}}]\n\
         users: [{{name: lab, user: {{}}}}]\n"
    )
}

/// Clients of Kubernetes that the user has where a world would not look for them: it has to show them.
pub fn tools() -> Vec<PathBuf> {
    let known: Vec<PathBuf> = env::split_paths(PATH).collect();
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path)
        .filter(|folder| folder.is_absolute() && !known.contains(folder))
        .collect();
    let found = TOOLS.iter().filter_map(|tool| {
        let mut programs = folders.iter().map(|folder| folder.join(tool));
        programs.find(|program| program.is_file())
    });
    found.collect()
}

/// Where commands are looked for in a place: where [`tools`] are first, as the user has them.
pub(super) fn path() -> String {
    let tools = tools();
    let folders = tools.iter().filter_map(|tool| tool.parent()?.to_str());
    let mut folders: Vec<&str> = folders.filter(|folder| !folder.contains(':')).collect();
    folders.dedup();
    folders.push(PATH);
    folders.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_own_configuration_is_not_used_and_the_worlds_server_is() {
        let api = "10.10.0.1:6443".parse().unwrap();
        let environment = environment(api);
        let said = |name: &str| {
            let found = environment.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(said("KUBECONFIG"), Some("/dev/null"));
        assert_eq!(said("KUBERNETES_MASTER"), Some("http://10.10.0.1:6443"));
        assert!(kubeconfig(api).contains("server: \"http://10.10.0.1:6443\""));
    }
}
