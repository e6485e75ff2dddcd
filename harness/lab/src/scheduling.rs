//! How long whatever runs in the calling worker's world has waited for a processor, and the machine's virtual processors for a real one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use chainbreak_engine::cluster::{Scheduling, Waited, Waiter};

/// All processes and threads of the world: its `/proc` shows no others.
pub(crate) struct WorldTasks;

impl Scheduling for WorldTasks {
    fn waits(&self) -> BTreeMap<Waiter, Waited> {
        let mut waits = BTreeMap::new();
        let mut wanted = BTreeSet::new();
        for process in numbers("/proc") {
            let folder = format!("/proc/{process}/task");
            for task in numbers(&folder) {
                // What has ended meanwhile waits no more.
                let Some((waited, processor)) = waited(&format!("{folder}/{task}")) else {
                    continue;
                };
                wanted.extend(processor.filter(|_| waited.runnable));
                waits.insert(Waiter::Task(task), waited);
            }
        }
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        waits.extend(stat.lines().filter_map(stolen).map(|(number, for_now)| {
            let runnable = wanted.contains(&number);
            let waited = Waited { for_now, runnable };
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

/// Of the task with that folder, and the processor on which it runs, or last ran.
fn waited(folder: &str) -> Option<(Waited, Option<u32>)> {
    let schedstat = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
    let (runnable, processor) = running(&stat)?;
    let waited = Waited {
        for_now: run_delay(&schedstat)?,
        runnable,
    };
    Some((waited, processor))
}

/// What was stolen from the processor of that line of `/proc/stat`: its eighth figure, in hundredths of a second (proc(5)). The kernel counts it
/// at a tick of the processor, so when it is over.
fn stolen(line: &str) -> Option<(u32, Duration)> {
    // The line of all processors together has no number.
    let (number, figures) = line.strip_prefix("cpu")?.split_once(' ')?;
    let hundredths: u64 = figures.split_whitespace().nth(7)?.parse().ok()?;
    Some((number.parse().ok()?, Duration::from_millis(hundredths * 10)))
}

/// Whether a task wants a processor, and which it was on last: the fields 3 and 39 of `stat`, after the name, which may hold anything (proc(5)).
fn running(stat: &str) -> Option<(bool, Option<u32>)> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let processor = fields.split(' ').nth(36).and_then(|it| it.parse().ok());
    Some((fields.starts_with('R'), processor))
}

/// The entries of a folder that are numbers.
fn numbers(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(number).collect()
}

/// The second figure of `schedstat`: nanoseconds on a run queue (Documentation/scheduler/sched-stats.rst).
fn run_delay(stat: &str) -> Option<Duration> {
    let nanoseconds = stat.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_figure_of_schedstat_is_what_a_task_waited() {
        let waited = run_delay("4711000 1200345000 42\n");
        assert_eq!(waited, Some(Duration::from_micros(1_200_345)));
        assert_eq!(run_delay(""), None);
    }

    #[test]
    fn a_task_that_wants_a_processor_is_told_from_one_that_sleeps_and_where_it_is_is_known() {
        let stat = |state| format!("7 (a) {state} 1{}1 0", " 0".repeat(34) + " ");
        assert_eq!(running(&stat("R")), Some((true, Some(1))));
        assert_eq!(running(&stat("S")), Some((false, Some(1))));
        assert_eq!(running("7 (a) S (b) R 1 7"), Some((true, None)));
        assert_eq!(running("7 (a) R (b) S 1 7"), Some((false, None)));
        let own = nix::unistd::gettid();
        let (own, _) = waited(&format!("/proc/self/task/{own}")).unwrap();
        assert!(own.runnable);
    }

    #[test]
    fn what_a_hypervisor_took_from_each_processor_is_looked_at_where_a_task_wanted_it() {
        let all = "cpu  1280865 0 346227 2270323 7131 0 11503 2035 0 0";
        assert_eq!(stolen(all), None);
        let one = "cpu1 649132 0 176304 1121634 5183 0 6056 1014 0 0";
        assert_eq!(stolen(one), Some((1, Duration::from_millis(10_140))));
        assert_eq!(stolen("intr 16849593 0 0 0 0 0 0 0 0"), None);
        let seen = WorldTasks.waits();
        let wanted = |(who, waited): (&Waiter, &Waited)| {
            matches!(who, Waiter::VirtualProcessor(_)) && waited.runnable
        };
        assert!(seen.iter().any(wanted), "this thread runs on one");
    }

    #[test]
    fn every_thread_of_this_process_is_looked_at() {
        let own = nix::unistd::gettid().as_raw();
        let own = Waiter::Task(u32::try_from(own).unwrap());
        assert!(WorldTasks.waits().contains_key(&own));
        assert!(!WorldTasks.name_of(own).is_empty());
    }
}
