//! The worker of a case whose cluster is real: no world is made.

use std::process::ExitCode;

use anyhow::Context;
use chainbreak_engine::backend::Ground;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{Order, orders, runtime, work};

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
        let (mut orders, given) = orders();
        let listening = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                orders.take(&line);
            }
            // The end of the input is an order too: nobody but this process can take the cluster down.
            orders.stop();
        });
        let ground = order.backend.factory().ground();
        anyhow::ensure!(ground == Ground::Real, "the lab's worlds are not elsewhere");
        work(&order, given).await?;
        listening.abort();
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
