//! What runs on off-cluster hosts: nginx, where a scenario wants an answer from there. A host is no part of the
//! product: its nginx failing is the world's failure.

use std::{net::SocketAddr, process::Stdio, time::Duration};

use chainbreak_engine::{log::EventLog, nginx};
use chainbreak_model::event::EventKind;
use futures::future::try_join_all;
use tokio::{process::Child, task::JoinSet, time::timeout};

use crate::{
    error::LabError,
    kubelet::accepts,
    parts::lasting,
    world::{Host, World},
};

/// nginx answers within some milliseconds.
const SOON: Duration = Duration::from_secs(20);

/// Starts what the hosts serve, in `tasks`, and waits until it answers.
pub(crate) async fn serve(
    world: &World,
    log: &EventLog,
    tasks: &mut JoinSet<()>,
) -> Result<(), LabError> {
    let serving = world.hosts().iter().filter_map(|host| {
        let port = host.spec.nginx?;
        Some(start(host, port, world.families.has_v6()))
    });
    for (name, mut nginx) in try_join_all(serving).await? {
        log.append(EventKind::Fact {
            name: format!("host {name}"),
            value: "the machine's nginx".to_owned(),
        });
        let part = async move {
            // However it ends, it should not have.
            drop(nginx.wait().await);
        };
        tasks.spawn(lasting("nginx of a host", log.clone(), part));
    }
    Ok(())
}

async fn start(host: &Host, port: u16, has_v6: bool) -> Result<(&str, Child), LabError> {
    let failed = |what| {
        move |source| LabError::Place {
            place: format!("host/{}", host.name),
            what,
            source,
        }
    };
    let folder = format!("/run/chainbreak/hosts/{}", host.name);
    let file = format!("{folder}/nginx.conf");
    let config = nginx::config(&host.name, &[port], has_v6, &folder);
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, config));
    written.map_err(failed("configure its nginx"))?;
    let argv = ["nginx", "-c", &file];
    let nginx = host.place.spawn(&argv, |command| {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
    });
    let nginx = nginx.await.map_err(failed("start its nginx"))?;
    let answers = accepts(&host.place, SocketAddr::new(host.address, port));
    let answered = timeout(SOON, answers).await;
    answered
        .map_err(Into::into)
        .map_err(failed("wait for its nginx"))?;
    Ok((&host.name, nginx))
}
