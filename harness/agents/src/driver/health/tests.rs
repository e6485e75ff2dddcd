//! The servers on addresses of the loopback network that nobody else listens on.

use std::net::{IpAddr, Ipv4Addr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::*;
use crate::kube_proxy::Check;

const PORT: u16 = 32100;
const PATIENCE: Duration = Duration::from_secs(20);

/// Each process has its own network of 256 addresses.
fn address(host: u8) -> IpAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, host).into()
}

struct Bench {
    config: Config,
    publish: watch::Sender<Vec<Health>>,
    said: RefCell<Vec<String>>,
}

impl Bench {
    /// Each test names another `host`.
    fn new(version: &str, host: u8) -> Self {
        let config = Config {
            healthz_address: (address(host), 10256).into(),
            ..Config::new(version.parse().unwrap(), "n1")
        };
        let publish = watch::Sender::new(vec![Health::new(&config.version)]);
        let said = RefCell::default();
        Self {
            config,
            publish,
            said,
        }
    }

    fn ip(&self) -> IpAddr {
        self.config.healthz_address.ip()
    }

    /// A proxier for each that is published.
    fn configs(&self) -> Vec<Config> {
        vec![self.config.clone(); self.publish.borrow().len()]
    }

    /// Serves while `body` runs.
    async fn run(&self, body: impl Future<Output = ()>) {
        let mut sink = |line: LogLine| {
            let LogLine { site, text, .. } = line;
            self.said.borrow_mut().push(format!("{site}] {text}"));
        };
        let log: RefCell<&mut dyn LogSink> = RefCell::new(&mut sink);
        let published = self.publish.subscribe();
        tokio::select! {
            never = serve(self.configs(), published, Instant::now(), &log) => match never {},
            ended = timeout(PATIENCE, body) => ended.expect("it takes no 20 s"),
        }
    }

    /// A sync succeeded, after which these services of the namespace `test` are checked.
    fn sync(&self, checks: &[(&str, u16, usize)]) {
        self.publish.send_modify(|each| {
            let health = &mut each[0];
            health.updated += Duration::from_millis(1);
            let checks = checks.iter().map(|&(name, port, local_endpoints)| {
                let check = Check {
                    port,
                    local_endpoints,
                };
                (Namespaced::new("test", name), check)
            });
            health.checks = checks.collect();
        });
    }

    /// What comes back, or `None` when nobody listens.
    async fn get(&self, port: u16, path: &str) -> Option<String> {
        self.get_at(self.ip(), port, path).await
    }

    async fn get_at(&self, ip: IpAddr, port: u16, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((ip, port)).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    /// Asks until the answer is of that kind; `None` for a closed port.
    async fn until(&self, port: u16, path: &str, part: Option<&str>) -> String {
        self.until_at(self.ip(), port, path, part).await
    }

    async fn until_at(&self, ip: IpAddr, port: u16, path: &str, part: Option<&str>) -> String {
        let mut turns = interval(Duration::from_millis(5));
        loop {
            turns.tick().await;
            match (self.get_at(ip, port, path).await, part) {
                (Some(answer), Some(part)) if answer.contains(part) => return answer,
                (None, None) => return String::new(),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_service_s_port_opens_with_it_tells_its_endpoints_and_closes_with_it() {
    let bench = Bench::new("1.32", 1);
    bench
        .run(async {
            assert_eq!(bench.get(PORT, "/").await, None);
            bench.sync(&[("lb", PORT, 1)]);
            let answer = bench.until(PORT, "/any", Some("200 OK")).await;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert_eq!(
                body,
                "{\n\t\"service\": {\n\t\t\"namespace\": \"test\",\n\t\t\"name\": \"lb\"\n\t},\n\t\
                 \"localEndpoints\": 1,\n\t\"serviceProxyHealthy\": true\n}"
            );
            let head = head.to_lowercase();
            assert!(head.contains("content-type: application/json"), "{head}");
            let weight = "x-load-balancing-endpoint-weight: 1";
            assert!(head.contains(weight), "{head}");
            bench.sync(&[("lb", PORT, 0)]);
            bench
                .until(PORT, "/", Some("503 Service Unavailable"))
                .await;
            bench.sync(&[]);
            bench.until(PORT, "/", None).await;
        })
        .await;
    assert_eq!(
        *bench.said.borrow(),
        [
            "service_health.go:127] \"Opening healthcheck\" service=\"test/lb\" port=32100",
            "service_health.go:110] \"Closing healthcheck\" service=\"test/lb\" port=32100",
        ]
    );
}

#[tokio::test]
async fn an_open_connection_is_cut_when_its_service_goes() {
    let bench = Bench::new("1.32", 2);
    bench
        .run(async {
            bench.sync(&[("lb", PORT, 1)]);
            bench.until(PORT, "/", Some("200 OK")).await;
            let mut kept = TcpStream::connect((bench.ip(), PORT)).await.unwrap();
            kept.write_all(b"GET / HTTP/1.1\r\nHost: n1\r\n\r\n")
                .await
                .unwrap();
            assert!(kept.read(&mut [0; 1024]).await.unwrap() > 0);
            bench.sync(&[]);
            let ended = kept.read(&mut [0; 1024]).await;
            assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        })
        .await;
}

#[tokio::test]
async fn a_port_goes_from_one_service_to_another_in_one_sync() {
    let bench = Bench::new("1.20", 3);
    bench
        .run(async {
            bench.sync(&[("old", PORT, 1)]);
            bench.until(PORT, "/", Some("\"old\"")).await;
            bench.sync(&[("a-new", PORT, 1)]);
            bench.until(PORT, "/", Some("\"a-new\"")).await;
        })
        .await;
    assert_eq!(
        *bench.said.borrow(),
        [
            "service_health.go:98] Opening healthcheck \"test/old\" on port 32100",
            "service_health.go:83] Closing healthcheck \"test/old\" on port 32100",
            "service_health.go:98] Opening healthcheck \"test/a-new\" on port 32100",
        ]
    );
}

#[tokio::test]
async fn a_service_s_port_that_is_taken_is_said_and_tried_again_after_the_next_sync() {
    for (version, host, failed) in [
        (
            "1.20",
            4,
            "service_health.go:116] node n1 failed to start healthcheck \"test/lb\" on port 32100: listen tcp \
             :32100: bind: address already in use",
        ),
        (
            "1.32",
            5,
            "service_health.go:144] \"Failed to start healthcheck\" err=\"listen tcp IP:32100: bind: address \
             already in use\" node=\"n1\" service=\"test/lb\" port=32100",
        ),
    ] {
        let bench = Bench::new(version, host);
        let failed = failed.replace("IP", &bench.ip().to_string());
        let taken = TcpListener::bind((bench.ip(), PORT)).await.unwrap();
        bench
            .run(async {
                bench.sync(&[("lb", PORT, 1), ("other", 32101, 1)]);
                bench.until(32101, "/", Some("200 OK")).await;
                assert!(bench.said.borrow().contains(&failed), "{:?}", bench.said);
                drop(taken);
                bench.sync(&[("lb", PORT, 1), ("other", 32101, 1)]);
                bench.until(PORT, "/", Some("200 OK")).await;
            })
            .await;
    }
}

/// Both proxiers of a dual-stack one have the check of a service of both families.
#[tokio::test]
async fn the_second_family_tries_a_port_that_the_first_one_holds_in_vain_at_each_sync() {
    for (host, second, tries) in [(8, 8, 2), (9, 10, 0)] {
        let bench = Bench::new("1.32", host);
        let second_at = address(second);
        let each = vec![Health::new(&bench.config.version); 2];
        bench.publish.send_replace(each);
        let sync = |proxier: usize, at: IpAddr| {
            bench.publish.send_modify(|each| {
                let one = &mut each[proxier];
                one.updated += Duration::from_millis(1);
                one.checks_at = Some(vec![at]);
                let check = Check {
                    port: PORT,
                    local_endpoints: 1 + proxier,
                };
                one.checks = [(Namespaced::new("test", "lb"), check)].into();
            });
        };
        bench
            .run(async {
                sync(0, bench.ip());
                bench.until(PORT, "/", Some("\"localEndpoints\": 1")).await;
                for _ in 0..2 {
                    let said = bench.said.borrow().len();
                    sync(1, second_at);
                    while tries > 0 && bench.said.borrow().len() < said + 2 {
                        tokio::task::yield_now().await;
                    }
                }
                if tries == 0 {
                    let second = bench.until_at(second_at, PORT, "/", Some("200 OK")).await;
                    assert!(second.contains("\"localEndpoints\": 2"), "{second}");
                }
            })
            .await;
        let said = bench.said.borrow();
        let failed = said
            .iter()
            .filter(|it| it.contains("address already in use"));
        assert_eq!(failed.count(), tries, "{second_at}: {said:?}");
    }
}

#[tokio::test]
async fn all_addresses_are_both_families_or_one_s_own() {
    let [v4, v6] = ["0.0.0.0:0", "[::]:0"].map(|it| it.parse::<SocketAddr>().unwrap());
    let with = |mut address: SocketAddr, listener: &TcpListener| {
        address.set_port(listener.local_addr().unwrap().port());
        address
    };
    for all in [v4, v6] {
        let both = listen(all, false).unwrap();
        for family in [v4, v6] {
            let error = listen(with(family, &both), true).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        }
    }
    let one = listen(v4, true).unwrap();
    let other = listen(with(v6, &one), true).unwrap();
    assert_eq!(
        one.local_addr().unwrap().port(),
        other.local_addr().unwrap().port()
    );
}

#[tokio::test]
async fn the_proxy_s_own_port_that_is_taken_is_said_and_tried_again_and_ends_nothing() {
    let bench = Bench::new("1.32", 6);
    let address = bench.config.healthz_address;
    let taken = TcpListener::bind(address).await.unwrap();
    bench
        .run(async {
            bench.sync(&[("lb", PORT, 1)]);
            bench.until(PORT, "/", Some("200 OK")).await;
            drop(taken);
            bench.until(10256, "/healthz", Some("200 OK")).await;
        })
        .await;
    let failed = format!(
        "server.go:594] \"Healthz server failed\" err=\"failed to start proxier healthz on {address}: listen \
         tcp {address}: bind: address already in use\""
    );
    let said = bench.said.borrow();
    assert_eq!(
        said.iter().filter(|it| **it == failed).count(),
        1,
        "{said:?}"
    );
}

#[tokio::test]
async fn the_proxy_turns_unhealthy_when_a_change_is_late_and_its_services_with_it() {
    let bench = Bench::new("1.32", 7);
    bench
        .run(async {
            bench.sync(&[("lb", PORT, 1)]);
            bench.until(10256, "/healthz", Some("200 OK")).await;
            bench.until(PORT, "/", Some("200 OK")).await;
            bench.publish.send_modify(|each| {
                each[0].late_at = Some(Duration::from_millis(2));
            });
            for (port, path) in [(10256, "/healthz"), (10256, "/livez"), (PORT, "/")] {
                let late = bench.until(port, path, Some("503 Service Unavailable"));
                late.await;
            }
            bench.until(10256, "/metrics", Some("404 Not Found")).await;
        })
        .await;
}
