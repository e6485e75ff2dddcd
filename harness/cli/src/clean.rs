//! `chainbreak clean`: sets back what a killed run has changed on the machine; ends worlds whose run is gone, and kept ones that the
//! command line names; has backends remove what no run uses of their clusters; removes what runs left
//! unfinished on disk; names all of it. A kept world that nobody named is only told of:
//! somebody may be looking into it. Worlds whose run goes on, and reports, are not touched.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use chainbreak_engine::backend::BackendFactory;
use chainbreak_lab::{
    ebpf, machine,
    registry::{Left, left},
    remove_left_cgroups,
};
use nix::sys::signal::Signal;
use tokio::time::{interval, timeout};

use crate::{args, cases, registry};

/// Longer than the 15 s that a run may take to end its world in order; its reports come after that.
const GRACE: Duration = Duration::from_secs(30);
/// Distance of two looks at a world that ends.
const LOOK: Duration = Duration::from_millis(20);

/// Succeeds when nothing is left but kept worlds that were not named.
pub(crate) async fn clean(args: &args::Clean) -> anyhow::Result<ExitCode> {
    let worlds = left();
    let undone = machine::undo_left()?;
    for text in &undone {
        crate::say(&format!("{text}\n"))?;
    }
    let programs = ebpf::left_by_killed()?;
    for text in &programs {
        crate::say(&format!(
            "eBPF objects since the begin of a run that was killed: {text}\n"
        ))?;
    }
    let unknown = |id: &&i32| worlds.iter().all(|world| world.worker != **id);
    if let Some(id) = args.worlds.iter().find(unknown) {
        let words = format!("no kept world of process {id}: `chainbreak clean` names all");
        return Err(cases::invalid(words));
    }
    let mut found = !(worlds.is_empty() && undone.is_empty() && programs.is_empty());
    for world in worlds {
        let named = args.worlds.contains(&world.worker);
        let said = match &world.run {
            Some(run) if !named => told(world.worker, run.id()),
            _ => end(world).await?,
        };
        crate::say(&said)?;
    }
    for group in remove_left_cgroups() {
        found = true;
        crate::say(&format!("removed {}\n", group.display()))?;
    }
    found |= of_backends(args).await?;
    for link in unfinished(&args.out)? {
        found = true;
        fs::remove_file(&link).with_context(|| format!("could not remove {}", link.display()))?;
        crate::say(&format!("removed {}\n", link.display()))?;
    }
    if !found {
        crate::say("nothing is left behind: a world ends with its run, whatever ends the run\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What killed runs left of clusters, and in them. Whether there was anything.
async fn of_backends(args: &args::Clean) -> anyhow::Result<bool> {
    let mut found = false;
    let mut said = Ok(());
    for cleaning in registry::all().filter_map(BackendFactory::cleaning) {
        // What is to be removed is, also when nobody reads of it any more.
        let mut say = |text: String| {
            if said.is_ok() {
                said = crate::say(&format!("{text}\n"));
            }
        };
        found |= cleaning.clean(&args.of_backends.0, &mut say).await?;
    }
    said?;
    Ok(found)
}

fn told(worker: i32, run: i32) -> String {
    format!(
        "the world of process {worker} is kept by the run of process {run}: \
         `chainbreak clean {worker}` ends both\n"
    )
}

/// A kept world by asking its run, which still writes its reports; another by force.
async fn end(world: Left) -> anyhow::Result<String> {
    let Left {
        worker,
        stage_one,
        run,
    } = world;
    let (whom, signal, words) = match &run {
        Some(run) => (
            run,
            Signal::SIGTERM,
            format!("kept by the run of process {}", run.id()),
        ),
        None => (&stage_one, Signal::SIGKILL, "whose run is gone".to_owned()),
    };
    let sent = whom.signal(signal);
    sent.with_context(|| format!("could not end the world of process {worker}"))?;
    let gone = async {
        let mut ticks = interval(LOOK);
        while stage_one.lives() {
            ticks.tick().await;
        }
    };
    let waited = timeout(GRACE, gone).await;
    waited.with_context(|| format!("the world of process {worker} does not end"))?;
    Ok(format!("ended the world of process {worker}, {words}\n"))
}

/// Links that were to become `latest`, of runs that are gone.
fn unfinished(out: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(out) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("could not read {}", out.display()))?,
    };
    let mut links = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let run = name.and_then(|name| name.strip_prefix(".latest-"));
        if run.is_some_and(|run| !Path::new("/proc").join(run).exists()) {
            links.push(path);
        }
    }
    Ok(links)
}
