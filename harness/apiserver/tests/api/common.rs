//! A server on a free loopback port, for tests that speak to it as clients do.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use chainbreak_apiserver::{Server, ServerConfig};
use tokio::task::JoinHandle;

/// A server whose connections can be cut and taken again.
pub(crate) struct Api {
    /// The server.
    pub(crate) server: Arc<Server>,
    /// Where it listens.
    pub(crate) at: SocketAddr,
    /// Kept, so that nobody else gets the port between two servings.
    listener: TcpListener,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Api {
    /// Starts with this many changes remembered.
    pub(crate) fn start(watch_window: usize) -> Self {
        let mut config = ServerConfig::new(Arc::new(jiff::Timestamp::now));
        config.watch_window = watch_window;
        let server = Server::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let at = listener
            .local_addr()
            .expect("a bound listener has an address");
        let serving = serve(&server, &listener);
        Self {
            server,
            at,
            listener,
            serving,
        }
    }

    /// Closes every connection and listens again at the same place.
    pub(crate) async fn cut(&mut self) {
        self.serving.abort();
        let ended = (&mut self.serving).await;
        assert!(
            ended.is_err_and(|error| error.is_cancelled()),
            "the server ends only when told"
        );
        self.serving = serve(&self.server, &self.listener);
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.at)
    }
}

fn serve(server: &Arc<Server>, listener: &TcpListener) -> JoinHandle<std::io::Result<()>> {
    let server = Arc::clone(server);
    let listener = listener.try_clone().expect("a listener can be shared");
    tokio::spawn(async move { server.serve(listener).await })
}

impl Drop for Api {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
