//! What a pod's script does to its node's rules is known as the script's doing.

mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{User, World, case, pod};

/// A script's first command comes within milliseconds.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_script_on_the_hosts_network_is_recorded_under_its_pods_name() {
    for user in [User::Myself, User::Ordinary] {
        let mut world = World::raise(user, &case(1)).await;
        let script = "iptables -t mangle -N THIRD-PARTY; exec sleep 1000";
        let container = json!({ "image": "tools:1", "command": ["sh", "-c", script] });
        let mut cleaner = pod("cleaner", "n1", &container);
        cleaner["spec"]["hostNetwork"] = json!(true);
        world.ask(json!({ "create": cleaner })).await;
        let command = command_of(&mut world, "pod/default/cleaner").await;
        let argv = ["iptables", "-t", "mangle", "-N", "THIRD-PARTY"];
        assert_eq!(
            (&command["argv"], &command["exit"]),
            (&json!(argv), &json!(0))
        );
        assert_eq!(command["node"], "n1");
        let rules = world
            .exec("node/n1", &["iptables-save", "-t", "mangle"])
            .await;
        assert!(rules.contains(":THIRD-PARTY"), "{rules}");
        world.stop().await;
    }
}

/// The first command in the history that is theirs.
async fn command_of(world: &mut World, who: &str) -> Value {
    let begin = Instant::now();
    loop {
        let events = world.ask(json!("events")).await;
        let commands = events.as_array().into_iter().flatten();
        let mut commands = commands.map(|event| &event["what"]["command"]);
        if let Some(command) = commands.find(|command| command["who"] == who) {
            return command.clone();
        }
        assert!(begin.elapsed() < SOON, "{who} ran nothing");
    }
}
