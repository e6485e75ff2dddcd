//! Agents' logs, as `kubectl logs`, the kubelet and Docker have them.

use std::{borrow::Cow, mem};

use chainbreak_model::names::AgentName;

/// The entries of an agent's log, in their order: a header's line with those that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Whose.
    pub agent: AgentName,
    /// Each as it was printed, without what a container's runtime puts in front.
    pub entries: Vec<String>,
}

impl Log {
    /// Its warnings and what is worse.
    pub(crate) fn complaints(&self) -> impl Iterator<Item = &str> {
        let entries = self.entries.iter().map(String::as_str);
        entries.filter(|entry| complains(entry))
    }
}

/// Files of kube-proxy's sources that other programs of Kubernetes do not log from (1.20 to 1.36); of the others the log has to have one of
/// these.
const KUBE_PROXYS: [&str; 7] = [
    "proxier.go",
    "server_linux.go",
    "server_others.go",
    "bounded_frequency_runner.go",
    "proxier_health.go",
    "healthcheck.go",
    "conntrack.go",
];

/// The longest entry, in bytes: what a failed restore is told with.
const LONGEST: usize = 64 << 10;

/// The logs in a text, and the lines that are none.
pub(crate) fn read(text: &str) -> (Vec<Log>, String) {
    let (mut klog, mut felix, mut rest) = (Vec::new(), Vec::new(), String::new());
    let mut is_kube_proxys = false;
    let mut open: Option<AgentName> = None;
    for line in text.lines() {
        let said = without_runtime(line);
        let header = match header(&said) {
            Some(Header::Klog(file)) => {
                is_kube_proxys |= KUBE_PROXYS.contains(&file);
                Some(AgentName::KubeProxy)
            }
            Some(Header::Felix) => Some(AgentName::Felix),
            None => None,
        };
        open = header.or_else(|| open.filter(|_| goes_on(&said)));
        let entries: &mut Vec<String> = match open {
            Some(AgentName::KubeProxy) => &mut klog,
            Some(AgentName::Felix) => &mut felix,
            None => {
                rest.extend([line, "\n"]);
                continue;
            }
        };
        match entries.last_mut().filter(|_| header.is_none()) {
            Some(last) if last.len() + said.len() < LONGEST => last.extend(["\n", &said]),
            Some(_) => {}
            None => entries.push(said.into_owned()),
        }
    }
    // Lines of klog of which nobody knows whose they are.
    if !is_kube_proxys {
        let others = mem::take(&mut klog);
        for line in &others {
            rest.extend([line, "\n"]);
        }
    }
    let logs = [(AgentName::KubeProxy, klog), (AgentName::Felix, felix)];
    let logs = logs.into_iter().filter(|(_, entries)| !entries.is_empty());
    let logs = logs.map(|(agent, entries)| Log { agent, entries });
    (logs.collect(), rest)
}

enum Header<'a> {
    /// From which file.
    Klog(&'a str),
    Felix,
}

/// `E0610 07:32:16.910840       1 proxier.go:1564] …` or `2025-06-10 10:00:00.000 [WARNING][53] felix/table.go 7: …`.
fn header(line: &str) -> Option<Header<'_>> {
    let mut words = line.split_whitespace();
    let (first, _time, third, fourth) = (words.next()?, words.next()?, words.next()?, words.next());
    let is_klog = first.len() == 5
        && first.starts_with(['I', 'W', 'E', 'F'])
        && first.bytes().skip(1).all(|it| it.is_ascii_digit())
        && third.bytes().all(|it| it.is_ascii_digit());
    if is_klog {
        let (file, _) = fourth?.split_once(':')?;
        let (_, kind) = file.rsplit_once('.')?;
        return (kind == "go").then_some(Header::Klog(file));
    }
    let level = third.strip_prefix('[')?.split_once("][")?.0;
    let is_level = ["DEBUG", "INFO", "WARNING", "ERROR", "FATAL", "PANIC"].contains(&level);
    let is_felixs = fourth.is_some_and(|it| it.starts_with("felix/"));
    (is_level && is_felixs).then_some(Header::Felix)
}

/// Whether a line belongs to the entry above it: what a program said is told indented, the end of it alone.
fn goes_on(line: &str) -> bool {
    line.starts_with(['\t', ' ', ')', '>'])
        || line.starts_with("Error occurred at line")
        || line.starts_with("Try `")
}

/// A line without what a container's runtime or `kubectl logs --prefix` puts in front.
fn without_runtime(line: &str) -> Cow<'_, str> {
    if line.starts_with("{\"log\":\"") {
        let said = serde_json::from_str::<serde_json::Value>(line);
        let said = said
            .ok()
            .and_then(|it| Some(it.get("log")?.as_str()?.to_owned()));
        return said.map_or(Cow::Borrowed(line), |it| {
            Cow::Owned(it.trim_end_matches('\n').to_owned())
        });
    }
    let line = match line.split_once("] ") {
        Some((pod, rest)) if pod.starts_with("[pod/") => rest,
        _ => line,
    };
    if let Some((front, said)) = line.split_once("]: ")
        && is_journals(front)
    {
        return Cow::Borrowed(said);
    }
    // `kubectl logs --timestamps`, and the kubelet's files, which also say where it was written.
    let Some((_, rest)) = line.split_once(' ').filter(|(time, _)| is_time(time)) else {
        return Cow::Borrowed(line);
    };
    let parts: Vec<&str> = rest.splitn(3, ' ').collect();
    Cow::Borrowed(match parts.as_slice() {
        ["stdout" | "stderr", "F" | "P", said] => said,
        _ => rest,
    })
}

/// Whether systemd's journal puts that in front of a line, up to the process: `Nov 02 23:38:04 node-1 kube-proxy[6315`.
fn is_journals(front: &str) -> bool {
    let [month, day, time, _host, unit] = *front.split_whitespace().collect::<Vec<_>>().as_slice()
    else {
        return false;
    };
    let process = unit.rsplit_once('[').map(|(_, process)| process);
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit());
    month.len() == 3
        && is_number(day)
        && time.split(':').filter(|it| is_number(it)).count() == 3
        && process.is_some_and(is_number)
}

/// Whether a word is a moment as RFC 3339 has it.
fn is_time(word: &str) -> bool {
    let digits = |at: std::ops::Range<usize>| {
        word.get(at)
            .is_some_and(|it| it.bytes().all(|b| b.is_ascii_digit()))
    };
    digits(0..4)
        && digits(5..7)
        && digits(8..10)
        && word.get(10..11) == Some("T")
        && word.len() >= 20
}

/// Whether an entry is a warning, or worse.
fn complains(entry: &str) -> bool {
    let first = entry.split_whitespace();
    let klog = entry.starts_with(['W', 'E', 'F']);
    let felix = ["[WARNING]", "[ERROR]", "[FATAL]", "[PANIC]"];
    klog || first
        .take(3)
        .any(|word| felix.iter().any(|it| word.starts_with(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTORE: &str = "E0610 07:32:16.910840       1 proxier.go:1564] \"Failed to execute iptables-restore\" err=<\n\
        \texit status 2: iptables-restore v1.8.9 (legacy): Couldn't load target `KUBE-SVC-A'\n \
        > ipFamily=\"IPv4\"\n";

    #[test]
    fn an_entry_has_the_lines_that_belong_to_it_and_no_dump_behind_it() {
        let (logs, rest) = read(&format!(
            "{RESTORE}I0610 07:32:18.0 1 server.go:9] next\n*nat\nCOMMIT\n"
        ));
        let [log] = logs.as_slice() else {
            panic!("{logs:?}")
        };
        assert_eq!(log.agent, AgentName::KubeProxy);
        assert_eq!(log.entries.len(), 2);
        assert!(
            log.entries[0].contains("Couldn't load target")
                && log.entries[0].ends_with("ipFamily=\"IPv4\"")
        );
        assert_eq!(rest, "*nat\nCOMMIT\n");
    }

    #[test]
    fn what_a_runtime_puts_in_front_is_no_part_of_a_log() {
        for front in [
            "2025-06-10T07:32:16.910Z stderr F ",
            "2025-06-10T07:32:16.910840123Z ",
            "[pod/kube-proxy-x/kube-proxy] ",
            "Nov 02 23:38:04 node-1 kube-proxy[6315]: ",
        ] {
            let lines = RESTORE.lines().map(|line| format!("{front}{line}\n"));
            let text: String = lines.collect();
            assert_eq!(read(&text).0, read(RESTORE).0, "{front}");
        }
        let docker = RESTORE.lines().map(|line| {
            let log = serde_json::json!({ "log": format!("{line}\n"), "stream": "stderr" });
            // Docker writes this member first.
            log.to_string() + "\n"
        });
        assert_eq!(read(&docker.collect::<String>()).0, read(RESTORE).0);
    }

    #[test]
    fn felixs_lines_are_its_and_klogs_are_kube_proxys_where_it_says_so() {
        let felix = "2025-06-10 10:00:00.000 [WARNING][53] felix/table.go 7: Detected out-of-sync inserts\n";
        assert_eq!(read(felix).0[0].agent, AgentName::Felix);
        let kubelet = "I0610 07:32:18.449102       1 kubelet.go:828] \"Starting\"\n";
        assert_eq!(read(kubelet), (Vec::new(), kubelet.to_owned()));
        let confd = "2025-06-10 10:00:00.000 [INFO][53] confd/client.go 7: x\n";
        assert!(read(confd).0.is_empty());
    }
}
