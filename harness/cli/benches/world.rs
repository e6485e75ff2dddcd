//! What a run costs from the outside: how long from the command to a world in which traffic is answered,
//! and how much memory its processes take: `cargo bench -p chainbreak-cli --profile dev`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on panics, and the figures are what it is for"
)]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_chainbreak");
const DEMO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../scenarios/kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml"
);
/// Nodes, and how often they are raised: odd numbers have a middle.
const STARTS: [(u16, usize); 4] = [(1, 11), (2, 21), (10, 7), (70, 3)];
/// Starting one such command is what most of a start consists of: by it, machines and loads compare.
const YARDSTICK: [&str; 2] = ["iptables-legacy", "--version"];

/// What one run showed.
#[derive(Debug, Default)]
struct Run {
    /// From the command until a case was ready: pods answer, agents have synced, traffic is answered.
    ready: Duration,
    /// The same from the start of its world.
    raised: Duration,
    /// The most memory that a process of each role ever took (`VmHWM`), in kilobytes.
    peaks: BTreeMap<String, u64>,
    /// The most memory of all processes together at a case's end (sum of `Pss`), in kilobytes.
    together: u64,
}

fn run(scenario: &Path) -> Run {
    let out = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let mut child = Command::new(PROGRAM)
        .arg("run")
        .arg(scenario)
        .arg("--out")
        .arg(out.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut run = Run::default();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(words) = line.strip_suffix("  ready") {
            run.ready = begin.elapsed();
            let seconds = words.rsplit(' ').next().unwrap();
            run.raised = Duration::from_secs_f64(seconds.parse().unwrap());
        } else if line.ends_with("  judged") {
            run.look(child.id());
        }
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{}: {status}", scenario.display());
    run
}

impl Run {
    /// A case was judged: its worker and its world are there still.
    fn look(&mut self, parent: u32) {
        let mut together = 0;
        for process in family(parent) {
            // A process may end while it is looked at: it counts as nothing then.
            let (Some(role), Some(peak)) = (role(process), field(process, "status", "VmHWM:"))
            else {
                continue;
            };
            let most = self.peaks.entry(role).or_default();
            *most = peak.max(*most);
            together += field(process, "smaps_rollup", "Pss:").unwrap_or(0);
        }
        self.together = together.max(self.together);
    }
}

/// A process and all that descend from it.
fn family(first: u32) -> Vec<u32> {
    let parents: BTreeMap<u32, u32> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let process = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let parent = field(process, "status", "PPid:")?;
            Some((process, u32::try_from(parent).ok()?))
        })
        .collect();
    let mut family = vec![first];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        let children = parents.iter().filter(|(_, of)| **of == parent);
        family.extend(children.map(|(process, _)| *process));
        next += 1;
    }
    family
}

/// The verb of a process of ours, the program of any other.
fn role(process: u32) -> Option<String> {
    let line = fs::read_to_string(format!("/proc/{process}/cmdline")).ok()?;
    let mut words = line.split('\0');
    let program = words.next()?.rsplit('/').next()?;
    let ours = matches!(program, "chainbreak" | "exe");
    let role = if ours { words.next()? } else { program };
    Some(role.split(':').next()?.to_owned())
}

fn field(process: u32, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Four pods on so many nodes, with both agents on each.
fn scenario(folder: &Path, nodes: u16) -> std::path::PathBuf {
    let scenario = format!(
        "name: start\nabout: A world, and nothing done to it.\n\
         cluster:\n  nodes: {nodes}\n  kube-proxy: {{ version: \"1.32\" }}\n  \
         calico: {{ version: v3.28.1, pods: calico }}\nmanifests: [web.yaml]\n\
         traffic: {{ web: {{ from: pod/client, to: service/default/web, port: 80, every: 5ms, connections: new }} }}\n\
         timeline: [{{ settle: 300ms }}]\n\
         promises: {{ answers: {{ available: {{ traffic: web, at-least: 50% }} }} }}\n\
         variants: {{ plain: {{ expect: healthy }} }}\n"
    );
    let web = "\
apiVersion: v1
kind: Pod
metadata: { name: client, namespace: default }
spec: { nodeName: n1, containers: [{ name: nginx, image: nginx:1.27 }] }
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: default }
spec: { selector: { app: web }, ports: [{ port: 80 }] }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: default }
spec:
  replicas: 3
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec: { containers: [{ name: nginx, image: nginx:1.27, ports: [{ containerPort: 80 }] }] }
";
    fs::write(folder.join("web.yaml"), web).unwrap();
    let file = folder.join("start.yaml");
    fs::write(&file, scenario).unwrap();
    file
}

/// How long the machine takes for the yardstick just now.
fn yardstick() -> Duration {
    let mut times: Vec<Duration> = (0..51)
        .map(|_| {
            let begin = Instant::now();
            let output = Command::new(YARDSTICK[0]).arg(YARDSTICK[1]).output();
            assert!(output.unwrap().status.success());
            begin.elapsed()
        })
        .collect();
    median(&mut times)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn show_memory(what: &str, run: &Run) {
    let mib = |kilobytes: u64| kilobytes as f64 / 1024.0;
    for (role, kilobytes) in &run.peaks {
        println!("{what}: peak of a `{role}`: {:.1} MiB", mib(*kilobytes));
    }
    println!(
        "{what}: all processes together {:.0} MiB",
        mib(run.together)
    );
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    for (nodes, times) in STARTS {
        let file = scenario(folder.path(), nodes);
        let runs: Vec<Run> = (0..times).map(|_| run(&file)).collect();
        let mut raised: Vec<Duration> = runs.iter().map(|run| run.raised).collect();
        let mut ready: Vec<Duration> = runs.iter().map(|run| run.ready).collect();
        let (middle, unit) = (median(&mut raised), yardstick());
        println!(
            "{nodes} nodes ready in {} ms ({} to {}, {times} runs), {} ms from the command; {:.0} × `{}`",
            middle.as_millis(),
            raised[0].as_millis(),
            raised[times - 1].as_millis(),
            median(&mut ready).as_millis(),
            middle.as_secs_f64() / unit.as_secs_f64(),
            YARDSTICK.join(" ")
        );
        if let Some(last) = runs.last() {
            show_memory(&format!("{nodes} nodes"), last);
        }
    }
    show_memory("demo", &run(Path::new(DEMO)));
}
