//! Links that go down or take shorter packets, and packets that take another way.

use std::net::IpAddr;

use super::{Injection, command};
use crate::{
    cluster::{Debt, Place},
    infra_error::InfraError,
};

pub(super) const BATCH: [&str; 3] = ["ip", "-batch", "-"];

impl Injection<'_> {
    /// Takes an interface down. With it go its routes and its IPv6 addresses, which come back with it.
    pub(super) async fn link_down(
        &mut self,
        at: &Place,
        interface: &str,
    ) -> Result<(), InfraError> {
        let [routes, routes_v6, addresses, down] = down(interface);
        let routes = self.run(at, &routes).await?;
        let routes_v6 = self.run(at, &routes_v6).await?;
        let addresses = self.run(at, &addresses).await?;
        let up = up(interface, &addresses, &[&routes, &routes_v6]);
        self.undo_by_ip(at, format!("{interface} of {at} is up again"), up)
            .await?;
        self.run(at, &down).await?;
        self.say(format!("{interface} of {at} goes down"));
        Ok(())
    }

    /// Makes an interface send packets of so many bytes at most.
    pub(super) async fn mtu(
        &mut self,
        at: &Place,
        interface: &str,
        bytes: u32,
    ) -> Result<(), InfraError> {
        let size_of = bytes.to_string();
        let [link, set] = resize(interface, &size_of);
        let link = self.run(at, &link).await?;
        let before = size(&link).ok_or_else(|| {
            let doing = format!("tell how long packets of {interface} in {at} are");
            InfraError::new(doing, format!("ip says {link:?}"))
        })?;
        let back = format!("link set dev {interface} mtu {before}\n");
        let text = format!("{interface} of {at} sends up to {before} bytes again");
        self.undo_by_ip(at, text, back).await?;
        self.run(at, &set).await?;
        self.say(format!(
            "{interface} of {at} sends up to {bytes} bytes; it was {before}"
        ));
        Ok(())
    }

    /// Replaces a route, or adds one.
    pub(super) async fn route(
        &mut self,
        at: &Place,
        to: &str,
        via: Option<IpAddr>,
        dev: Option<&str>,
    ) -> Result<(), InfraError> {
        let route = written(to, via, dev);
        let [show, replace] = reroute(to, via, &route);
        let before = self.run(at, &show).await?;
        let before: Vec<&str> = before.lines().map(str::trim).collect();
        let text = format!("the route to {to} of {at} is as before");
        let was = if before.is_empty() {
            let debt = Debt {
                text,
                at: at.clone(),
                command: command(&unroute(&show, &route)),
                input: String::new(),
            };
            self.undo_by(debt).await?;
            "there was none".to_owned()
        } else {
            let back = before.iter().map(|line| format!("route replace {line}\n"));
            self.undo_by_ip(at, text, back.collect()).await?;
            format!("it was {}", before.join(", "))
        };
        self.run(at, &replace).await?;
        self.say(format!("route {route} in {at}; {was}"));
        Ok(())
    }

    async fn undo_by_ip(
        &mut self,
        at: &Place,
        text: String,
        input: String,
    ) -> Result<(), InfraError> {
        let debt = Debt {
            text,
            at: at.clone(),
            command: command(&BATCH),
            input,
        };
        self.undo_by(debt).await
    }
}

/// What shows all that goes with an interface, and what takes it down.
pub(super) fn down(interface: &str) -> [Vec<&str>; 4] {
    let route = ["route", "show", "dev", interface];
    let address = ["-o", "addr", "show", "dev", interface, "scope", "global"];
    [
        [&["ip"][..], &route].concat(),
        [&["ip", "-6"][..], &route].concat(),
        [&["ip", "-6"][..], &address].concat(),
        vec!["ip", "link", "set", "dev", interface, "down"],
    ]
}

/// What shows an interface's MTU, and what sets it.
pub(super) fn resize<'a>(interface: &'a str, bytes: &'a str) -> [Vec<&'a str>; 2] {
    let set = vec!["ip", "link", "set", "dev", interface, "mtu", bytes];
    [vec!["ip", "-o", "link", "show", "dev", interface], set]
}

/// A route as `ip` reads it.
pub(super) fn written(to: &str, via: Option<IpAddr>, dev: Option<&str>) -> String {
    let mut route = to.to_owned();
    route.extend(via.map(|via| format!(" via {via}")));
    route.extend(dev.map(|dev| format!(" dev {dev}")));
    route
}

/// What shows the routes to somewhere, and what replaces them.
pub(super) fn reroute<'a>(to: &'a str, via: Option<IpAddr>, route: &'a str) -> [Vec<&'a str>; 2] {
    let v6 = to.contains(':') || via.is_some_and(|via| via.is_ipv6());
    let family = if v6 { "-6" } else { "-4" };
    let replace = ["ip", family, "route", "replace"].into_iter();
    [
        vec!["ip", family, "route", "show", "exact", to],
        replace.chain(route.split(' ')).collect(),
    ]
}

/// Deletes a route, where it is there. Of its words none needs to be quoted.
pub(super) fn unroute(show: &[&str], route: &str) -> [String; 3] {
    let (show, family) = (show.join(" "), show[1]);
    let script = format!("if [ -n \"$({show})\" ]; then exec ip {family} route del {route}; fi");
    ["sh", "-c", &script].map(str::to_owned)
}

/// The MTU in what `ip -o link` says of an interface.
fn size(link: &str) -> Option<&str> {
    let mut words = link.split_whitespace();
    words.find(|&word| word == "mtu")?;
    words.next()
}

/// What brings an interface up with all that it had. Ways to neighbours come before ways through them.
fn up(interface: &str, addresses: &str, routes: &[&str]) -> String {
    let addresses = addresses.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|&word| word != "inet6");
        let address = words.nth(1)?;
        Some(format!("addr replace {address} dev {interface} nodad\n"))
    });
    let routes = routes.iter().flat_map(|routes| {
        let lines = routes
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        let (through, beside): (Vec<&str>, Vec<&str>) =
            lines.partition(|line| line.contains(" via "));
        let lines = beside.into_iter().chain(through);
        lines.map(|line| format!("route replace {line} dev {interface}\n"))
    });
    let up = format!("link set dev {interface} up\n");
    std::iter::once(up).chain(addresses).chain(routes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_that_an_interface_gets_back_is_the_one_that_it_had() {
        let link =
            "2: eth0@if3: <BROADCAST,MULTICAST,UP> mtu 1450 qdisc noqueue state UP mode DEFAULT";
        assert_eq!(size(link), Some("1450"));
    }

    #[test]
    fn an_interface_gets_back_its_addresses_and_first_the_routes_that_others_need() {
        let routes = "default via 169.254.1.1 \n169.254.1.1 scope link \n";
        let addresses = "2: eth0    inet6 fd00:10::5/128 scope global \\ valid_lft forever\n";
        assert_eq!(
            up("eth0", addresses, &[routes, ""]),
            "link set dev eth0 up\n\
             addr replace fd00:10::5/128 dev eth0 nodad\n\
             route replace 169.254.1.1 scope link dev eth0\n\
             route replace default via 169.254.1.1 dev eth0\n"
        );
    }
}
