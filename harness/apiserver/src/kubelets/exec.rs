//! `pods/exec` over a WebSocket, as kubectl asks for it from 1.31 on (`v5.channel.k8s.io`, and `v4.channel.k8s.io`, which has no way to
//! say that the input has ended): the first byte of each message says which stream it is of.

mod terminal;

use std::{io, process::ExitStatus, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{SinkExt, StreamExt, future::BoxFuture, stream::SplitStream};
use http_body_util::{BodyExt, Empty};
use hyper::{
    Response, StatusCode,
    header::{
        CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
    },
    http::request::Parts,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    process::Child,
    sync::mpsc,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message, Utf8Bytes,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};
use tracing::debug;

use self::terminal::Terminal;
use super::{ContainerId, Kubelets};
use crate::{
    error::ApiError,
    object::encode,
    query::Query,
    server::{Body, header},
};

/// Where a connection finds what is to be done once it speaks another protocol.
#[derive(Debug, Clone)]
pub(crate) struct Later(pub(crate) mpsc::UnboundedSender<BoxFuture<'static, ()>>);

const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
/// How the command ended, as a Status.
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// The stream whose number follows has ended.
const CLOSE: u8 = 255;

/// How much of a stream is in one message at most.
const CHUNK: usize = 32 * 1024;
/// What a command has left in the background may hold its streams open for so long after its end.
const LAST_WORDS: Duration = Duration::from_secs(1);

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Which command, and which of its streams.
#[derive(Debug)]
struct Asked {
    argv: Vec<String>,
    stdin: bool,
    tty: bool,
}

pub(super) fn answer(
    kubelets: &Arc<dyn Kubelets>,
    of: ContainerId,
    mut head: Parts,
    query: &Query,
) -> Result<Response<Body>, ApiError> {
    let asked = Asked {
        argv: query.all("command").to_vec(),
        stdin: query.flag("stdin"),
        tty: query.flag("tty"),
    };
    if asked.argv.is_empty() {
        let none = "you must specify at least one command for the container";
        return Err(ApiError::BadRequest(none.to_owned()));
    }
    let offered = header(&head.headers, &SEC_WEBSOCKET_PROTOCOL);
    let protocol = PROTOCOLS
        .into_iter()
        .find(|known| offered.split(',').any(|it| it.trim() == *known));
    let key = head.headers.get(&SEC_WEBSOCKET_KEY);
    let upgrade = head.extensions.remove::<OnUpgrade>();
    let later = head.extensions.remove::<Later>();
    let (Some(protocol), Some(key), Some(upgrade), Some(Later(later))) =
        (protocol, key, upgrade, later)
    else {
        return Err(ApiError::NotServed(format!(
            "exec is served over WebSockets only, which kubectl uses from 1.31 on: `chainbreak shell pod/{}/{} -- COMMAND` runs in the pod",
            of.namespace, of.pod
        )));
    };
    let accepted = derive_accept_key(key.as_bytes());
    let kubelets = Arc::clone(kubelets);
    let session = async move {
        match upgrade.await {
            Ok(upgraded) => {
                let io = TokioIo::new(upgraded);
                let socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
                run(socket, kubelets.as_ref(), of, asked).await;
            }
            Err(error) => debug!(%error, "the connection of a command ended"),
        }
    };
    // Its connection waits for it.
    drop(later.send(Box::pin(session)));
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_ACCEPT, accepted)
        .header(SEC_WEBSOCKET_PROTOCOL, protocol)
        .body(Empty::new().boxed_unsync());
    Ok(response.expect("status and headers are valid"))
}

/// Runs the command until it ends, or the client goes.
async fn run(socket: Socket, kubelets: &dyn Kubelets, of: ContainerId, asked: Asked) {
    let (mut sink, mut stream) = socket.split();
    let (say, mut said) = mpsc::channel(4);
    let tell = async move {
        while let Some(message) = said.recv().await {
            sink.send(message).await?;
        }
        Ok::<_, tungstenite::Error>(())
    };
    let work = async move {
        let status = match command(kubelets, of, asked, &mut stream, &say).await {
            Ok(status) => ended(status),
            Err(error) => {
                json!({ "status": "Failure", "reason": "InternalError", "message": error.to_string() })
            }
        };
        // Without a code kubectl takes it for an accident.
        let close = CloseFrame {
            code: CloseCode::Normal,
            reason: Utf8Bytes::default(),
        };
        for last in [
            message(ERROR, &encode(&status)),
            Message::Close(Some(close)),
        ] {
            // A client that is gone wants to hear nothing.
            drop(say.send(last).await);
        }
        drop(say);
        // Closed with something unread, a connection takes along what the client has not read.
        let rest = async { while let Some(Ok(_)) = stream.next().await {} };
        drop(timeout(LAST_WORDS, rest).await);
    };
    let ((), told) = tokio::join!(work, tell);
    if let Err(error) = told {
        debug!(%error, "the connection of a command ended");
    }
}

async fn command(
    kubelets: &dyn Kubelets,
    of: ContainerId,
    asked: Asked,
    stream: &mut SplitStream<Socket>,
    say: &mpsc::Sender<Message>,
) -> io::Result<ExitStatus> {
    let Asked { argv, stdin, tty } = asked;
    let program = argv.first().cloned().unwrap_or_default();
    let started = if tty {
        let (terminal, prepare) = Terminal::open()?;
        let argv = terminal::controlled(argv);
        let child = kubelets.start(&of, argv, prepare).await;
        child.map(|child| (child, Some(terminal)))
    } else {
        let child = kubelets.start(&of, argv, Box::new(|_| ())).await;
        child.map(|child| (child, None))
    };
    let (mut child, terminal) = started.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("could not start {program:?}: {error}"),
        )
    })?;
    let streams = match terminal {
        Some(terminal) => terminal.split()?,
        None => Streams::of(&mut child),
    };
    let outputs = async {
        let [stdout, stderr] = streams.output;
        tokio::join!(pump(stdout, STDOUT, say), pump(stderr, STDERR, say));
    };
    let work = async {
        let mut outputs = std::pin::pin!(outputs);
        tokio::select! {
            () = &mut outputs => child.wait().await,
            ended = child.wait() => {
                // Late words are lost: whoever holds the stream may never end.
                drop(timeout(LAST_WORDS, outputs).await);
                ended
            }
        }
    };
    let input = streams.input.filter(|_| stdin);
    tokio::select! {
        ended = work => ended,
        () = listen(stream, input, streams.resize) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

type Input = Box<dyn AsyncWrite + Send + Unpin>;
type Output = Box<dyn AsyncRead + Send + Unpin>;
/// Takes width and height, in characters.
type Resize = Box<dyn Fn(u16, u16) + Send>;

/// What leads to a command and from it.
struct Streams {
    /// Of a terminal.
    resize: Option<Resize>,
    input: Option<Input>,
    /// Standard output and error.
    output: [Option<Output>; 2],
}

impl Streams {
    fn of(child: &mut Child) -> Self {
        let stdout = child.stdout.take().map(|it| Box::new(it) as Output);
        let stderr = child.stderr.take().map(|it| Box::new(it) as Output);
        Self {
            resize: None,
            input: child.stdin.take().map(|it| Box::new(it) as Input),
            output: [stdout, stderr],
        }
    }
}

/// Tells what comes on a stream, until it ends or nobody listens.
async fn pump(from: Option<Output>, channel: u8, say: &mpsc::Sender<Message>) {
    let Some(mut from) = from else {
        return;
    };
    let mut buffer = vec![0; CHUNK];
    // A terminal whose other side is closed fails to be read.
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if say.send(message(channel, &buffer[..count])).await.is_err() {
            return;
        }
    }
}

/// Takes what the client says, until it says no more.
async fn listen(
    stream: &mut SplitStream<Socket>,
    mut input: Option<Input>,
    resize: Option<Resize>,
) {
    while let Some(Ok(message)) = stream.next().await {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => Bytes::from(text),
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        match bytes.split_first() {
            Some((&STDIN, data)) => {
                // A command that has closed its input reads no more of it.
                if let Some(into) = &mut input
                    && into.write_all(data).await.is_err()
                {
                    input = None;
                }
            }
            Some((&CLOSE, [STDIN])) => input = None,
            Some((&RESIZE, size)) => {
                let size: Value = serde_json::from_slice(size).unwrap_or_default();
                let of = |side: &str| u16::try_from(size[side].as_u64()?).ok();
                if let (Some(resize), Some(width), Some(height)) =
                    (&resize, of("Width"), of("Height"))
                {
                    resize(width, height);
                }
            }
            _ => {}
        }
    }
}

fn message(channel: u8, data: &[u8]) -> Message {
    Message::Binary([&[channel], data].concat().into())
}

/// The Status of a command that ended. A signal counts as a shell counts it.
fn ended(status: ExitStatus) -> Value {
    use std::os::unix::process::ExitStatusExt;

    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    if code == 0 {
        return json!({ "status": "Success" });
    }
    json!({
        "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with exit code {code}"),
        "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
    })
}
