//! A process that may open no more files. A test binary of its own: the limit is the whole process'.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::Arc,
    time::Duration,
};

use chainbreak_apiserver::{Server, ServerConfig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[test]
fn a_server_without_a_file_for_one_more_connection_serves_it_when_another_has_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Connected by the kernel: nobody has accepted them yet.
    let connect = || {
        let stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
    };
    let mut streams: Vec<TcpStream> = (0..8).map(|_| connect()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let free = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, free.cast_unsigned().into(), hard).unwrap();
    let server = runtime.spawn(async move {
        let server = Server::new(ServerConfig::new(Arc::new(jiff::Timestamp::now)));
        Arc::clone(&server).serve(listener).await
    });
    assert!(std::fs::File::open("/dev/null").is_err(), "no file is left");
    streams.truncate(4);
    for mut stream in streams {
        stream.write_all(REQUEST).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(!server.is_finished());
}
