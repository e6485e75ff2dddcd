//! A cluster that a test makes with kind, as somebody would.

use std::process::Command;

use crate::ground::{Ground, text};

/// Deleted with this.
pub(crate) struct Made<'a> {
    pub(crate) ground: &'a Ground,
    name: &'static str,
}

impl<'a> Made<'a> {
    /// Of that configuration; its nodes are ready.
    pub(crate) fn make(ground: &'a Ground, name: &'static str, config: &str) -> Self {
        ground.write("kind.yaml", config);
        let made = Self { ground, name };
        made.does("kind", &["delete", "cluster", "--name", name]);
        let create = ["create", "cluster", "--name", name, "--config", "kind.yaml"];
        let image = crate::image();
        let image = ["--image", &image, "--wait", "0s"];
        made.does("kind", &[&create[..], &image].concat());
        // A node that does not get ready tells why.
        let ready = "kubectl wait --for=condition=Ready nodes --all --timeout=180s || { \
            kubectl describe nodes | grep -A 8 ^Conditions: >&2; \
            for it in $(kind get nodes --name $1); do docker exec $it journalctl --unit kubelet --lines 20 >&2; done; exit 1; }";
        made.does("sh", &["-c", ready, "sh", name]);
        made
    }

    /// What a program says in the ground's folder, with the cluster's kubeconfig there.
    pub(crate) fn does(&self, program: &str, args: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(args).env("KUBECONFIG", "kubeconfig");
        let output = command.current_dir(self.ground.path()).output().unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let deleted = Command::new("kind")
            .args(["delete", "cluster", "--name", self.name])
            .output();
        assert!(deleted.is_ok_and(|it| it.status.success()) || std::thread::panicking());
    }
}
