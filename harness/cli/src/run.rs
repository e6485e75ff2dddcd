//! `chainbreak run`: cases side by side, each in a worker of its own, and the reports of whatever
//! came of them, also when the run is interrupted.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use chainbreak_lab::{ebpf, machine, remove_left_cgroups};
use chainbreak_model::{
    case::Capabilities,
    plan::{Missing, Planned},
};
use chainbreak_report::{Ended, FORMAT, Header, Run, exit_code, term::Overview};
use indexmap::IndexMap;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::{
    again,
    args::{self, Format},
    backend_choice::BackendChoice,
    bundle, cases,
    course::Course,
    github,
    images::Absent,
    interrupted::interrupted,
    live::Live,
    provide,
    record::{Record, Recorded},
    reports,
    turns::Turns,
};

/// A run did not come to its end.
pub(crate) const INTERRUPTED: u8 = 11;
/// So long the kernel may take to end eBPF programs of worlds that are over: half a minute was seen.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// Runs, records, reports.
pub(crate) async fn run(args: args::Run) -> anyhow::Result<ExitCode> {
    for text in machine::undo_left()? {
        crate::note(&format!("of a run that was killed: {text}"));
    }
    for text in ebpf::left_by_killed()? {
        crate::note(&format!("since the begin of a run that was killed: {text}"));
    }
    let backend = BackendChoice::of(&args.selection)
        .with_host_changes(args.allow_host_changes)
        .with_ebpf(args.allow_ebpf);
    let capabilities = backend.demanded(backend.survey().await);
    let bundle = bundle::Opened::to_run(&args)?;
    let planned = cases::planned_of(
        &args.selection,
        bundle.as_ref(),
        &capabilities,
        Absent::Pulled,
    )
    .await?;
    let unmet = unmet(&planned, &capabilities, &args.require)?;
    // More parts than cases: it is nobody's fault that some are empty.
    let no_part = args.selection.shard.filter(|_| planned.is_empty());
    let before = backend.has_ebpf().then(ebpf::Before::look).transpose()?;
    let recorded = perform(&args, &backend, planned).await?;
    drop(remove_left_cgroups());
    let print = args.format == Format::Human;
    let reported = reported(&recorded, print);
    if let Ok(overview) = &reported {
        if print {
            crate::tell(&again::told(&args, &recorded.folder, overview.cases()))?;
        }
        github::tell(&recorded.run, overview.cases(), &again::command(&args));
    }
    if let (Ok(_), Some(bundle)) = (&reported, &bundle)
        && print
        && args.repetition.times() == 1
    {
        crate::tell(&bundle.compared(&recorded.run))?;
    }
    if let Some(before) = before {
        programs_end(before).await?;
    }
    let overview = match reported {
        Ok(overview) => overview,
        Err(code) => return Ok(code),
    };
    if let Some(unmet) = &unmet {
        crate::complain(unmet);
    }
    if let Some(shard) = no_part {
        crate::note(&format!("part {shard} of the cases is empty"));
        return Ok(ExitCode::SUCCESS);
    }
    let code = exit_code(overview.cases());
    Ok(ExitCode::from(if unmet.is_some() && code != INTERRUPTED {
        10
    } else {
        code
    }))
}

/// Waits for what came of eBPF with the run, and says what stays. Reports are there: a Ctrl-C ends the wait, and the next run says it.
async fn programs_end(before: ebpf::Before) -> anyhow::Result<()> {
    if let Some(came) = before.came()? {
        crate::note(&format!("waiting for the end of eBPF objects: {came}"));
    }
    let left = tokio::select! {
        left = before.left(ENDED_WITHIN) => left?,
        pressed = tokio::signal::ctrl_c() => return Ok(pressed?),
    };
    if let Some(left) = left {
        crate::complain(&format!(
            "eBPF objects that were not there before the run, and still are: {left}"
        ));
    }
    Ok(())
}

/// Runs what is planned, to the end, to a signal, or until nothing can be written.
pub(crate) async fn perform(
    args: &args::Run,
    backend: &BackendChoice,
    planned: Vec<Planned>,
) -> anyhow::Result<Recorded> {
    let planned = provide::provide(planned).await?;
    let folder = folder(&args.out)?;
    let header = Header {
        format: FORMAT,
        tool: format!("chainbreak {}", env!("CARGO_PKG_VERSION")),
        seed: args.selection.seed,
        started: Timestamp::now(),
        host: host(),
    };
    let silent = args.format == Format::Jsonl;
    let record = Record::begin(&folder, header, silent).await?;
    let (stop, stopped) = watch::channel(false);
    let (give_up, given_up) = watch::channel(false);
    let interrupted = tokio::spawn(interrupted(stop, give_up, record.failed()));
    let live = Live::new((!silent).then(|| args.told.amount()));
    let course = Course {
        args,
        backend,
        record: &record,
        live: &live,
        turns: Turns::new(backend.factory(), args.jobs),
        stopped: stopped.clone(),
        given_up,
    };
    let ran = course.run(planned).await;
    live.end();
    let ended = if *stopped.borrow() {
        Ended::Interrupted(interrupted.await.unwrap_or_else(|_| "a signal".to_owned()))
    } else {
        Ended::Complete
    };
    // What is there is whole, also where something went wrong.
    let recorded = record.end(ended).await?;
    latest(&args.out, &folder);
    ran.map(|()| recorded)
}

/// Writes the reports of a run; with `print` also to standard output. Where it could not be written, or they cannot, its verdicts so far
/// are told, and the code is what the program ends with.
pub(crate) fn reported(recorded: &Recorded, print: bool) -> Result<Overview, ExitCode> {
    let Recorded { run, folder, .. } = recorded;
    let why = match &recorded.unwritten {
        Some(why) => format!("{why}: the run was ended, and has no reports"),
        None => match reports::write(run, folder, print) {
            Ok(overview) => return Ok(overview),
            Err(error) => format!(
                "could not write the reports in {}: {}",
                folder.display(),
                crate::in_full(&error)
            ),
        },
    };
    Err(without_reports(run, &why))
}

/// The verdicts so far, on standard error: whoever reads standard output may read it as the run's events.
fn without_reports(run: &Run, why: &str) -> ExitCode {
    let cases = run.cases.iter();
    let judged = cases.filter_map(|(id, case)| Some((id, case.verdict.as_ref()?)));
    let lines = judged.map(|(id, verdict)| format!("{id}: {}", verdict.case));
    lines.for_each(|line| crate::note(&line));
    crate::complain(&format!("{why}; above are the verdicts so far"));
    ExitCode::from(INTERRUPTED)
}

/// A new folder, named for the time, so that folders sort as runs were.
pub(crate) fn folder(out: &Path) -> anyhow::Result<PathBuf> {
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let cannot = |path: &Path, why: &std::io::Error| {
        cases::invalid(format!("could not make {}: {why}", path.display()))
    };
    for attempt in 1_u32.. {
        let name = if attempt == 1 {
            now.clone()
        } else {
            format!("{now}-{attempt}")
        };
        let folder = out.join(name);
        std::fs::create_dir_all(out).map_err(|why| cannot(out, &why))?;
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot(&folder, &error)),
        }
    }
    unreachable!("some number is free")
}

/// `latest` points to the newest run. Nothing depends on it: where it cannot be made, it is not.
pub(crate) fn latest(out: &Path, folder: &Path) {
    let (Some(name), link) = (folder.file_name(), out.join("latest")) else {
        return;
    };
    let fresh = out.join(format!(".latest-{}", std::process::id()));
    let made =
        std::os::unix::fs::symlink(name, &fresh).and_then(|()| std::fs::rename(&fresh, &link));
    if let Err(error) = made {
        // It is there where only the last step failed.
        drop(std::fs::remove_file(&fresh));
        crate::note(&format!(
            "no link to the newest run at {}: {error}",
            link.display()
        ));
    }
}

/// Facts about the machine that a reader of the reports wants.
fn host() -> IndexMap<String, String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = crate::pressure::processors();
    IndexMap::from([
        ("kernel".to_owned(), kernel.trim().to_owned()),
        ("cores".to_owned(), cores.to_string()),
    ])
}

/// The first case that is skipped for want of a required capability. A name that is nobody's is a
/// mistake of the command line.
fn unmet(
    planned: &[Planned],
    capabilities: &Capabilities,
    require: &[String],
) -> anyhow::Result<Option<String>> {
    let skipped = planned.iter().filter_map(|plan| match plan {
        Planned::Skip(skipped) => Some(skipped),
        Planned::Run(_) => None,
    });
    let missing: Vec<(&str, &Missing)> = skipped
        .flat_map(|skipped| {
            skipped
                .missing
                .iter()
                .map(|missing| (skipped.id.as_str(), missing))
        })
        .collect();
    for name in require {
        if let Some((id, missing)) = missing.iter().find(|(_, it)| it.capability == *name) {
            return Ok(Some(format!(
                "{name} is required, but {id} is skipped: {}",
                missing.reason
            )));
        }
        if !capabilities.0.contains_key(name) {
            let known: Vec<&str> = capabilities.0.keys().map(String::as_str).collect();
            let known = known.join(", ");
            return Err(cases::invalid(format!(
                "--require {name}: no such capability ({known})"
            )));
        }
    }
    Ok(None)
}
