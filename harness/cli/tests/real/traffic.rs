//! Requests fare alike, whoever plays kube-proxy.

use crate::{
    ground::exits,
    stage::{Seen, Stage, User, kube_proxy},
};

/// How far the shares of answered requests may be apart, of 1.
const APART: f64 = 0.005;
/// And the medians of their times: a new connection takes some tenths of a millisecond, and a machine that is
/// busy in one of the two runs takes longer.
const TIMES: f64 = 2.0;
const BESIDE_US: f64 = 1000.0;

#[test]
#[ignore = "needs a real kube-proxy: make test-real"]
fn requests_are_answered_as_often_and_as_fast_with_the_real_kube_proxy_as_with_its_model() {
    let [(real, real_us), (model, model_us)] = [kube_proxy().display().to_string(), "model".into()]
        .map(|player| fares(&format!("kube-proxy={player}")));
    assert!((real - model).abs() <= APART, "{real} and {model} answered");
    let bound = |us: f64| us * TIMES + BESIDE_US;
    assert!(
        real_us <= bound(model_us) && model_us <= bound(real_us),
        "medians of {real_us} and {model_us} µs"
    );
}

/// The share of answered requests, and the median of their times in microseconds.
fn fares(agent: &str) -> (f64, f64) {
    let stage = Stage::new(User::Myself);
    let scenario = "kube-proxy/requests-go-to-pods-that-are-gone.yaml";
    let calm = ["--variant", "pods-wait-before-they-end", "--agent", agent];
    let cell = ["--matrix", "kube-proxy=1.20.2", "iptables=legacy"];
    exits(&stage.run(&[&[scenario][..], &calm, &cell].concat()), 0);
    let cases = stage.cases();
    let samples: Vec<_> = cases.values().flat_map(Seen::samples).collect();
    let mut times: Vec<u64> = samples
        .iter()
        .filter(|sample| sample.outcome.is_answered())
        .map(|sample| sample.took_us)
        .collect();
    assert!(times.len() > 200, "{} of {}", times.len(), samples.len());
    times.sort_unstable();
    let share = count(times.len()) / count(samples.len());
    let median = times.get(times.len() / 2).copied().unwrap();
    (share, count(usize::try_from(median).unwrap()))
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap())
}
