//! What of the machine this process may use. Its cgroup, or one above it, may have a quota of processor time or a limit of
//! memory, of v1 or v2; those that cannot be read grant what there is.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Cases for each core: they mostly wait.
const JOBS_PER_CORE: usize = 7;
/// What a case takes at most with models as agents, twice what those of the demo do (docs/performance.md).
const CASE_BYTES: usize = 64 << 20;
/// Where cgroups are mounted: v2's, and the hierarchies of v1 below it.
const MOUNTED: &str = "/sys/fs/cgroup";

/// What cgroups grant; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Thousandths of a core.
    millicores: Option<usize>,
    memory_bytes: Option<usize>,
}

impl Limits {
    /// Those of this process.
    pub(crate) fn read() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::of(&own, &|file| fs::read_to_string(file).ok())
    }

    /// Of a process with that `/proc/self/cgroup`.
    fn of(own: &str, read: &dyn Fn(&Path) -> Option<String>) -> Self {
        let least = |controller: &str, limit: Limit| {
            let folders = folders(own, controller).into_iter();
            folders.filter_map(|folder| limit(&folder, read)).min()
        };
        Self {
            millicores: least("cpu", millicores),
            memory_bytes: least("memory", memory_bytes),
        }
    }

    /// How many cases have room side by side on a machine of so many cores.
    pub(crate) fn jobs(self, cores: usize) -> usize {
        let by_time = self.granted(cores).saturating_mul(JOBS_PER_CORE) / 1000;
        let by_memory = self.memory_bytes.map_or(usize::MAX, |it| it / CASE_BYTES);
        by_time.min(by_memory).max(1)
    }

    /// How many worlds have a processor each to start with.
    pub(crate) fn starts(self, cores: usize) -> usize {
        self.granted(cores).div_ceil(1000).max(1)
    }

    /// Of a machine of so many cores, in thousandths of one.
    fn granted(self, cores: usize) -> usize {
        let all = cores.saturating_mul(1000);
        self.millicores.map_or(all, |granted| granted.min(all))
    }
}

/// Reads a limit of a cgroup's folder.
type Limit = fn(&Path, &dyn Fn(&Path) -> Option<String>) -> Option<usize>;

/// The folders of the cgroup that the controller knows a process by, and of all above it.
fn folders(own: &str, controller: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in own.lines() {
        // 4:cpu,cpuacct:/path of v1, 0::/path of v2.
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let root = match controllers {
            "" => PathBuf::from(MOUNTED),
            some if some.split(',').any(|one| one == controller) => {
                Path::new(MOUNTED).join(controller)
            }
            _ => continue,
        };
        let above = Path::new(path).ancestors();
        folders.extend(above.map(|path| root.join(path.strip_prefix("/").unwrap_or(path))));
    }
    folders
}

/// `max` of v2 and -1 of v1 are no quota.
fn millicores(folder: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Option<usize> {
    let of = |name: &str| read(&folder.join(name));
    let text = of("cpu.max").or_else(|| {
        let (quota, period) = (of("cpu.cfs_quota_us")?, of("cpu.cfs_period_us")?);
        Some(format!("{} {}", quota.trim(), period.trim()))
    })?;
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (usize, usize) = (quota.parse().ok()?, period.parse().ok()?);
    quota.saturating_mul(1000).checked_div(period)
}

fn memory_bytes(folder: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Option<usize> {
    let of = |name: &str| read(&folder.join(name));
    let text = of("memory.max").or_else(|| of("memory.limit_in_bytes"))?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits of a process where those files are.
    fn limits(own: &str, files: &[(&str, &str)]) -> Limits {
        Limits::of(own, &|asked| {
            let mut files = files.iter();
            let found = files.find(|(name, _)| asked == Path::new(MOUNTED).join(name));
            found.map(|(_, text)| format!("{text}\n"))
        })
    }

    #[test]
    fn the_least_quota_of_a_cgroup_and_those_above_it_holds() {
        let own = "0::/ci/job\n";
        let files = [
            ("cpu.max", "max 100000"),
            ("ci/cpu.max", "20000 100000"),
            ("ci/job/cpu.max", "150000 100000"),
            ("ci/memory.max", "max"),
            ("ci/job/memory.max", "134217728"),
        ];
        let found = limits(own, &files);
        assert_eq!(found.millicores, Some(200));
        assert_eq!(found.memory_bytes, Some(128 << 20));
    }

    #[test]
    fn quotas_of_both_versions_are_known_and_none_is_none() {
        let own = "4:memory:/job\n1:cpu,cpuacct:/job\n0::/\n";
        let files = [
            ("cpu/job/cpu.cfs_quota_us", "30000"),
            ("cpu/job/cpu.cfs_period_us", "100000"),
            ("cpu/cpu.cfs_quota_us", "-1"),
            ("cpu/cpu.cfs_period_us", "100000"),
            ("memory/job/memory.limit_in_bytes", "268435456"),
        ];
        let found = limits(own, &files);
        assert_eq!(found.millicores, Some(300));
        assert_eq!(found.memory_bytes, Some(256 << 20));
        let none = limits(own, &[]);
        assert_eq!((none.millicores, none.memory_bytes), (None, None));
    }

    #[test]
    fn as_many_cases_run_side_by_side_as_the_process_has_room_for() {
        let jobs = |millicores, memory_bytes, cores| {
            let limits = Limits {
                millicores,
                memory_bytes,
            };
            limits.jobs(cores)
        };
        assert_eq!(jobs(None, None, 2), 14);
        assert_eq!(jobs(Some(8000), None, 2), 14, "there are two");
        assert_eq!(jobs(Some(300), None, 2), 2);
        assert_eq!(jobs(Some(100), None, 2), 1, "at least one");
        assert_eq!(jobs(None, Some(256 << 20), 2), 4);
        assert_eq!(jobs(None, Some(16 << 20), 2), 1);
    }

    #[test]
    fn as_many_worlds_start_side_by_side_as_cores_are_granted() {
        let starts = |millicores, cores| {
            let limits = Limits {
                millicores,
                memory_bytes: None,
            };
            limits.starts(cores)
        };
        assert_eq!(starts(None, 2), 2);
        assert_eq!(starts(Some(1500), 4), 2, "half a core is one");
        assert_eq!(starts(Some(200), 2), 1);
    }
}
