//! Whether both spread connections evenly: real ones, counted by the rules that they meet.

use serde_json::{Value, json};

use crate::{
    outcome::Trouble,
    pair::Launcher,
    real, real_and_model,
    stage::{IptablesBackend, Stage},
    support::{self, User},
};

const ENDPOINTS: u8 = 5;
const CONNECTIONS: u32 = 2000;
/// The chi-square of four degrees of freedom that chance exceeds once in a hundred thousand times.
const MOST: f64 = 28.5;

#[tokio::test]
#[ignore = "needs a real kube-proxy: make test-real"]
async fn both_spread_connections_evenly() {
    support::require_packages();
    for backend in [IptablesBackend::Legacy, IptablesBackend::Nft] {
        let counts = counts(backend)
            .await
            .unwrap_or_else(|trouble| panic!("{}", trouble.0));
        for counts in counts {
            let chi = chi_square(&counts);
            println!("{backend:?}: {counts:?}, chi-square {chi:.1}");
            assert_eq!(
                counts.iter().sum::<u32>(),
                CONNECTIONS,
                "every connection met one endpoint"
            );
            assert!(chi < MOST, "{backend:?}: {counts:?}");
        }
    }
}

/// How many connections each endpoint got, in each place.
async fn counts(backend: IptablesBackend) -> Result<[Vec<u32>; 2], Trouble> {
    let launcher = Launcher::new(User::Myself, Some(&real()));
    let mut pair = launcher
        .raise(Stage::iptables(backend), 0, &real_and_model())
        .await;
    for number in 0..ENDPOINTS {
        // Nobody listens: a refusal is an answer, and the way there is what is counted.
        pair.sh(&format!("ip addr add {} dev lo", address(number)))
            .await?;
    }
    pair.start().await?;
    pair.put(1, &objects()).await?;
    let connect = format!("for i in $(seq {CONNECTIONS}); do : < /dev/tcp/10.96.1.1/80; done");
    pair.sh(&format!("bash -c '{connect}' 2> /dev/null"))
        .await?;
    let saves = pair.sh("iptables-save -c -t nat").await?;
    Ok(saves.map(|save| {
        (0..ENDPOINTS)
            .map(|number| packets(&save, number))
            .collect()
    }))
}

/// The packets of the rule that leads to an endpoint: the first of each connection.
fn packets(save: &str, number: u8) -> u32 {
    let to = format!("--to-destination {}:80", address(number));
    let rule = save
        .lines()
        .find(|line| line.ends_with(&to))
        .unwrap_or_default();
    let count = rule.trim_start_matches('[').split(':').next();
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn chi_square(counts: &[u32]) -> f64 {
    let expected = f64::from(CONNECTIONS) / counts.len() as f64;
    counts
        .iter()
        .map(|&count| (f64::from(count) - expected).powi(2) / expected)
        .sum()
}

fn address(number: u8) -> String {
    format!("10.20.1.{}", number + 1)
}

fn objects() -> [Value; 2] {
    let endpoints = (0..ENDPOINTS).map(|number| json!({ "addresses": [address(number)] }));
    let endpoints: Vec<Value> = endpoints.collect();
    [
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "web", "namespace": "default" },
            "spec": { "clusterIP": "10.96.1.1", "ports": [{ "port": 80 }] },
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "web", "namespace": "default",
                "labels": { "kubernetes.io/service-name": "web" },
            },
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{ "name": "", "port": 80, "protocol": "TCP" }],
        }),
    ]
}

#[test]
fn an_uneven_spread_is_no_chance() {
    assert!(chi_square(&[400; 5]) < 1e-9);
    assert!(chi_square(&[440, 380, 420, 360, 400]) < MOST);
    assert!(chi_square(&[500, 375, 375, 375, 375]) > MOST);
}
