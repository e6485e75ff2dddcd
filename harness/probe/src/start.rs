//! From an order on standard input to the end of the run.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    os::fd::AsFd,
    process::ExitCode,
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::{
    asker::Asker,
    clock::monotonic_us,
    conntrack,
    course::{Carrier, Course, send_due},
    craft,
    error::ProbeError,
    output::Output,
    probe::Probe,
    reactor::{Reactor, Ready},
    wire::{Errand, Order, Protocol, Report},
};

/// The probe as a program: reads an errand from standard input, reports to standard output. Exit code 0
/// after its last report, 2 for an order that cannot be carried out, 1 for anything else.
pub fn main() -> ExitCode {
    let error = match carry_out() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    drop(writeln!(io::stderr(), "probe: {error}"));
    match error {
        ProbeError::Order { .. } | ProbeError::OutOfRange { .. } => ExitCode::from(2),
        ProbeError::System { .. } | ProbeError::Output { .. } => ExitCode::FAILURE,
    }
}

fn carry_out() -> Result<(), ProbeError> {
    let input = io::stdin().as_fd().try_clone_to_owned();
    let mut control = File::from(input.map_err(|source| ProbeError::System {
        what: "share standard input",
        source,
    })?);
    match read_errand(&mut control)? {
        Errand::Requests(order) => run(&order, control, io::stdout()),
        Errand::Craft(order) => craft::run(&order, control, io::stdout()),
        Errand::FillConntrack(order) => conntrack::fill(&order, control, io::stdout()),
        Errand::EmptyConntrack => conntrack::empty(io::stdout()),
    }
}

/// Reads up to the end of the first line and not a byte more.
fn read_errand(control: &mut impl Read) -> Result<Errand, ProbeError> {
    let mut line = Vec::new();
    let mut byte = [0];
    while let Ok(1) = control.read(&mut byte) {
        if byte == *b"\n" {
            break;
        }
        line.extend(byte);
    }
    serde_json::from_slice(&line).map_err(|source| ProbeError::Order { source })
}

/// Carries out an order until its count is reached or `control` ends, and reports to `out`.
pub fn run(
    order: &Order,
    control: impl AsFd + Read,
    out: impl Write + Send + 'static,
) -> Result<(), ProbeError> {
    for (field, value) in [
        ("every-us", order.every_us),
        ("timeout-us", order.timeout_us),
    ] {
        if !(1..=3_600_000_000).contains(&value) {
            return Err(ProbeError::OutOfRange { field, value });
        }
    }
    raise_file_limit()?;
    let reactor = Reactor::new()?;
    let endless = reactor.watch_control(&control)?;
    let start_us = monotonic_us();
    let mut output = Output::new(out);
    output.say(
        &Report::Started {
            monotonic_us: start_us,
            from: sender(order),
        },
        0,
    );
    reactor.schedule(start_us + order.every_us, order.every_us)?;
    let course = Course::new(order.clone(), reactor, output, start_us);
    match order.protocol {
        Protocol::Tcp => drive(Probe::new(course), control, endless),
        Protocol::Udp => drive(Asker::new(course), control, endless),
    }
}

/// Which address requests will come from. A UDP socket is connected for that: it asks the kernel's routes, and sends nothing.
fn sender(order: &Order) -> Option<IpAddr> {
    let asked = || {
        let any: IpAddr = if order.target.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(order.target).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    order.source.or_else(asked)
}

/// Follows the schedule to its end. Without `endless` the controlling input is over already.
fn drive(
    mut carrier: impl Carrier,
    mut control: impl AsFd + Read,
    endless: bool,
) -> Result<(), ProbeError> {
    if endless {
        send_due(&mut carrier)?;
    } else {
        carrier.course().stop()?;
    }
    let mut ready = Vec::new();
    loop {
        let (idle, deadline) = (carrier.is_idle(), carrier.deadline());
        if carrier.course().is_over(idle) {
            return carrier.into_course().finish();
        }
        carrier.course().wait(deadline, &mut ready)?;
        for &event in &ready {
            match event {
                // The clock says what is due.
                Ready::Timer => {}
                Ready::Connection { token, readable } => carrier.go_on(token, readable),
                Ready::Control if goes_on(&mut control) => {}
                Ready::Control => {
                    carrier.course().unwatch_control(&control)?;
                    carrier.course().stop()?;
                }
            }
        }
        send_due(&mut carrier)?;
        let now = carrier.course().now();
        carrier.expire(now);
        carrier.course().flush(now);
    }
}

/// Whether the readable input has not ended. What stands in it means nothing yet.
fn goes_on(control: &mut impl Read) -> bool {
    control.read(&mut [0; 512]).is_ok_and(|count| count > 0)
}

/// Every request of a whole timeout may be under way, each with its socket: takes what the system grants.
/// What does not fit even then is reported as unreachable, with the system's words.
fn raise_file_limit() -> Result<(), ProbeError> {
    getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most))
        .map_err(ProbeError::system("raise the limit of open files"))
}
