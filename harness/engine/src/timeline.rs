//! Playing a scenario's timeline, one step after the other.

use std::time::Duration;

use chainbreak_model::{case::Step, event::What, names::AgentName};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{
    gate::{Delayed, Gate, Matching},
    log::EventLog,
    trouble::Trouble,
};

/// Plays the steps. Times are kept on an absolute schedule: a slow API call makes no step late. What goes
/// on beside the steps ends in its time, and with this future when that is dropped.
pub(crate) async fn play(
    client: &Client,
    gate: Option<&Gate>,
    steps: &[Step],
    log: &EventLog,
) -> Result<(), Trouble> {
    let mut beside = JoinSet::new();
    let mut due = Instant::now();
    for step in steps {
        match step {
            Step::Settle(duration) => due += *duration,
            Step::Mark(name) => log.append(What::Mark { name: name.clone() }),
            Step::Churn {
                namespace,
                deployment,
                replicas,
                every,
                duration,
            } => {
                let end = due + *duration;
                for count in replicas.iter().cycle() {
                    if due >= end {
                        break;
                    }
                    sleep_until(due).await;
                    scale(client, namespace, deployment, *count, log).await?;
                    due += *every;
                }
                due = end;
            }
            Step::Felix(spec) => configure_felix(client, spec, log).await?,
            Step::Slow {
                agent,
                command,
                by,
                duration,
            } => {
                let delayed = slow(gate, *agent, command, *by, log)?;
                let text = format!("{agent}'s {command} starts in time again");
                let (end, log) = (due + *duration, log.clone());
                beside.spawn(async move {
                    sleep_until(end).await;
                    drop(delayed);
                    log.append(What::Step { text });
                });
            }
        }
        sleep_until(due).await;
    }
    while beside.join_next().await.is_some() {}
    Ok(())
}

/// From now on the agent's command starts later, on every node.
fn slow(
    gate: Option<&Gate>,
    agent: AgentName,
    command: &str,
    by: Duration,
    log: &EventLog,
) -> Result<Delayed, Trouble> {
    let text = format!("delay {agent}'s {command} by {by:?}");
    let gate =
        gate.ok_or_else(|| Trouble::new(text.clone(), "the backend cannot hold commands back"))?;
    log.append(What::Step { text });
    let which = Matching {
        who: Some(agent.to_string()),
        node: None,
        program: Some(command.to_owned()),
    };
    Ok(gate.delay(which, by))
}

async fn scale(
    client: &Client,
    namespace: &str,
    deployment: &str,
    replicas: u32,
    log: &EventLog,
) -> Result<(), Trouble> {
    let text = format!("scale {namespace}/{deployment} to {replicas}");
    log.append(What::Step { text: text.clone() });
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let api = Api::<Deployment>::namespaced(client.clone(), namespace);
    let scaled = api
        .patch_scale(deployment, &PatchParams::default(), &patch)
        .await;
    scaled.map(drop).map_err(|error| Trouble::new(text, error))
}

/// Merges the fields into FelixConfiguration `default`, made when it is not there.
async fn configure_felix(
    client: &Client,
    spec: &Map<String, Value>,
    log: &EventLog,
) -> Result<(), Trouble> {
    let text = format!("set FelixConfiguration {}", Value::Object(spec.clone()));
    log.append(What::Step { text: text.clone() });
    let kind = GroupVersionKind::gvk("projectcalico.org", "v3", "FelixConfiguration");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let patch = Patch::Merge(json!({ "spec": spec }));
    let patched = api.patch("default", &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|error| Trouble::new(text, error))
}

/// How long the steps take: a case's length from ready to judged.
pub fn length(steps: &[Step]) -> Duration {
    let (mut due, mut last) = (Duration::ZERO, Duration::ZERO);
    for step in steps {
        match step {
            Step::Settle(duration) | Step::Churn { duration, .. } => due += *duration,
            Step::Felix(_) | Step::Mark(_) => {}
            Step::Slow { duration, .. } => last = last.max(due + *duration),
        }
    }
    last.max(due)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(seconds: u64) -> Step {
        Step::Settle(Duration::from_secs(seconds))
    }

    fn slow(seconds: u64) -> Step {
        Step::Slow {
            agent: AgentName::KubeProxy,
            command: "iptables-restore".to_owned(),
            by: Duration::from_millis(500),
            duration: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn what_goes_on_beside_the_steps_counts_from_where_it_begins() {
        let seconds = |steps: &[Step]| length(steps).as_secs();
        assert_eq!(seconds(&[settle(2), slow(3), settle(1)]), 5);
        assert_eq!(seconds(&[settle(2), slow(3), settle(4)]), 6);
        assert_eq!(seconds(&[slow(9), settle(1), slow(2)]), 9);
    }

    /// How late a command of the agent starts, after these seconds of the timeline.
    async fn late(steps: &[Step], seconds: u64, who: &str, program: &str) -> Duration {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let client = Client::try_from(config).expect("a client that nobody asks");
        let (gate, (log, _events)) = (Gate::default(), EventLog::new());
        let command = async {
            sleep_until(Instant::now() + Duration::from_secs(seconds)).await;
            let wanted = Instant::now();
            let argv = [program.to_owned()];
            gate.pass(who, &"n1".into(), &argv).await;
            wanted.elapsed()
        };
        let begin = Instant::now();
        let (played, late) = tokio::join!(play(&client, Some(&gate), steps, &log), command);
        played.expect("nothing fails");
        assert!(begin.elapsed() >= length(steps));
        late
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_command_is_late_while_the_next_steps_happen_and_not_before_nor_after() {
        let steps = [settle(2), slow(3), settle(1)];
        let half = Duration::from_millis(500);
        let restore = "/usr/sbin/iptables-nft-restore";
        assert_eq!(late(&steps, 1, "kube-proxy", restore).await, Duration::ZERO);
        assert_eq!(late(&steps, 4, "kube-proxy", restore).await, half);
        assert_eq!(late(&steps, 6, "kube-proxy", restore).await, Duration::ZERO);
        assert_eq!(late(&steps, 4, "felix", restore).await, Duration::ZERO);
        assert_eq!(
            late(&steps, 4, "kube-proxy", "iptables").await,
            Duration::ZERO
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_ended_early_leaves_no_command_late() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let (gate, (log, _events)) = (Gate::default(), EventLog::new());
        let steps = [slow(60)];
        let playing = play(&client, Some(&gate), &steps, &log);
        let ended = tokio::time::timeout(Duration::from_secs(1), playing).await;
        assert!(ended.is_err());
        let began = Instant::now();
        let argv = ["iptables-restore".to_owned()];
        gate.pass("kube-proxy", &"n1".into(), &argv).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
