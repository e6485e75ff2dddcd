//! How long whatever runs in the calling worker's world has waited for a processor, and the machine's virtual processors for a real one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use chainbreak_engine::cluster::{Scheduling, Waited, Waiter};

/// All processes and threads of the world: its `/proc` shows no others. Those that give way to the rest (nice(2)) wait as they were told to,
/// and are none of these.
#[derive(Debug, Default)]
pub(crate) struct WorldTasks {
    processes: Mutex<BTreeMap<u32, Process>>,
    /// How this process gives way, which is what counts as not at all: it may have been started with `nice` itself.
    own: OnceLock<i32>,
}

/// A process, and of each of its threads what tells of it.
#[derive(Debug, Default)]
struct Process(BTreeMap<u32, Task>);

/// A thread's files, which stay open: to open them again costs the kernel several times what it takes to read them.
#[derive(Debug)]
struct Task {
    schedstat: File,
    stat: File,
}

/// What is seen of a task.
#[derive(Debug)]
struct Seen {
    waited: Waited,
    /// On which processor it runs, or last ran.
    processor: Option<u32>,
    /// How many threads its process has.
    threads: usize,
    /// From -20, which comes first, to 19.
    nice: i32,
}

impl Scheduling for WorldTasks {
    fn waits(&self) -> BTreeMap<Waiter, Waited> {
        let mut processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let there: BTreeSet<u32> = numbers("/proc").into_iter().collect();
        processes.retain(|pid, _| there.contains(pid));
        let own = *self.own.get_or_init(|| {
            let own = Task::open("/proc/self").ok().and_then(|it| it.look());
            own.map_or(0, |seen| seen.nice)
        });
        let mut waits = BTreeMap::new();
        let mut wanted = BTreeSet::new();
        for pid in there {
            for (task, seen) in processes.entry(pid).or_default().look(pid) {
                if seen.nice <= own {
                    wanted.extend(seen.processor.filter(|_| seen.waited.runnable));
                    waits.insert(Waiter::Task(task), seen.waited);
                }
            }
        }
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        waits.extend(stat.lines().filter_map(stolen).map(|(number, for_now)| {
            let runnable = wanted.contains(&number);
            let waited = Waited {
                for_now,
                runnable,
                ..Waited::default()
            };
            (Waiter::VirtualProcessor(number), waited)
        }));
        waits
    }

    fn name_of(&self, waiter: Waiter) -> String {
        match waiter {
            Waiter::Task(task) => fs::read_to_string(format!("/proc/{task}/comm")).map_or_else(
                |_gone| format!("task {task}"),
                |name| name.trim().to_owned(),
            ),
            Waiter::VirtualProcessor(number) => format!("the virtual processor {number}"),
        }
    }
}

impl Process {
    /// Its threads, those that have just begun among them. What has ended waits no more.
    fn look(&mut self, pid: u32) -> Vec<(u32, Seen)> {
        let alone = self.0.len() == 1;
        let first = self.0.get(&pid).filter(|_| alone).and_then(Task::look);
        if let Some(first) = first.filter(|seen| seen.threads == 1) {
            return vec![(pid, first)];
        }
        let folder = format!("/proc/{pid}/task");
        let mut before = std::mem::take(&mut self.0);
        let mut all = Vec::new();
        for number in numbers(&folder) {
            let known = before.remove(&number).and_then(Task::seen);
            let began = || Task::open(&format!("{folder}/{number}")).ok()?.seen();
            if let Some((task, seen)) = known.or_else(began) {
                self.0.insert(number, task);
                all.push((number, seen));
            }
        }
        all
    }
}

impl Task {
    fn open(folder: &str) -> io::Result<Self> {
        Ok(Self {
            schedstat: File::open(format!("{folder}/schedstat"))?,
            stat: File::open(format!("{folder}/stat"))?,
        })
    }

    /// What is seen of it; none when it has ended, also where another has its number by now.
    fn look(&self) -> Option<Seen> {
        seen(schedstat(&text(&self.schedstat)?)?, &text(&self.stat)?)
    }

    fn seen(self) -> Option<(Self, Seen)> {
        self.look().map(|seen| (self, seen))
    }
}

/// What such a file says now: it is shorter than that.
fn text(file: &File) -> Option<String> {
    let mut bytes = vec![0; 2048];
    let length = file.read_at(&mut bytes, 0).ok()?;
    bytes.truncate(length);
    String::from_utf8(bytes).ok()
}

/// What was stolen from the processor of that line of `/proc/stat`: its eighth figure, in hundredths of a second (proc(5)). The kernel counts it
/// at a tick of the processor, so when it is over.
fn stolen(line: &str) -> Option<(u32, Duration)> {
    // The line of all processors together has no number.
    let (number, figures) = line.strip_prefix("cpu")?.split_once(' ')?;
    let hundredths: u64 = figures.split_whitespace().nth(7)?.parse().ok()?;
    Some((number.parse().ok()?, Duration::from_millis(hundredths * 10)))
}

/// What `stat` says of a task beside its `schedstat`: whether it wants a processor, which it was on last, how many threads its process has,
/// and how it gives way: the fields 3, 39, 20 and 19, after the name, which may hold anything (proc(5)).
fn seen(waited: Waited, stat: &str) -> Option<Seen> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let field = |number: usize| fields.split(' ').nth(number - 3);
    let runnable = fields.starts_with('R');
    Some(Seen {
        waited: Waited { runnable, ..waited },
        processor: field(39).and_then(|it| it.parse().ok()),
        threads: field(20).and_then(|it| it.parse().ok()).unwrap_or_default(),
        nice: field(19).and_then(|it| it.parse().ok()).unwrap_or_default(),
    })
}

/// The entries of a folder that are numbers.
fn numbers(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(number).collect()
}

/// `schedstat`: nanoseconds on a processor, nanoseconds on a run queue, and how often it ran (Documentation/scheduler/sched-stats.rst).
fn schedstat(text: &str) -> Option<Waited> {
    let mut figures = text.split_whitespace().map(|it| it.parse().ok());
    let mut next = || figures.next()?;
    Some(Waited {
        ran: Duration::from_nanos(next()?),
        for_now: Duration::from_nanos(next()?),
        runs: next()?,
        runnable: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_tells_how_long_a_task_ran_and_waited_and_how_often_it_ran() {
        let waited = Waited {
            ran: Duration::from_micros(4711),
            for_now: Duration::from_micros(1_200_345),
            runs: 42,
            runnable: false,
        };
        assert_eq!(schedstat("4711000 1200345000 42\n"), Some(waited));
        assert_eq!(schedstat(""), None);
    }

    #[test]
    fn a_task_that_wants_a_processor_is_told_from_one_that_sleeps_and_where_it_is_is_known() {
        let zeros = |count| " 0".repeat(count);
        let stat = |state| format!("7 (a) {state} 1{} -3 5{} 1 0", zeros(14), zeros(18));
        let told = |stat: &str| {
            let seen = seen(Waited::default(), stat)?;
            Some((
                seen.waited.runnable,
                seen.processor,
                seen.threads,
                seen.nice,
            ))
        };
        assert_eq!(told(&stat("R")), Some((true, Some(1), 5, -3)));
        assert_eq!(told(&stat("S")), Some((false, Some(1), 5, -3)));
        assert_eq!(told("7 (a) S (b) R 1 7"), Some((true, None, 0, 0)));
        assert_eq!(told("7 (a) R (b) S 1 7"), Some((false, None, 0, 0)));
        let own = Task::open(&format!("/proc/self/task/{}", nix::unistd::gettid()));
        let own = own.unwrap().look().unwrap();
        assert!(own.waited.runnable);
        assert!(own.threads > 1, "tests have a thread each");
    }

    #[test]
    fn what_a_hypervisor_took_from_each_processor_is_looked_at_where_a_task_wanted_it() {
        let all = "cpu  1280865 0 346227 2270323 7131 0 11503 2035 0 0";
        assert_eq!(stolen(all), None);
        let one = "cpu1 649132 0 176304 1121634 5183 0 6056 1014 0 0";
        assert_eq!(stolen(one), Some((1, Duration::from_millis(10_140))));
        assert_eq!(stolen("intr 16849593 0 0 0 0 0 0 0 0"), None);
        let seen = WorldTasks::default().waits();
        let wanted = |(who, waited): (&Waiter, &Waited)| {
            matches!(who, Waiter::VirtualProcessor(_)) && waited.runnable
        };
        assert!(seen.iter().any(wanted), "this thread runs on one");
    }

    #[test]
    fn every_thread_is_looked_at_from_its_beginning_to_its_end() {
        let tasks = WorldTasks::default();
        let is_seen = |task| tasks.waits().contains_key(&task);
        let task = || Waiter::Task(nix::unistd::gettid().as_raw().try_into().unwrap());
        assert!(is_seen(task()));
        assert!(!tasks.name_of(task()).is_empty());
        let (say, said) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            say.send(task()).unwrap();
            let _ended = ended.recv();
        });
        let other = said.recv().unwrap();
        assert!(is_seen(other), "it began");
        assert!(is_seen(other), "it is there still");
        drop(end);
        thread.join().unwrap();
        // The kernel says that it has ended a moment before it is gone.
        while is_seen(other) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_is_looked_at_from_its_beginning_to_its_end_and_its_threads_with_it() {
        let tasks = WorldTasks::default();
        let mut process = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let waiter = Waiter::Task(process.id());
        assert!(tasks.waits().contains_key(&waiter));
        assert!(tasks.waits().contains_key(&waiter), "alone, as before");
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(!tasks.waits().contains_key(&waiter));
    }

    #[test]
    fn what_gives_way_of_its_own_accord_does_not_count_as_kept_waiting() {
        let tasks = WorldTasks::default();
        let starts = |argv: &[&str]| {
            let mut command = std::process::Command::new(argv[0]);
            command.args(&argv[1..]).spawn().unwrap()
        };
        let mut gives_way = starts(&["nice", "sleep", "60"]);
        let task = gives_way.id();
        let nice = || {
            Task::open(&format!("/proc/{task}"))
                .unwrap()
                .look()
                .unwrap()
                .nice
        };
        let own = Task::open("/proc/self").unwrap().look().unwrap().nice;
        while nice() == own {
            std::thread::yield_now();
        }
        assert!(!tasks.waits().contains_key(&Waiter::Task(task)));
        gives_way.kill().unwrap();
        gives_way.wait().unwrap();
    }
}
