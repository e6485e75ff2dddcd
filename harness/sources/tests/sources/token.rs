//! A registry that lets in whoever brings a token from where it says, as those of Docker, Kubernetes and Quay do.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

/// A key, its certificate, and a token that allows to pull `kube-proxy` for an hour (RFC 7519, signed with RS256).
const TOKEN: &str = r#"
    cd "$1"
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -subj /CN=tokens -days 1 2>/dev/null
    url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
    now=$(date +%s)
    certificate=$(openssl x509 -in cert.pem -outform DER | openssl base64 -A)
    header=$(printf '{"typ":"JWT","alg":"RS256","x5c":["%s"]}' "$certificate" | url)
    access='[{"type":"repository","name":"kube-proxy","actions":["pull"]}]'
    times="\"iat\":$now,\"nbf\":$((now - 60)),\"exp\":$((now + 3600))"
    claims=$(printf '{"iss":"tests","sub":"","aud":"images","jti":"1",%s,"access":%s}' "$times" "$access" | url)
    signature=$(printf '%s.%s' "$header" "$claims" | openssl dgst -sha256 -sign key.pem -binary | url)
    printf '%s.%s.%s' "$header" "$claims" "$signature"
"#;

/// Gives out one token to everybody who asks.
pub(crate) struct Tokens {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Tokens {
    /// With its key in that folder.
    pub(crate) fn start(folder: &Path) -> Self {
        let made = Command::new("sh")
            .args(["-ec", TOKEN, "sh"])
            .arg(folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let token = String::from_utf8(made.stdout).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&asked);
        // It ends with the tests.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut lines = BufReader::new(&client).lines().map_while(Result::ok);
                heard.lock().unwrap().extend(lines.next());
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let body = format!(r#"{{"token":"{token}"}}"#);
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                // Who does not listen any more needs no token.
                drop((&client).write_all(answer.as_bytes()));
            }
        });
        Self { address, asked }
    }

    /// What a registry is told, which believes in these tokens.
    pub(crate) fn auth(&self, folder: &Path) -> String {
        format!(
            "auth: {{ token: {{ realm: 'http://{}/token', service: images, issuer: tests, rootcertbundle: {} }} }}\n",
            self.address,
            folder.join("cert.pem").display()
        )
    }

    /// The first line of each request.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}
