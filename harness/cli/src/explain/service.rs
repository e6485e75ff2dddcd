//! The address of a service by the rules that kube-proxy writes for it: the comments name its port (kube-proxy 1.20 to 1.36,
//! `proxier.go` of iptables and nftables).

use std::net::IpAddr;

use chainbreak_netfilter::{Rule, names::PortName, walk::Protocol};

use crate::cases::invalid;

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
}

impl Asked<'_> {
    /// The cluster IP, where a line of rules or a command says it.
    pub(super) fn cluster_ip(&self, line: &str) -> Option<IpAddr> {
        if !line.contains(&format!("{}/{}", self.namespace, self.name)) {
            return None;
        }
        self.by_rule(line).or_else(|| self.by_element(line))
    }

    /// What is said where none of some rules names it.
    pub(super) fn unnamed(&self, rules: &str) -> anyhow::Error {
        invalid(format!(
            "TO:PORT: no rule {rules} names the {} port {} of the service {}/{}; give its address",
            self.protocol, self.port, self.namespace, self.name
        ))
    }

    /// `-d 10.96.0.10/32 -p tcp -m comment --comment "test/web:http cluster IP" -m tcp --dport 80 -j …`, or, without an endpoint,
    /// `… has no endpoints`.
    fn by_rule(&self, line: &str) -> Option<IpAddr> {
        let rule = Rule::new(line);
        let comment = rule.comment()?;
        let named = comment
            .strip_suffix(" cluster IP")
            .or_else(|| comment.strip_suffix(" has no endpoints"))?;
        let (mut address, mut port, mut protocol) = (None, None, None);
        let words: Vec<_> = rule.words().collect();
        for pair in words.windows(2) {
            match &*pair[0] {
                "-d" | "--destination" => address = pair[1].split('/').next()?.parse().ok(),
                "--dport" => port = pair[1].parse().ok(),
                "-p" => protocol = Protocol::parse(&pair[1]),
                _ => {}
            }
        }
        let fits = self.is(named) && port == Some(self.port) && protocol == Some(self.protocol);
        address.filter(|_| fits)
    }

    /// `10.96.0.10 . tcp . 80 comment "test/web:http" : goto …`, in the maps `service-ips` and `no-endpoint-services`; without a comment by the
    /// name of the chain, `goto service-TR6OCHRN-test/web/tcp/http`.
    fn by_element(&self, line: &str) -> Option<IpAddr> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let named = |words: &[&str]| {
            let after = |word| words.iter().skip_while(move |it| **it != word).nth(1);
            let comment = after("comment").map(|it| self.is(it.trim_matches('"')));
            comment.or_else(|| after("goto").map(|it| self.is_led_by(it.trim_end_matches(','))))
        };
        words.windows(5).enumerate().find_map(|(at, key)| {
            let [address, ".", protocol, ".", port] = *key else {
                return None;
            };
            let is_port = port.parse() == Ok(self.port);
            let is_protocol = Protocol::parse(protocol) == Some(self.protocol);
            // Several elements may stand in a line.
            let rest = words.get(at..)?;
            let end = rest.iter().position(|it| it.ends_with(',') || *it == "}");
            let element = rest.get(..=end.unwrap_or(rest.len() - 1))?;
            let ours = is_port && is_protocol && named(element) == Some(true);
            address.parse().ok().filter(|_| ours)
        })
    }

    /// Whether a chain is its: `service-TR6OCHRN-test/web/tcp/http`.
    fn is_led_by(&self, chain: &str) -> bool {
        PortName::of_nftables_chain(chain).is_some_and(|it| self.is(&it.to_string()))
    }

    /// Whether `test/web:http` or, of a port without a name, `test/web` is it.
    fn is(&self, port_name: &str) -> bool {
        let service = port_name.split(':').next().unwrap_or_default();
        service.split_once('/') == Some((self.namespace, self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: Asked<'_> = Asked {
        namespace: "test",
        name: "web",
        port: 80,
        protocol: Protocol::TCP,
    };

    fn address(line: &str) -> Option<String> {
        WEB.cluster_ip(line).map(|it| it.to_string())
    }

    #[test]
    fn a_services_address_is_in_its_rules_of_every_mode() {
        for line in [
            r#"-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "test/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-A"#,
            r#"-A KUBE-SERVICES -m comment --comment "test/web cluster IP" -m tcp -p tcp -d 10.96.0.10 --dport 80 -j KUBE-SVC-A"#,
            r#"-A KUBE-SERVICES -m comment --comment "test/web:http has no endpoints" -m tcp -p tcp -d 10.96.0.10 --dport 80 -j REJECT"#,
            r#"add element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 comment "test/web:http" : goto service-A }"#,
            "elements = { 10.96.0.9 . tcp . 80 : goto service-B-test/web-2/tcp/http, 10.96.0.10 . tcp . 80 : goto service-A-test/web/tcp/http,",
            r#"elements = { 10.96.0.9 . tcp . 80 comment "test/api:http" : goto service-B, 10.96.0.10 . tcp . 80 comment "test/web:http" : goto service-A }"#,
        ] {
            assert_eq!(address(line).as_deref(), Some("10.96.0.10"), "{line}");
        }
    }

    #[test]
    fn what_belongs_to_another_service_port_or_protocol_is_not_taken_for_it() {
        for line in [
            r#"-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "test/web-2:http cluster IP" -m tcp --dport 80 -j X"#,
            r#"-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "test/web:http cluster IP" -m tcp --dport 81 -j X"#,
            r#"-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment "test/web:dns cluster IP" -m udp --dport 80 -j X"#,
            r#"-A KUBE-SERVICES -d 192.0.2.7/32 -p tcp -m comment --comment "test/web:http external IP" -m tcp --dport 80 -j X"#,
            r#"add element ip kube-proxy service-ips { 10.96.0.9 . tcp . 80 comment "test/web-2:http" : goto x }"#,
            r#"10.96.0.9 . tcp . 80 comment "test/api:http" : goto x, 10.96.0.8 . tcp . 81 comment "test/web:http" : goto y"#,
        ] {
            assert_eq!(address(line), None, "{line}");
        }
    }
}
