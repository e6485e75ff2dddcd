//! How long both take: from a change to its rules, and from a harm to its end; and how they repeat a sync
//! that fails.

use std::time::Duration;

use chainbreak_recordings::logs::{self, Sites};
use serde_json::json;

use crate::{
    harms::CANARIES,
    outcome::Trouble,
    pair::{Launcher, Pair},
    real, real_and_model,
    stage::{IptablesBackend, Stage},
    support::{self, User},
};

/// The sync period of pairs: how often the canary is looked at.
const PERIOD_MS: f64 = 1000.0;
/// A full sync on a loaded machine, and the looks.
const SYNC_MS: f64 = 1000.0;
/// What the monitor waits for the other canaries (iptables.go, `iptablesFlushTimeout`).
const FLUSH_MS: f64 = 5000.0;

async fn pair() -> Pair {
    support::require_packages();
    let launcher = Launcher::new(User::Myself, Some(&real()));
    let mut pair = launcher
        .raise(
            Stage::iptables(IptablesBackend::Legacy),
            0,
            &real_and_model(),
        )
        .await;
    pair.start()
        .await
        .unwrap_or_else(|trouble| panic!("{}", trouble.0));
    pair
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The medians of both, where every race was won by both.
async fn medians(pair: &mut Pair, races: usize, script: &str) -> Result<[f64; 2], Trouble> {
    let mut times = [Vec::new(), Vec::new()];
    for race in 0..races {
        let took = pair.race(race + 1, script, Duration::from_secs(10)).await?;
        let [Some(left), Some(right)] = took else {
            return Err(Trouble(format!("race {race} was not won: {took:?} ms")));
        };
        times[0].push(left);
        times[1].push(right);
        pair.put(race + 1, &[]).await?;
    }
    Ok(times.map(median))
}

/// Each change waits for the end of a sync under way and one of its own: twice the time of the other is
/// chance on a busy machine, more is another algorithm.
fn assert_alike([left, right]: [f64; 2]) {
    println!("medians: {left:.0} ms and {right:.0} ms");
    let most = |it: f64| 2.0 * it + 50.0;
    assert!(
        left < most(right) && right < most(left),
        "{left} ms and {right} ms"
    );
}

#[tokio::test]
#[ignore = "needs a real kube-proxy: make test-real"]
async fn a_change_becomes_rules_in_the_same_time() {
    let mut pair = pair().await;
    assert_alike(
        medians(&mut pair, 15, "true")
            .await
            .unwrap_or_else(|it| panic!("{}", it.0)),
    );
}

#[tokio::test]
#[ignore = "needs a real kube-proxy: make test-real"]
async fn a_flush_heals_with_the_next_change_in_the_same_time() {
    let mut pair = pair().await;
    // Partial syncs meet the missing chains, fail, and make the next one full. The canary stays: when its monitor looks is chance, and
    // from 1.34.0 on a full sync that it forces in the midst of a flush may fail and never be tried again.
    let flush = r"printf '*nat\n:KUBE-PROXY-CANARY - [0:0]\nCOMMIT\n' | iptables-restore";
    assert_alike(
        medians(&mut pair, 9, flush)
            .await
            .unwrap_or_else(|it| panic!("{}", it.0)),
    );
}

/// Nobody changes anything: the monitor alone heals. Where in its period the harm falls is chance.
#[tokio::test]
#[ignore = "needs a real kube-proxy: make test-real"]
async fn what_the_monitor_heals_is_healed_within_its_period_by_both() {
    let mut pair = pair().await;
    let [everything, _, mangle] = &CANARIES;
    for (script, from, to, races) in [
        (everything.script, 0.0, PERIOD_MS + SYNC_MS, 5),
        (
            // The rules show that nat was healed, which only the monitor can have done.
            &*format!("{}; iptables -t nat -F", mangle.script),
            FLUSH_MS,
            FLUSH_MS + PERIOD_MS + SYNC_MS,
            1,
        ),
    ] {
        for _ in 0..races {
            pair.put(1, &[])
                .await
                .unwrap_or_else(|it| panic!("{}", it.0));
            // The marker is there already: only the harm makes it go and come back.
            let took = pair.race(1, script, Duration::from_secs(12)).await;
            let took = took.unwrap_or_else(|it| panic!("{}", it.0));
            for took in took.map(|it| it.expect("it heals")) {
                assert!(
                    took > from && took < to,
                    "healed after {took} ms, not {from} to {to}"
                );
            }
        }
    }
}

/// A stranger uses a chain that has to go: every sync fails until it is let go of.
#[tokio::test]
#[ignore = "needs a real kube-proxy: make test-real"]
async fn a_sync_that_fails_is_repeated_and_told_alike() {
    let mut pair = pair().await;
    let lived = obstructed(&mut pair).await;
    let differences = lived.unwrap_or_else(|trouble| panic!("{}", trouble.0));
    assert!(differences.is_empty(), "{differences:#?}");
}

async fn obstructed(pair: &mut Pair) -> Result<Vec<String>, Trouble> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": { "clusterIP": "10.96.1.1", "ports": [{ "port": 80 }] },
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "web", "namespace": "default",
            "labels": { "kubernetes.io/service-name": "web" },
        },
        "addressType": "IPv4", "endpoints": [{ "addresses": ["10.20.1.1"] }],
        "ports": [{ "name": "", "port": 80, "protocol": "TCP" }],
    });
    pair.put(1, &[service.clone(), slice]).await?;
    // The hash is that of default/web and tcp.
    let chain = "KUBE-SVC-LOLE4ISW44XBNF3G";
    pair.sh(&format!(
        "iptables -t nat -N STRANGER; iptables -t nat -A STRANGER -j {chain}"
    ))
    .await?;
    pair.ask(json!({ "delete": service })).await?;
    // Once at the change, then in every period.
    pair.heard("Sync failed", 3).await?;
    pair.sh("iptables -t nat -F STRANGER; iptables -t nat -X STRANGER")
        .await?;
    pair.put(2, &[]).await?;
    Ok(logs::differences(&pair.kinds(Sites::Files).await?))
}
