//! What a run costs from the outside: how long from the command to a world in which traffic is answered,
//! and how much memory its processes take: `cargo bench -p chainbreak-cli --profile dev`. It fails where a bound of
//! docs/performance.md does not hold.

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
    thread,
    time::{Duration, Instant},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_chainbreak");
const DEMO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../scenarios/kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml"
);
/// Starts of a world.
struct Start {
    nodes: u16,
    /// How often it is raised: odd numbers have a middle.
    times: usize,
    /// Within what it is ready, in the middle, where a process takes [`PROCESS`].
    within: Option<Duration>,
}

const STARTS: [Start; 4] = [
    Start {
        nodes: 1,
        times: 11,
        within: None,
    },
    Start {
        nodes: 2,
        times: 21,
        within: Some(Duration::from_millis(300)),
    },
    Start {
        nodes: 10,
        times: 7,
        within: None,
    },
    Start {
        nodes: 70,
        times: 3,
        within: Some(Duration::from_secs(10)),
    },
];
/// The most that all processes of a run may take together, in kilobytes.
const MEMORY: u64 = 1024 * 1024;
/// Starting one such command is what most of a start consists of: by it, machines and loads compare.
const YARDSTICK: [&str; 2] = ["iptables-legacy", "--version"];
/// What a machine takes for it, when each core starts some, that the bounds are meant for. A start is some two hundred of
/// them, so that it may take longer in proportion where this does, be the machine slow or busy.
const PROCESS: Duration = Duration::from_millis(1);
/// How many each core starts to measure it.
const PROCESSES: u32 = 40;

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

/// How long the yardstick takes just now while each core runs some.
fn yardstick() -> Duration {
    let cores = thread::available_parallelism().unwrap().get();
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                for _ in 0..PROCESSES {
                    let output = Command::new(YARDSTICK[0]).arg(YARDSTICK[1]).output();
                    assert!(output.unwrap().status.success());
                }
            });
        }
    });
    begin.elapsed() / PROCESSES
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

/// Raises a world so often and shows what that took. Bounds that did not hold.
fn measure(folder: &Path, start: &Start) -> Vec<String> {
    let Start {
        nodes,
        times,
        within,
    } = *start;
    let file = scenario(folder, nodes);
    let before = yardstick();
    let runs: Vec<Run> = (0..times).map(|_| run(&file)).collect();
    let process = (before + yardstick()) / 2;
    let mut raised: Vec<Duration> = runs.iter().map(|run| run.raised).collect();
    let mut ready: Vec<Duration> = runs.iter().map(|run| run.ready).collect();
    let middle = median(&mut raised);
    println!(
        "{nodes} nodes ready in {} ms ({} to {}, {times} runs), {} ms from the command; `{}` takes {:.2} ms",
        middle.as_millis(),
        raised[0].as_millis(),
        raised[times - 1].as_millis(),
        median(&mut ready).as_millis(),
        YARDSTICK.join(" "),
        process.as_secs_f64() * 1000.0
    );
    let mut broken = Vec::new();
    if let Some(within) = within {
        let allowed = within.mul_f64((process.as_secs_f64() / PROCESS.as_secs_f64()).max(1.0));
        println!("{nodes} nodes: {allowed:?} are allowed here, {within:?} on a quiet machine");
        if middle > allowed {
            broken.push(format!(
                "{nodes} nodes are ready in {middle:?}, not in {allowed:?}"
            ));
        }
    }
    let most = runs.iter().max_by_key(|run| run.together);
    if let Some(most) = most {
        show_memory(&format!("{nodes} nodes"), most);
        if most.together > MEMORY {
            broken.push(format!("{nodes} nodes take {} kB of memory", most.together));
        }
    }
    broken
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let broken = STARTS
        .iter()
        .flat_map(|start| measure(folder.path(), start));
    let broken: Vec<String> = broken.collect();
    show_memory("demo", &run(Path::new(DEMO)));
    assert!(broken.is_empty(), "{}", broken.join("; "));
}
