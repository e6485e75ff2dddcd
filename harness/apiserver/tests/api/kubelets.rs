//! What pods' kubelets are asked: logs, and commands.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use chainbreak_apiserver::{ContainerId, Kubelets, Line, Prepare, Said, ServerConfig};
use futures::{FutureExt, SinkExt, StreamExt, future::BoxFuture, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use crate::common::{Api, Wire};

const SOON: Duration = Duration::from_secs(30);

/// Containers that have said `one`, say `two`, and have commands of the machine; asked about is what is remembered.
#[derive(Default)]
struct Known(Mutex<Vec<(ContainerId, bool)>>);

impl Kubelets for Known {
    fn said(&self, of: &ContainerId, previous: bool) -> Option<Said> {
        self.0
            .lock()
            .expect("nobody panics")
            .push((of.clone(), previous));
        let line = |text: &str| Line {
            at: Timestamp::UNIX_EPOCH,
            text: text.into(),
        };
        (!previous).then(|| Said {
            lines: vec![line("zero"), line("one")],
            more: stream::iter([line("two")]).boxed(),
        })
    }

    fn start(
        &self,
        _: &ContainerId,
        argv: Vec<String>,
        prepare: Prepare,
    ) -> BoxFuture<'static, io::Result<Child>> {
        let mut command = Command::new(&argv[0]);
        let piped = std::process::Stdio::piped;
        command
            .args(&argv[1..])
            .stdin(piped())
            .stdout(piped())
            .stderr(piped())
            .kill_on_drop(true);
        prepare(&mut command);
        async move { command.spawn() }.boxed()
    }
}

/// With a pod of two containers.
async fn api(kubelets: Option<Arc<Known>>) -> Api {
    let mut config = ServerConfig::new(Arc::new(Timestamp::now));
    config.kubelets = kubelets.map(|it| it as Arc<dyn Kubelets>);
    let api = Api::of(config);
    let container = |name: &str| json!({ "name": name, "image": "busybox" });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": { "containers": [container("main"), container("side")] },
    });
    let mut wire = Wire::to(api.at).await;
    let made = wire
        .send("POST", "/api/v1/namespaces/default/pods", &pod)
        .await;
    assert_eq!(made.code, 201, "{made:?}");
    api
}

async fn log(api: &Api, query: &str) -> (u16, String) {
    let path = format!("/api/v1/namespaces/default/pods/web/log?{query}");
    let mut wire = Wire::to(api.at).await;
    wire.text("GET", &path).await
}

#[tokio::test]
async fn a_log_is_what_was_said_and_followed_what_is_said() {
    let known = Arc::<Known>::default();
    let api = api(Some(Arc::clone(&known))).await;
    let said = log(&api, "container=side").await;
    assert_eq!(said, (200, "zero\none\n".to_owned()));
    let followed = log(&api, "container=side&follow=true&tailLines=1").await;
    assert_eq!(followed, (200, "one\ntwo\n".to_owned()));
    let cut = log(&api, "container=side&follow=true&limitBytes=7").await;
    assert_eq!(cut, (200, "zero\non".to_owned()));
    let of = ContainerId {
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        container: "side".to_owned(),
    };
    assert_eq!(known.0.lock().unwrap()[0], (of, false));
}

#[tokio::test]
async fn what_has_no_log_says_why() {
    let api = api(Some(Arc::default())).await;
    for (query, why) in [
        ("", "choose one of: [main side]"),
        ("container=none", "container none is not valid for pod web"),
        (
            "container=main&previous=true",
            "previous terminated container \\\"main\\\"",
        ),
        ("container=main&tailLines=x", "invalid tailLines"),
    ] {
        let (code, said) = log(&api, query).await;
        assert!(code == 400 && said.contains(why), "{query}: {code} {said}");
    }
}

#[tokio::test]
async fn without_kubelets_nobody_answers_for_pods() {
    let api = api(None).await;
    assert_eq!(log(&api, "container=main").await.0, 501);
}

/// Asks for a command as kubectl does.
async fn exec(api: &Api, query: &str) -> WebSocketStream<TcpStream> {
    let path = format!(
        "ws://{}/api/v1/namespaces/default/pods/web/exec?container=main&{query}",
        api.at
    );
    let mut request = path.into_client_request().expect("a URL");
    let protocols = "v5.channel.k8s.io, v4.channel.k8s.io".parse();
    request
        .headers_mut()
        .insert("sec-websocket-protocol", protocols.expect("a header"));
    let stream = TcpStream::connect(api.at)
        .await
        .expect("the server listens");
    let (socket, response) = client_async(request, stream).await.expect("a WebSocket");
    assert_eq!(
        response.headers()["sec-websocket-protocol"],
        "v5.channel.k8s.io"
    );
    socket
}

/// What comes on each stream until the end: output, errors, and how the command ended.
async fn heard(socket: &mut WebSocketStream<TcpStream>) -> (String, String, Value) {
    let mut streams: [Vec<u8>; 4] = Default::default();
    let all = async {
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Binary(bytes) = message {
                streams[usize::from(bytes[0])].extend_from_slice(&bytes[1..]);
            }
        }
    };
    timeout(SOON, all).await.expect("it ends");
    let [_, output, errors, status] = streams;
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (
        text(output),
        text(errors),
        serde_json::from_slice(&status).expect("a Status"),
    )
}

#[tokio::test]
async fn a_command_has_its_input_and_says_how_it_ended() {
    let api = api(Some(Arc::default())).await;
    let mut socket = exec(
        &api,
        "stdin=true&command=sh&command=-c&command=cat%3B%20echo%20end%20%3E%262%3B%20exit%207",
    )
    .await;
    let input = "x".repeat(300_000);
    let mut message = vec![0];
    message.extend_from_slice(input.as_bytes());
    socket.send(Message::Binary(message.into())).await.unwrap();
    // The end of the input.
    socket
        .send(Message::Binary(vec![255, 0].into()))
        .await
        .unwrap();
    let (output, errors, status) = heard(&mut socket).await;
    assert_eq!((output.len(), errors.as_str()), (300_000, "end\n"));
    assert_eq!(status["reason"], "NonZeroExitCode");
    assert_eq!(status["details"]["causes"][0]["message"], "7");
}

#[tokio::test]
async fn on_a_terminal_a_command_has_both_streams_in_one_and_the_size_that_is_told() {
    let api = api(Some(Arc::default())).await;
    let mut socket = exec(&api, "stdin=true&tty=true&command=sh").await;
    let size = [&[4], &br#"{"Width":77,"Height":33}"#[..]].concat();
    let keys = [&[0], &b"stty size; tty; echo err >&2; exit\n"[..]].concat();
    for message in [size, keys] {
        socket.send(Message::Binary(message.into())).await.unwrap();
    }
    let (output, errors, status) = heard(&mut socket).await;
    for wanted in ["33 77\r\n", "/dev/pts/", "err\r\n"] {
        assert!(output.contains(wanted), "{output}");
    }
    assert_eq!(
        (errors.as_str(), &status["status"]),
        ("", &json!("Success"))
    );
}

#[tokio::test]
async fn a_command_that_cannot_be_started_says_so() {
    let api = api(Some(Arc::default())).await;
    let mut socket = exec(&api, "command=no-such-program").await;
    let (_, _, status) = heard(&mut socket).await;
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("could not start \"no-such-program\""),
        "{status}"
    );
}

#[tokio::test]
async fn a_command_ends_with_its_connection_and_that_with_the_server() {
    let mut api = api(Some(Arc::default())).await;
    let mut socket = exec(
        &api,
        "command=sh&command=-c&command=echo%20%24%24%3B%20sleep%201000",
    )
    .await;
    let Some(Ok(Message::Binary(said))) = socket.next().await else {
        panic!("it says its number");
    };
    let id = String::from_utf8(said[1..].to_vec()).unwrap();
    api.cut().await;
    let rest = async { while let Some(Ok(_)) = socket.next().await {} };
    timeout(SOON, rest).await.expect("the connection is closed");
    let ended = async {
        while std::fs::read_to_string(format!("/proc/{}/cmdline", id.trim()))
            .is_ok_and(|line| !line.is_empty())
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, ended).await.expect("the command is killed");
}

#[tokio::test]
async fn who_speaks_no_websocket_is_told_what_runs_a_command() {
    let api = api(Some(Arc::default())).await;
    let mut wire = Wire::to(api.at).await;
    let path = "/api/v1/namespaces/default/pods/web/exec?container=main&command=true";
    let (code, said) = wire.text("POST", path).await;
    assert_eq!(code, 501);
    assert!(
        said.contains("chainbreak shell pod/default/web -- COMMAND"),
        "{said}"
    );
}
