//! What the report's head says about a world: the kernel and the programs that are the machine's own.

use std::{process::Stdio, sync::Arc};

use chainbreak_engine::log::EventLog;
use chainbreak_model::event::EventKind;

use crate::{place::PlaceThread, world::World};

/// Programs that say their version, and the words that ask them to.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("iptables", &["iptables", "--version"]),
    ("nginx", &["nginx", "-v"]),
    ("nft", &["nft", "--version"]),
];

/// Says them all, while the world is being raised: nothing waits for them.
pub(crate) async fn say(world: Arc<World>, log: EventLog) {
    let tell = |name: &str, value: String| {
        log.append(EventKind::Fact {
            name: name.to_owned(),
            value,
        });
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    tell("kernel", kernel.trim().to_owned());
    let Some(node) = world.nodes().next() else {
        return;
    };
    for (name, argv) in PROGRAMS {
        if let Ok(version) = version(&node.place, argv).await {
            tell(name, version);
        }
    }
}

/// The first line that the program writes, wherever it writes it (nginx takes standard error).
async fn version(place: &PlaceThread, argv: &'static [&'static str]) -> std::io::Result<String> {
    let child = place.spawn(argv, |command| {
        command.stdin(Stdio::null());
    });
    let output = child.await?.wait_with_output().await?;
    let said = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&said);
    let line = text.lines().next().unwrap_or_default();
    // nginx introduces itself twice.
    Ok(line.trim_start_matches("nginx version: ").to_owned())
}
