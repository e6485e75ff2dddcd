//! Logs that hang, lag and lie, with time that tests move.

use chainbreak_engine::logbook::{LogItem, Logbook};
use chainbreak_model::names::{AgentName, NodeName};
use futures::{FutureExt, stream};
use tokio::time::advance;

use super::*;

const AGENT: AgentName = AgentName::KubeProxy;
const ONE: &str = "2026-01-01T00:00:01Z one";
const TWO: &str = "2026-01-01T00:00:02Z two";

fn log(format: LogFormat) -> (Logbook, Log) {
    let logbook = Logbook::default();
    let writer = logbook.writer(AGENT, &NodeName::from("n1"));
    let since = "2026-01-01T00:00:00Z".parse().unwrap();
    (logbook, Log::new(since, format, writer))
}

/// What the logbook has so far.
fn told(logbook: &Logbook) -> Vec<LogItem> {
    let mut items = logbook.read(AGENT, &NodeName::from("n1"));
    std::iter::from_fn(|| items.next().now_or_never()??.ok()).collect()
}

fn entry(text: &str) -> LogItem {
    LogItem::Entry(text.to_owned())
}

/// Those lines, and then nothing more.
fn hangs(after: &[&str]) -> Lines {
    let lines: Vec<_> = after.iter().map(|&line| Ok(line.to_owned())).collect();
    stream::iter(lines).chain(stream::pending()).boxed()
}

fn says(line: &str) -> Newest {
    let said = Ok(line.to_owned());
    async move { said }.boxed()
}

fn container() -> Container {
    Container::numbered("a", 0)
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_hangs_is_broken_since_it_was_read_to_the_newest_line() {
    let (logbook, mut log) = log(LogFormat::Lines);
    advance(Duration::from_secs(7)).await;
    let good = Instant::now();
    let newest = || says(if Instant::now() == good { ONE } else { TWO });
    let read = log.read(container(), hangs(&[ONE]), newest).await;
    log.ended(read);
    let broken = LogItem::Broken {
        since: good.into_std(),
        why: "what it says last does not come".to_owned(),
    };
    assert_eq!(told(&logbook), [entry("one"), broken]);
    // The same container is opened again, and has it all.
    let lines = stream::iter([Ok(ONE.to_owned()), Ok(TWO.to_owned())]).boxed();
    let read = log.read(container(), lines, || says(TWO)).await;
    log.ended(read);
    let resumed = LogItem::Resumed { complete: true };
    assert_eq!(told(&logbook).split_off(2), [resumed, entry("two")]);
}

#[tokio::test(start_paused = true)]
async fn an_api_that_hangs_is_no_silence() {
    let (logbook, mut log) = log(LogFormat::Lines);
    let begun = Instant::now();
    let newest = || {
        if Instant::now() == begun {
            says("")
        } else {
            futures::future::pending().boxed()
        }
    };
    let read = log.read(container(), hangs(&[]), newest).await;
    log.ended(read);
    let broken = LogItem::Broken {
        since: begun.into_std(),
        why: "the API did not answer within 1s".to_owned(),
    };
    assert_eq!(told(&logbook), [broken]);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_says_nothing_is_read_all_the_same() {
    let (logbook, mut log) = log(LogFormat::Lines);
    let reading = log.read(container(), hangs(&[]), || says(""));
    let hour = Duration::from_secs(3600);
    assert!(timeout(hour, reading).await.is_err(), "it goes on");
    let told = told(&logbook);
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_moment_waits_for_what_was_written_before_it_and_no_longer() {
    let (logbook, mut log) = log(LogFormat::Klog);
    let begun = Instant::now();
    let error = "2026-01-01T00:00:03Z E0101 00:00:03.000000       1 proxier.go:1] lost";
    // It comes a little late.
    let late = async move {
        sleep_until(begun + Duration::from_millis(350)).await;
        Ok::<_, String>(error.to_owned())
    };
    let lines = stream::once(late).chain(stream::pending()).boxed();
    let moment = async {
        sleep_until(begun + Duration::from_millis(300)).await;
        let moment = Instant::now().into_std();
        let node = NodeName::from("n1");
        logbook.read_past(AGENT, &node, moment).await;
    };
    let newest = || says(if Instant::now() == begun { "" } else { error });
    tokio::select! {
        ended = log.read(container(), lines, newest) => panic!("{ended:?}"),
        () = moment => {}
    }
    let (_, text) = error.split_once(' ').unwrap();
    assert_eq!(told(&logbook), [entry(text)], "the whole entry is there");
    assert!(begun.elapsed() < CHECK, "it was asked for at once");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_gone_ends_its_log_although_nobody_can_ask_for_its_newest_line() {
    let (logbook, mut log) = log(LogFormat::Lines);
    let end = Instant::now() + Duration::from_secs(3);
    let ends = stream::once(sleep_until(end)).filter_map(async |()| None::<Result<String, String>>);
    let lines = stream::iter([Ok(ONE.to_owned())]).chain(ends).boxed();
    let gone = || async { Err::<String, _>("pods \"kube-proxy-x\" not found".to_owned()) }.boxed();
    let read = log.read(container(), lines, gone).await;
    log.ended(read);
    log.absent(Instant::now());
    assert_eq!(told(&logbook), [entry("one")]);
}

#[tokio::test]
async fn what_is_read_again_is_written_once_and_what_is_older_not_at_all() {
    let (logbook, mut log) = log(LogFormat::Lines);
    let lines = [
        "2025-12-31T23:59:59.5Z older than the case",
        "2026-01-01T00:00:01.5Z one",
        "2026-01-01T00:00:01.500000001Z two",
        "2026-01-01T00:00:01.5Z one",
        "2026-01-01T00:00:01.9Z three",
    ];
    let lines = stream::iter(lines.map(|line| Ok(line.to_owned()))).boxed();
    log.read(container(), lines, || says("")).await.unwrap();
    assert_eq!(told(&logbook), ["one", "two", "three"].map(entry));
    let since: Timestamp = "2026-01-01T00:00:01Z".parse().unwrap();
    assert_eq!(log.since(), since, "the API takes whole seconds");
}
