//! Which Calico a node has: images and manifests are a person's to give, and a verdict about one version is none about another.

use futures::future::try_join_all;

use super::anew::FELIX;
use crate::{
    error::KindError,
    shared::nodes::{Node, Nodes},
};

/// Asks the program of a node's Felix, in its container, what it is. Felix may just be beginning anew.
const ASK: &str = "\
    for look in $(seq 30); do \
      pid=$(felix $1 | sed 's|.*/\\([0-9]*\\)/cmdline|\\1|;q'); \
      [ \"$pid\" ] && break; \
      sleep 0.1; \
    done; \
    [ \"$pid\" ] || { echo no Felix runs >&2; exit 1; }; \
    exec nsenter --mount --target $pid -- calico-node -v";

/// Fails where Felix on a node is another one than the case is about. What was built after a release has its name and more
/// (`v3.32.1-4-g0123abc`), and is taken for it.
pub(in crate::made) async fn is(nodes: &Nodes, wanted: &str) -> Result<(), KindError> {
    let asked = nodes.0.iter().map(|node| is_on(node, wanted));
    try_join_all(asked).await.map(drop)
}

async fn is_on(node: &Node, wanted: &str) -> Result<(), KindError> {
    let script = format!("{FELIX}{ASK}");
    let said = node.run(&["sh", "-c", &script, "sh", "/proc"]).await?;
    let unnamed = || {
        KindError::Unable(format!(
            "calico-node on {} does not say of which version it is (`calico-node -v`), and the case is about {wanted}",
            node.name
        ))
    };
    let found = told(&said).ok_or_else(unnamed)?;
    let more = found.strip_prefix(wanted);
    if more.is_some_and(|more| more.is_empty() || more.starts_with('-')) {
        return Ok(());
    }
    Err(KindError::Unable(format!(
        "calico-node on {} is {found}, and the case is about {wanted}: `--matrix calico={found}` plays it with what is there",
        node.name
    )))
}

/// The version in what `calico-node -v` says: `Version:      v3.32.1` and more lines, or it alone (v3.28.1).
fn told(said: &str) -> Option<&str> {
    let is_version = |word: &&str| {
        let mut rest = word.strip_prefix('v').unwrap_or_default().chars();
        rest.next().is_some_and(|first| first.is_ascii_digit())
    };
    let mut words = said.split_whitespace();
    words.find(is_version)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// A node with a process of its own, which says of its program what a file has.
    const NODE: &str = r#"cd "$0"
        echo "cat $0/version" > nsenter
        chmod +x nsenter
        PATH=$0:$PATH
        script=$3
        set -- processes
        eval "$script""#;

    fn node(folder: &Path, version: &str) -> Nodes {
        let process = folder.join("processes/11");
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("cmdline"), "calico-node\0-felix\0").unwrap();
        fs::write(folder.join("version"), version).unwrap();
        let folder = folder.to_string_lossy();
        Nodes(vec![Node::entered_by(&["sh", "-c", NODE, &folder])])
    }

    #[tokio::test]
    async fn a_calico_of_another_version_than_the_case_is_about_is_named_with_what_would_play_it() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = node(
            folder.path(),
            "Version:      v3.32.1\nBuild date:   \nGit commit:   \n",
        );
        is(&nodes, "v3.32.1").await.unwrap();
        let said = is(&nodes, "v3.28.1").await.unwrap_err().to_string();
        for word in [
            "n1 is v3.32.1",
            "about v3.28.1",
            "`--matrix calico=v3.32.1`",
        ] {
            assert!(said.contains(word), "{said}");
        }
        let nodes = node(folder.path(), "v3.32.1-4-g0123abc\n");
        is(&nodes, "v3.32.1").await.unwrap();
        assert!(is(&nodes, "v3.32.10").await.is_err());
        let nodes = node(folder.path(), "v3.32.10\n");
        assert!(is(&nodes, "v3.32.1").await.is_err());
        let nodes = node(folder.path(), "Version:      \nBuild date:   \n");
        let said = is(&nodes, "v3.32.1").await.unwrap_err().to_string();
        assert!(said.contains("n1 does not say of which version"), "{said}");
        fs::remove_dir_all(folder.path().join("processes/11")).unwrap();
        assert!(is(&nodes, "v3.32.10").await.is_err(), "nobody runs");
    }
}
