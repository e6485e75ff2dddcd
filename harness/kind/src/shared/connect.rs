//! The API of a cluster.

use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};

/// A client for a cluster, which nobody has asked anything yet. An error says what is wrong with the kubeconfig.
pub(crate) async fn connect(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<Client, String> {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, options).await;
    let mut config = config.map_err(|error| error.to_string())?;
    // Watches and followed logs are silent for long.
    config.read_timeout = None;
    Client::try_from(config).map_err(|error| error.to_string())
}
