//! What a health server answers, to the byte (`pkg/proxy/healthcheck` of the modelled release).

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::Serialize;

use super::Health;
use crate::kube_proxy::{config::Config, names::Namespaced};

/// An answer to a request over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// 200, 503 or 404.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(&'static str, String)>,
    /// JSON, but for 404.
    pub body: String,
}

/// An instant, as both clocks read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// On the core's clock: since its process started.
    pub since_start: Duration,
    /// On the wall's.
    pub wall: Timestamp,
}

impl ClockReading {
    /// An earlier instant, by the core's clock.
    fn earlier(self, since_start: Duration) -> Self {
        let ago = self.since_start.saturating_sub(since_start);
        Self {
            since_start,
            wall: self.wall.checked_sub(ago).unwrap_or(self.wall),
        }
    }

    /// As Go prints a `time.Time` that has a monotonic reading, in a container, which is in UTC.
    fn go(self) -> String {
        let wall = self.wall.strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC");
        let (seconds, nanos) = (self.since_start.as_secs(), self.since_start.subsec_nanos());
        format!("{wall} m=+{seconds}.{nanos:09}")
    }
}

/// The body since it is made by `json.Marshal` (pull request 129271).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Proxy {
    last_updated: Timestamp,
    current_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    healthy: bool,
    status: BTreeMap<&'static str, Proxier>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Proxier {
    last_updated: Timestamp,
    healthy: bool,
}

impl Health {
    /// The answer on the port of `--healthz-bind-address`.
    pub fn of_proxy(&self, config: &Config, path: &str, now: ClockReading) -> Answer {
        let healthy = self.proxier_healthy(now.since_start);
        match path {
            "/healthz" => {
                let eligible = config.version.tells_node_eligible();
                let eligible = eligible.then_some(self.node_eligible);
                let fine = healthy && eligible.unwrap_or(true);
                json(fine, self.body(config, now, fine, eligible))
            }
            "/livez" if config.version.has_livez() => {
                json(healthy, self.body(config, now, healthy, None))
            }
            _ => not_found(),
        }
    }

    /// A proxy that is fine says that it was updated just now.
    fn body(
        &self,
        config: &Config,
        now: ClockReading,
        fine: bool,
        eligible: Option<bool>,
    ) -> String {
        let last = now.earlier(self.updated);
        let said = if fine { now } else { last };
        if !config.version.tells_families() {
            let (said, current) = (said.go(), now.go());
            let eligible = eligible.map(|it| format!(", \"nodeEligible\": {it}"));
            let eligible = eligible.unwrap_or_default();
            return format!("{{\"lastUpdated\": {said:?},\"currentTime\": {current:?}{eligible}}}");
        }
        let healthy = self.proxier_healthy(now.since_start);
        let proxier = Proxier {
            last_updated: last.wall,
            healthy,
        };
        let body = Proxy {
            last_updated: said.wall,
            current_time: now.wall,
            node_eligible: eligible,
            healthy,
            status: BTreeMap::from([(config.family.as_str(), proxier)]),
        };
        // Texts, truths and times: nothing that JSON cannot say. Go drops the error as well.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// The answer on the health check node port of a service, whatever the path.
    pub fn of_service(&self, config: &Config, service: &Namespaced, now: ClockReading) -> Answer {
        let version = &config.version;
        let count = self.checks.get(service).map_or(0, |it| it.local_endpoints);
        let proxier = self.proxier_healthy(now.since_start);
        let Namespaced { namespace, name } = service;
        let healthy = if version.service_needs_healthy_proxier() {
            format!(",\n\t\"serviceProxyHealthy\": {proxier}")
        } else {
            String::new()
        };
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace:?},\n\t\t\"name\": {name:?}\n\t}},\n\t\
             \"localEndpoints\": {count}{healthy}\n}}"
        );
        let fine = count != 0 && (proxier || !version.service_needs_healthy_proxier());
        let mut answer = json(fine, body);
        if version.tells_endpoint_weight() {
            let weight = ("X-Load-Balancing-Endpoint-Weight", count.to_string());
            answer.headers.push(weight);
        }
        answer
    }
}

fn json(fine: bool, body: String) -> Answer {
    Answer {
        status: if fine { 200 } else { 503 },
        headers: vec![
            ("Content-Type", "application/json".to_owned()),
            ("X-Content-Type-Options", "nosniff".to_owned()),
        ],
        body,
    }
}

/// What Go's mux says of a path it does not know.
fn not_found() -> Answer {
    Answer {
        status: 404,
        headers: vec![
            ("Content-Type", "text/plain; charset=utf-8".to_owned()),
            ("X-Content-Type-Options", "nosniff".to_owned()),
        ],
        body: "404 page not found\n".to_owned(),
    }
}
