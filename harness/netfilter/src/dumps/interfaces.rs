//! A node's interfaces, as `ip addr` and `ip route` tell of them.

use std::collections::BTreeMap;

use super::Dumps;

/// What `ip addr` tells of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// The bridge, bond or team that it is a part of.
    pub master: Option<String>,
    /// Whether it has an address of IPv4 that others can reach.
    pub has_address: bool,
}

impl Dumps {
    /// By name; nothing where addresses were not dumped.
    pub fn interfaces(&self) -> BTreeMap<String, Interface> {
        let mut all: BTreeMap<String, Interface> = BTreeMap::new();
        let mut at = String::new();
        for line in self.addresses.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let behind = |word: &str| {
                let place = words.iter().position(|it| *it == word)?;
                words.get(place + 1).map(|it| (*it).to_owned())
            };
            // `3: cali1@if2: <BROADCAST,…> mtu 1500 …`, and of `ip -o` each address, too: `3: cali1    inet …`
            if let [number, name, ..] = words.as_slice()
                && number.ends_with(':')
            {
                let name = name.trim_end_matches(':');
                name.split('@').next().unwrap_or(name).clone_into(&mut at);
            }
            let interface = all.entry(at.clone()).or_default();
            if let Some(master) = behind("master") {
                interface.master = Some(master);
            }
            interface.has_address |=
                words.contains(&"inet") && behind("scope").as_deref() == Some("global");
        }
        all.remove("");
        all
    }

    /// The interface by which the main table's default route of IPv4 leaves. None where there are several, or where it was not dumped.
    pub fn default_interface(&self) -> Option<&str> {
        let mut ways = self.routes.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_main = words.first() == Some(&"default") && !words.contains(&"table");
            // IPv6's are by addresses with colons.
            let place = words.iter().position(|it| *it == "dev");
            let place = place.filter(|_| is_main && !line.contains(':'))?;
            words.get(place + 1).copied()
        });
        let first = ways.next()?;
        ways.all(|it| it == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumps(text: &str) -> Dumps {
        let mut dumps = Dumps::default();
        dumps.add(text).unwrap();
        dumps
    }

    #[test]
    fn an_interface_is_told_with_its_master_and_whether_others_reach_it() {
        let told = dumps(
            "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000\n    \
             link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00\n    inet 127.0.0.1/8 scope host lo\n       valid_lft forever preferred_lft forever\n\
             2: eth0@if7: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master br0 state UP group default\n    \
             link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff link-netnsid 0\n    inet6 fe80::1/64 scope link\n\
             3: br0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default\n    inet 10.0.1.1/24 brd 10.0.1.255 scope global br0\n",
        )
        .interfaces();
        let of = |master: Option<&str>, has_address| Interface {
            master: master.map(str::to_owned),
            has_address,
        };
        let expected = [
            ("br0", of(None, true)),
            ("eth0", of(Some("br0"), false)),
            ("lo", of(None, false)),
        ];
        assert_eq!(
            told,
            expected.map(|(name, it)| (name.to_owned(), it)).into()
        );
        let one_line =
            dumps("3: br0    inet 10.0.1.1/24 brd 10.0.1.255 scope global br0\n").interfaces();
        assert_eq!(one_line, [("br0".to_owned(), of(None, true))].into());
        assert!(dumps("").interfaces().is_empty());
    }

    #[test]
    fn the_default_route_is_the_main_tables_of_ipv4_where_there_is_one_interface() {
        let by = |routes: &str| dumps(routes).default_interface().map(str::to_owned);
        let eth0 = Some("eth0".to_owned());
        assert_eq!(by("default via 10.0.0.1 dev eth0 proto dhcp\n"), eth0);
        assert_eq!(by("default dev eth0 scope link\n"), eth0);
        let other = "default via 10.0.0.9 dev eth1 table 2\ndefault via fe80::1 dev br0\n10.0.0.0/24 dev br0 scope link\n";
        assert_eq!(by(other), None);
        assert_eq!(
            by(&format!("{other}default nhid 7 via 10.0.0.1 dev eth0\n")),
            eth0
        );
        let two =
            "default via 10.0.0.1 dev eth0 metric 100\ndefault via 10.0.1.1 dev eth1 metric 200\n";
        assert_eq!(by(two), None);
    }
}
