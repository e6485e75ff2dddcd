//! How long whatever runs in the calling worker's world has waited for a processor.

use std::{collections::BTreeMap, fs, time::Duration};

use chainbreak_engine::cluster::{Scheduling, Waited};

/// All processes and threads of the world: its `/proc` shows no others.
pub(crate) struct WorldTasks;

impl Scheduling for WorldTasks {
    fn waits(&self) -> BTreeMap<u32, Waited> {
        let mut waits = BTreeMap::new();
        for process in numbers("/proc") {
            let folder = format!("/proc/{process}/task");
            for task in numbers(&folder) {
                // What has ended meanwhile waits no more.
                waits.extend(waited(&format!("{folder}/{task}")).map(|waited| (task, waited)));
            }
        }
        waits
    }

    fn task_name(&self, task: u32) -> String {
        let name = fs::read_to_string(format!("/proc/{task}/comm"));
        name.map_or_else(
            |_gone| format!("task {task}"),
            |name| name.trim().to_owned(),
        )
    }
}

/// Of the task with that folder.
fn waited(folder: &str) -> Option<Waited> {
    let schedstat = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
    Some(Waited {
        for_now: run_delay(&schedstat)?,
        runnable: is_runnable(&stat),
    })
}

/// The third field of `stat`, after the name, which may hold anything (proc(5)).
fn is_runnable(stat: &str) -> bool {
    stat.rsplit_once(") ")
        .is_some_and(|(_, fields)| fields.starts_with('R'))
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
    fn a_task_that_wants_a_processor_is_told_from_one_that_sleeps() {
        assert!(is_runnable("7 (a) S (b) R 1 7 7 0"));
        assert!(!is_runnable("7 (a) R (b) S 1 7 7 0"));
        let own = nix::unistd::gettid();
        let own = waited(&format!("/proc/self/task/{own}")).unwrap();
        assert!(own.runnable);
    }

    #[test]
    fn every_thread_of_this_process_is_looked_at() {
        let own = nix::unistd::gettid().as_raw();
        let own = u32::try_from(own).unwrap();
        assert!(WorldTasks.waits().contains_key(&own));
        assert!(!WorldTasks.task_name(own).is_empty());
    }
}
