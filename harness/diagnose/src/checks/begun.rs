//! Whether Felix has got to work since it began.

use chainbreak_model::{case::Symptom, names::AgentName};

use super::{Context, logged::shown};
use crate::Finding;

/// Felix v3.25 to v3.32, `daemon.go` and `int_dataplane.go`, at level Info, which is the default. The first is printed where the environment asks
/// for more than errors before the configuration is known; the second is what a real one says first.
const BEGINS: [&str; 2] = ["Felix starting up", "Successfully loaded configuration"];
const HAS_BEGUN: &str = "Completed first update to dataplane";

/// The last of these entries of Felix's log by which it begins, or has brought everything in line for the first time since, and whether it has.
pub fn last_beginning<'a>(
    entries: impl DoubleEndedIterator<Item = &'a str>,
) -> Option<(&'a str, bool)> {
    entries.rev().find_map(|entry| {
        let has_begun = entry.contains(HAS_BEGUN);
        let begins = || BEGINS.iter().any(|it| entry.contains(it));
        (has_begun || begins()).then_some((entry, has_begun))
    })
}

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(log) = context.evidence.log(AgentName::Felix) else {
        return Vec::new();
    };
    let mut entries = log.entries.iter().map(String::as_str);
    let Some((began, false)) = last_beginning(entries.clone()) else {
        return Vec::new();
    };
    let what = "Felix has begun and brought nothing in line since: it waits for what the API holds, or still loads its programs";
    let last = entries.next_back().filter(|it| *it != began);
    vec![
        Finding::odd(Symptom::FelixWaits, what)
            .on([began].into_iter().chain(last).map(shown))
            .mended_by("where it asks by the Service `kubernetes`, and that leads nowhere here, give it the API's own address (ConfigMap kubernetes-services-endpoint)"),
    ]
}

#[cfg(test)]
mod tests {
    use crate::checks::tests::found;

    const BEGINS: &str = "2026-11-29 15:45:09.680 [INFO][2] felix/daemon.go 146: Felix starting up version=\"v3.28.1\"\n";
    const LOADS: &str =
        "2026-11-29 15:45:09.681 [INFO][2] felix/daemon.go 173: Loading configuration...\n";
    const LOADED: &str = "2026-11-29 15:45:09.690 [INFO][106] felix/daemon.go 362: Successfully loaded configuration. GOMAXPROCS=2 builddate=\"\" version=\"v3.32.1\"\n";
    const HAS_BEGUN: &str = "2026-11-29 15:45:10.221 [INFO][2] felix/int_dataplane.go 1857: Completed first update to dataplane. secsSinceStart=0.03\n";

    #[test]
    fn a_felix_that_began_again_and_got_nowhere_is_found() {
        let log = [BEGINS, LOADS, HAS_BEGUN, BEGINS, LOADS].concat();
        let [(kind, text)] = found(&[&log]).try_into().unwrap();
        assert_eq!(kind, "felix-waits");
        assert!(text.ends_with("Loading configuration..."), "{text}");
        assert_eq!(found(&[LOADED]).len(), 1);
        for fine in [
            [BEGINS, LOADS, HAS_BEGUN].concat(),
            [LOADED, HAS_BEGUN].concat(),
            LOADS.to_owned(),
        ] {
            assert!(found(&[&fine]).is_empty(), "{:?}", found(&[&fine]));
        }
    }
}
