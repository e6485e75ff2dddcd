//! Playing a scenario's timeline, one step after the other.

mod rollout;

use std::{fmt::Display, time::Duration};

use chainbreak_model::{
    case::{ObjectRef, Step},
    event::EventKind,
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cluster::Cluster,
    faults::{Faults, within},
    felix_config,
    infra_error::InfraError,
    log::EventLog,
    manifests,
};

/// Plays the steps. Times are kept on an absolute schedule, so that a slow API call makes no step late; but
/// a fault and its end take the time that they need: it counts from when it is there, and what follows from when it is not. Faults with an end are over
/// when this returns, the others still hold.
pub(crate) async fn play(
    client: &Client,
    faults: &mut Faults,
    steps: &[Step],
    log: &EventLog,
) -> Result<(), InfraError> {
    let begin = Instant::now();
    let mut due = begin;
    for (number, step) in steps.iter().enumerate() {
        log.append(EventKind::StepBegan { step: number });
        match step {
            Step::Settle(duration) => due += *duration,
            Step::At(time) => due = due.max(begin + *time),
            Step::Mark(name) => log.barrier(EventKind::Mark { name: name.clone() }).await,
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
                    due = faults.until(due).await;
                    scale(client, namespace, deployment, *count, log).await?;
                    due += *every;
                }
                due = end;
            }
            Step::Rollout {
                namespace,
                deployment,
            } => {
                rollout::over(client, faults, (namespace, deployment)).await?;
                due = due.max(Instant::now());
            }
            Step::Felix(spec) => felix_config::merge(client, spec, log).await?,
            Step::Apply(objects) => {
                apply(client, &faults.cluster().dressed(objects), log).await?;
            }
            Step::Delete(object) => delete(client, object, log).await?,
            Step::MoveApi => move_api(faults.cluster(), log).await?,
            Step::Fault { fault, duration } => {
                faults.inject(fault, *duration).await?;
                faults.belongs_to(number);
                due = due.max(Instant::now());
            }
        }
        due = faults.until(due).await;
        if !matches!(step, Step::Fault { .. }) {
            log.append(EventKind::StepEnded { step: number });
        }
    }
    faults.outlast().await;
    Ok(())
}

async fn apply(client: &Client, objects: &[Value], log: &EventLog) -> Result<(), InfraError> {
    let name = |object: &Value| {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let words = [kind, name].map(|word| word.as_str().unwrap_or_default());
        words.join(" ")
    };
    let names: Vec<String> = objects.iter().map(name).collect();
    log.append(EventKind::Step {
        text: format!("apply {}", names.join(", ")),
    });
    manifests::apply(client, objects).await
}

async fn delete(client: &Client, object: &ObjectRef, log: &EventLog) -> Result<(), InfraError> {
    let (kind, name) = (&object.kind, &object.name);
    let text = match &object.namespace {
        Some(namespace) => format!("delete {kind} {namespace}/{name}"),
        None => format!("delete {kind} {name}"),
    };
    log.append(EventKind::Step { text: text.clone() });
    let deleted = manifests::delete(client, object).await;
    deleted.map_err(|error| InfraError::new(text, error))
}

async fn move_api(cluster: &dyn Cluster, log: &EventLog) -> Result<(), InfraError> {
    let text = "the API's endpoint moves".to_owned();
    log.append(EventKind::Step { text });
    let failed = |why: &dyn Display| InfraError::new("move the API's endpoint", why);
    let endpoints = cluster.api_endpoints();
    let endpoints = endpoints.ok_or_else(|| failed(&"the backend cannot"))?;
    endpoints.move_on().await.map_err(|error| failed(&error))
}

async fn scale(
    client: &Client,
    namespace: &str,
    deployment: &str,
    replicas: u32,
    log: &EventLog,
) -> Result<(), InfraError> {
    let text = format!("scale {namespace}/{deployment} to {replicas}");
    log.append(EventKind::Step { text: text.clone() });
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let api = Api::<Deployment>::namespaced(client.clone(), namespace);
    let scaled = api
        .patch_scale(deployment, &PatchParams::default(), &patch)
        .await;
    scaled
        .map(drop)
        .map_err(|error| InfraError::new(text, error))
}

/// How long the steps take at most, unless the world fails: a case's length from ready to judged.
pub fn length(steps: &[Step]) -> Duration {
    let (mut due, mut last) = (Duration::ZERO, Duration::ZERO);
    for step in steps {
        due = step.next_due(due);
        if let Step::Fault { fault, duration } = step {
            due += 2 * within(fault);
            last = last.max(due + duration.unwrap_or_default());
        }
        if let Step::Rollout { .. } = step {
            due += rollout::WITHIN;
        }
    }
    last.max(due)
}

#[cfg(test)]
mod tests {
    use chainbreak_model::{
        case::{AgentFault, Fault},
        names::AgentName,
    };
    use tokio::time::sleep_until;

    use super::*;
    use crate::{fake::Fake, faults::WITHIN, gate::Gate};

    fn settle(seconds: u64) -> Step {
        Step::Settle(Duration::from_secs(seconds))
    }

    fn slow(seconds: u64) -> Step {
        Step::Fault {
            fault: Fault::Slow {
                agent: AgentName::KubeProxy,
                command: "iptables-restore".to_owned(),
                by: Duration::from_millis(500),
            },
            duration: Some(Duration::from_secs(seconds)),
        }
    }

    fn agent(agent: AgentName, what: AgentFault, seconds: Option<u64>) -> Step {
        Step::Fault {
            fault: Fault::Agent {
                agent,
                node: None,
                what,
            },
            duration: seconds.map(Duration::from_secs),
        }
    }

    #[test]
    fn what_goes_on_beside_the_steps_counts_from_where_it_begins() {
        let seconds = |steps: &[Step]| length(steps).as_secs();
        let long = 2 * WITHIN.as_secs();
        assert_eq!(seconds(&[settle(2), slow(3), settle(1)]), long + 5);
        assert_eq!(seconds(&[settle(2), slow(3), settle(4)]), long + 6);
        assert_eq!(seconds(&[slow(9), settle(1), slow(2)]), 2 * long + 3);
        let pause = agent(AgentName::Felix, AgentFault::Pause, Some(4));
        assert_eq!(seconds(&[settle(2), pause, settle(1)]), 2 + long + 4);
    }

    /// How late a command of the agent starts, after these seconds of the timeline.
    async fn late(steps: &[Step], seconds: u64, who: &str, program: &str) -> Duration {
        let (fake, cluster) = Fake::default().cluster();
        let (log, _events) = EventLog::new();
        let command = async {
            sleep_until(Instant::now() + Duration::from_secs(seconds)).await;
            passes(&fake.gate, who, program).await
        };
        let begin = Instant::now();
        let mut faults = Faults::new(&cluster, 0, &log);
        let api = cluster.api();
        let (played, late) = tokio::join!(play(&api, &mut faults, steps, &log), command);
        played.expect("nothing fails");
        let undone = 2 * WITHIN;
        assert!(begin.elapsed() >= length(steps).saturating_sub(undone));
        late
    }

    async fn passes(gate: &Gate, who: &str, program: &str) -> Duration {
        let wanted = Instant::now();
        gate.pass(who, &"n1".into(), &[program.to_owned()]).await;
        wanted.elapsed()
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
    async fn a_fault_without_an_end_holds_when_the_timeline_is_over() {
        let (fake, cluster) = Fake::default().cluster();
        let (log, _events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let steps = [
            agent(AgentName::Felix, AgentFault::Stop, None),
            agent(AgentName::KubeProxy, AgentFault::Pause, Some(3)),
            settle(1),
        ];
        let begin = Instant::now();
        play(&cluster.api(), &mut faults, &steps, &log)
            .await
            .unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(3));
        let so_far = ["Stop felix", "Pause kube-proxy", "Run kube-proxy"];
        assert_eq!(fake.signals(), so_far);
        faults.heal_all().await;
        assert_eq!(fake.signals()[3..], ["Run felix"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_follows_a_fault_counts_from_when_it_is_undone() {
        let late = ("Run kube-proxy".to_owned(), Duration::from_secs(5));
        let fake = Fake {
            late: Some(late),
            ..Fake::default()
        };
        let (_fake, cluster) = fake.cluster();
        let (log, _events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let pause = agent(AgentName::KubeProxy, AgentFault::Pause, Some(1));
        let steps = [pause, settle(2), settle(3)];
        let begin = Instant::now();
        play(&cluster.api(), &mut faults, &steps, &log)
            .await
            .unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(1 + 5 + 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_with_a_time_begins_then_and_one_that_is_late_begins_at_once() {
        let (_fake, cluster) = Fake::default().cluster();
        let (log, _events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let at = |seconds| Step::At(Duration::from_secs(seconds));
        let steps = [settle(1), at(4), settle(1), at(3), settle(2)];
        let begin = Instant::now();
        play(&cluster.api(), &mut faults, &steps, &log)
            .await
            .unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(4 + 1 + 2));
        assert_eq!(length(&steps), begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_history_says_when_each_step_begins_and_ends_and_a_fault_ends_when_it_is_undone() {
        let (_fake, cluster) = Fake::default().cluster();
        let (log, mut events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let pause = |seconds| agent(AgentName::KubeProxy, AgentFault::Pause, seconds);
        let stop = agent(AgentName::Felix, AgentFault::Stop, None);
        let steps = [pause(Some(2)), stop, settle(1), settle(3)];
        play(&cluster.api(), &mut faults, &steps, &log)
            .await
            .unwrap();
        faults.heal_all().await;
        let events = std::iter::from_fn(|| events.try_recv().ok());
        let edge = |event: chainbreak_model::event::Event| match event.what {
            EventKind::StepBegan { step } => Some(format!("+{step}")),
            EventKind::StepEnded { step } => Some(format!("-{step}")),
            _ => None,
        };
        let edges: Vec<String> = events.filter_map(edge).collect();
        assert_eq!(edges.join(" "), "+0 +1 +2 -2 +3 -0 -3 -1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_ended_early_leaves_no_command_late() {
        let (fake, cluster) = Fake::default().cluster();
        let (log, _events) = EventLog::new();
        let (steps, api) = ([slow(60)], cluster.api());
        let mut faults = Faults::new(&cluster, 0, &log);
        let playing = play(&api, &mut faults, &steps, &log);
        let ended = tokio::time::timeout(Duration::from_secs(1), playing).await;
        assert!(ended.is_err());
        faults.heal_all().await;
        let late = passes(&fake.gate, "kube-proxy", "iptables-restore").await;
        assert_eq!(late, Duration::ZERO);
    }
}
