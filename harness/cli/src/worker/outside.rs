//! The worker of a case whose cluster is real: no world is made.

use std::process::ExitCode;

use anyhow::Context;
use chainbreak_engine::backend::Ground;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::watch,
};

use super::{Order, STOP, runtime, work};

/// Runs a case whose cluster is elsewhere, as the first line of standard input orders.
pub(crate) fn outside() -> anyhow::Result<ExitCode> {
    chainbreak_lab::worker::close_inherited()?;
    let runtime = runtime()?;
    runtime.block_on(async {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let first = lines
            .next_line()
            .await?
            .context("no order on standard input")?;
        let order: Order = serde_json::from_str(&first).context("could not read the order")?;
        let (stop, stopped) = watch::channel(false);
        let listening = tokio::spawn(async move {
            // The end of the input is an order too: nobody but this process can take the cluster down.
            while let Ok(Some(line)) = lines.next_line().await
                && line != STOP
            {}
            stop.send_replace(true);
        });
        let ground = order.backend.factory().ground();
        anyhow::ensure!(ground == Ground::Real, "the lab's worlds are not elsewhere");
        work(&order, stopped).await?;
        listening.abort();
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
