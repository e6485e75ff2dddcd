//! The endpoint behind the Service `kubernetes`. Behind it is the same API as at its own address, as with a load balancer before servers
//! of which one is there at a time: who asks it directly notices nothing when the endpoint moves.

use std::{net::SocketAddr, sync::Arc};

use chainbreak_apiserver::Server;
use chainbreak_engine::log::EventLog;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::{
    sync::{Mutex, oneshot},
    task::JoinHandle,
};

use super::{listen_at, refused};
use crate::{
    addresses::API_PORT, api, error::LabError, parts::guarded, wiring::BRIDGE, world::World,
};

/// Where the endpoint with that number is.
pub(super) fn address(world: &World, number: u8) -> SocketAddr {
    let address = world.plan.api_endpoint(number);
    SocketAddr::new(world.families.first(address), API_PORT)
}

/// The one that is there.
#[derive(Debug)]
pub(crate) struct Endpoint {
    world: Arc<World>,
    server: Arc<Server>,
    log: EventLog,
    now: Mutex<Served>,
}

/// What is served at the endpoint with that number, until `over` is dropped.
#[derive(Debug)]
struct Served {
    number: u8,
    over: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// The first one, which the Service names from the beginning and whose address the underlay has.
    pub(crate) fn begin(
        world: &Arc<World>,
        server: &Arc<Server>,
        log: &EventLog,
    ) -> Result<Self, LabError> {
        let first = serve(world, server, log, 0)?;
        Ok(Self {
            world: Arc::clone(world),
            server: Arc::clone(server),
            log: log.clone(),
            now: Mutex::new(first),
        })
    }

    /// Ends the one that is there, with its connections; another one is there after that, and then the Service names it.
    pub(crate) async fn move_on(&self, client: &Client) -> Result<(), LabError> {
        let mut now = self.now.lock().await;
        let number = now.number;
        let next = (number + 1) % 2;
        let [gone, new] =
            [("del", number), ("add", next)].map(|(what, it)| change(what, &self.world, it));
        now.end().await;
        self.world.families.wire_here(gone + &new).await?;
        *now = serve(&self.world, &self.server, &self.log, next)?;
        name(client, address(&self.world, next)).await
    }
}

impl Served {
    /// Connections are closed while their address is still there: without it nobody hears of their end.
    async fn end(&mut self) {
        self.over = None;
        let ended = (&mut self.task).await;
        ended.expect("a guarded task does not panic");
    }
}

fn serve(
    world: &World,
    server: &Arc<Server>,
    log: &EventLog,
    number: u8,
) -> Result<Served, LabError> {
    let listener = listen_at(address(world, number))?;
    let (over, told) = oneshot::channel();
    let told = async { drop(told.await) };
    let (served, log) = (
        api::serve_until(Arc::clone(server), listener, log.clone(), told),
        log.clone(),
    );
    let task = tokio::spawn(async move {
        guarded("endpoint of the API", &log, served).await;
    });
    Ok(Served {
        number,
        over: Some(over),
        task,
    })
}

fn change(what: &str, world: &World, number: u8) -> String {
    let (address, prefix) = (
        world.plan.api_endpoint(number),
        world.plan.underlay_prefix(),
    );
    format!("addr {what} {address}/{prefix} dev {BRIDGE}\n")
}

async fn name(client: &Client, at: SocketAddr) -> Result<(), LabError> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let endpoints = json!([{ "addresses": [at.ip()], "conditions": { "ready": true } }]);
    let patch = Patch::Merge(json!({ "endpoints": endpoints }));
    let patched = slices
        .patch("kubernetes", &PatchParams::default(), &patch)
        .await;
    patched
        .map(drop)
        .map_err(refused("move the endpoint of the Service kubernetes"))
}
