//! Every outcome over UDP, made by the real kernel and an answering program as scenarios write it.

mod world;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use chainbreak_probe::wire::{Connections, Order, Outcome, Protocol};
use world::{NOBODY, Running, Said, World, order};

const ANSWERS: u16 = 8125;
/// Answers in no form that a probe knows.
const BABBLES: u16 = 8126;
/// Sends back what comes.
const ECHOES: u16 = 8127;
/// Answers each question when the next one came.
const LAGS: u16 = 8128;

/// One socket for each port; it says who it is and whom it sees.
const ANSWERER: &str = r#"
    my ($port, $how) = @ARGV;
    my $socket = IO::Socket::INET->new(LocalPort => $port, Proto => "udp") or die "$!";
    $| = 1;
    print "up\n";
    my $before;
    while (defined($socket->recv(my $question, 512))) {
        my $client = $socket->peerhost . ":" . $socket->peerport;
        my $who = "x-chainbreak-backend: web-1\nx-chainbreak-client: $client\n";
        my %answer = (answers => "$question$who", babbles => "pong", echoes => $question, lags => $before);
        $socket->send($answer{$how}) if defined $answer{$how};
        $before = $question;
    }
"#;

fn answerer(world: &World, port: u16, how: &str) -> Running {
    use std::io::{BufRead, BufReader};
    let mut command = world.command("perl");
    command.args(["-MIO::Socket::INET", "-e", ANSWERER, &port.to_string(), how]);
    let mut child = Running(
        command
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("perl runs"),
    );
    let mut up = String::new();
    let out = child.0.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut up).expect("readable");
    assert_eq!(up, "up\n");
    child
}

fn udp(port: u16, connections: Connections, count: Option<u64>) -> Order {
    Order {
        protocol: Protocol::Udp,
        connections,
        ..order(port, 1_000, count)
    }
}

fn words(said: &Said) -> Vec<&'static str> {
    let words = said.samples.iter().map(|sample| sample.outcome.word());
    words.collect()
}

fn locals(said: &Said) -> BTreeSet<SocketAddr> {
    let locals = said
        .samples
        .iter()
        .filter_map(|sample| match &sample.outcome {
            Outcome::Answered { local, .. } => Some(*local),
            _ => None,
        });
    locals.collect()
}

#[test]
fn an_answer_names_its_backend_and_the_port_it_saw() {
    let world = World::new();
    let _server = answerer(&world, ANSWERS, "answers");
    // The kernel chooses ports at random, and may take one twice: of 50, six are almost never such.
    for (connections, ports) in [(Connections::New, 45..=50), (Connections::Kept, 1..=1)] {
        let said = world.probe(&udp(ANSWERS, connections, Some(50))).end();
        assert_eq!(words(&said), ["answered"; 50]);
        for sample in &said.samples {
            let Outcome::Answered {
                backend,
                seen_as,
                local,
            } = &sample.outcome
            else {
                panic!("{sample:?}");
            };
            assert_eq!((backend.as_str(), *seen_as), ("web-1", Some(*local)));
        }
        let found = locals(&said).len();
        assert!(ports.contains(&found), "{connections:?}: {found} ports");
    }
}

#[test]
fn refusals_silence_and_babble_are_told_apart() {
    let world = World::new();
    let _servers = [
        answerer(&world, ANSWERS, "answers"),
        answerer(&world, BABBLES, "babbles"),
        answerer(&world, ECHOES, "echoes"),
    ];
    let input = "iptables-legacy -A INPUT -p udp --dport";
    world.sh(&format!(
        "{input} 1 -j REJECT
         {input} 2 -j REJECT --reject-with icmp-host-unreachable
         {input} 3 -j DROP"
    ));
    for connections in [Connections::New, Connections::Kept] {
        for (port, word) in [
            (NOBODY, "refused"),
            (1, "refused"),
            (2, "unreachable"),
            (3, "timed out"),
            (BABBLES, "wrong answer"),
            (ECHOES, "answered"),
            (ANSWERS, "answered"),
        ] {
            let said = world.probe(&udp(port, connections, Some(20))).end();
            assert_eq!(words(&said), [word; 20], "port {port}, {connections:?}");
        }
    }
    let target = SocketAddr::from(([192, 0, 2, 1], 80));
    let nowhere = Order {
        target,
        ..udp(1, Connections::Kept, Some(2))
    };
    let said = world.probe(&nowhere).end();
    assert_eq!(words(&said), ["unreachable"; 2], "no route");
}

#[test]
fn a_question_that_is_not_answered_delays_no_other() {
    let world = World::new();
    world.sh("iptables-legacy -A INPUT -p udp --dport 3 -j DROP");
    for connections in [Connections::New, Connections::Kept] {
        let began = Instant::now();
        let said = world.probe(&udp(3, connections, Some(300))).end();
        // The last is due after 299 ms and times out 300 ms later. One after the other would take 90 s;
        // half a second is left for a busy machine.
        let took = began.elapsed();
        assert!(took < Duration::from_millis(599 + 500), "{took:?}");
        assert_eq!(words(&said), ["timed out"; 300]);
        assert!(said.samples.iter().all(|sample| sample.took_us >= 300_000));
    }
}

#[test]
fn an_answer_belongs_to_the_question_that_it_repeats() {
    let world = World::new();
    let _server = answerer(&world, LAGS, "lags");
    // 60 ms after its own question comes the next one, and with it the answer to the first.
    let slowly = Order {
        every_us: 60_000,
        ..udp(LAGS, Connections::Kept, Some(5))
    };
    let said = world.probe(&slowly).end();
    let mut ends: Vec<_> = said
        .samples
        .iter()
        .map(|sample| (sample.at_us, sample.outcome.word(), sample.took_us))
        .collect();
    ends.sort_unstable();
    let told: Vec<_> = ends.iter().map(|(_, word, _)| *word).collect();
    let answered = ["answered"; 4].into_iter().chain(["timed out"]);
    assert_eq!(told, answered.collect::<Vec<_>>());
    assert!(
        ends.iter().all(|(.., took)| *took >= 59_000),
        "an answer was taken for that of the question before: {ends:?}"
    );
}

#[test]
fn a_kept_port_outlives_refusals() {
    let world = World::new();
    let mut probe = world.probe(&udp(ANSWERS, Connections::Kept, None));
    probe.until("refused");
    let server = answerer(&world, ANSWERS, "answers");
    probe.until("answered");
    drop(server);
    probe.until("refused");
    let _server = answerer(&world, ANSWERS, "answers");
    probe.until("answered");
    let said = probe.stop();
    assert_eq!(locals(&said).len(), 1, "one port, whatever happened");
    let known = ["answered", "refused"];
    // What was in the socket of the server that was killed is lost.
    let strange = words(&said)
        .into_iter()
        .filter(|word| !known.contains(word));
    assert!(strange.count() <= 2, "{:?}", words(&said));
}
