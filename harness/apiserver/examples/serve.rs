//! Serves an API on loopback for an agent that is tried by hand, until standard input ends. Then tells
//! every request: who asked for what, how it was answered, how often.
//!
//! ```sh
//! cargo run -p chainbreak-apiserver --example serve -- 127.0.0.1:8080
//! ```

use std::{
    io::{Write, stderr, stdin, stdout},
    net::TcpListener,
    sync::Arc,
};

use chainbreak_apiserver::{Server, ServerConfig};

type Trouble = Box<dyn std::error::Error>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Trouble> {
    let at = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let listener = TcpListener::bind(at)?;
    let mut config = ServerConfig::new(Arc::new(jiff::Timestamp::now));
    config.advertised = Some(listener.local_addr()?);
    config.on_unknown = Some(Arc::new(|asked| {
        // Nobody is told of a standard error that is gone.
        drop(writeln!(stderr(), "unknown: {} {asked}", asked.user_agent));
    }));
    let server = Server::new(config);
    let ends = tokio::task::spawn_blocking(|| std::io::copy(&mut stdin(), &mut std::io::sink()));
    tokio::select! {
        served = server.serve(listener) => served?,
        ended = ends => drop(ended??),
    }
    for (asked, count) in server.asked() {
        writeln!(stdout(), "{count:>6} {asked} {}", asked.user_agent)?;
    }
    Ok(())
}
