//! `KubeProxyConfiguration`, as far as a case says it: for a real kube-proxy as a file, for the model as its settings.

use std::{fs, io, net::IpAddr, time::Duration};

use chainbreak_agents::kube_proxy::{Config, DetectLocal, Family, Mode};
use chainbreak_model::parse_duration;
use ipnet::IpNet;
use serde_json::{Map, Value};

/// Lays settings over others.
pub(super) fn put(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, over) in over {
                put(under.entry(name.clone()).or_insert(Value::Null), over);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// What a case says.
#[derive(Debug, Clone)]
pub(super) struct Said(pub(super) Map<String, Value>);

impl Said {
    fn of(&self, part: &str, name: &str) -> Option<&Value> {
        self.0.get(part)?.get(name)
    }

    fn truth(&self, part: &str, name: &str) -> Option<bool> {
        self.of(part, name)?.as_bool()
    }

    fn word(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// The settings that all proxiers share.
    pub(super) fn settle(&self, config: &mut Config) {
        let mode = match config.mode {
            Mode::Iptables => "iptables",
            Mode::Nftables => "nftables",
        };
        config.masquerade_all = self.truth(mode, "masqueradeAll").unwrap_or(false);
        if let Some(takes) = self.truth("iptables", "localhostNodePorts") {
            config.localhost_node_ports = takes;
        }
        let bit = self.of(mode, "masqueradeBit").and_then(Value::as_u64);
        if let Some(bit) = bit.and_then(|bit| u8::try_from(bit).ok()) {
            config.masquerade_bit = bit;
        }
        let interface = |name: &str| {
            let named = self.of("detectLocal", name).and_then(Value::as_str);
            named.unwrap_or_default().to_owned()
        };
        config.detect_local = match self.word("detectLocalMode") {
            Some("BridgeInterface") => DetectLocal::Bridge(interface("bridgeInterface")),
            Some("InterfaceNamePrefix") => DetectLocal::Prefix(interface("interfaceNamePrefix")),
            _ => DetectLocal::ClusterCidr,
        };
    }

    /// By which network pods of that family are told from others: what is said, or all pods', or those of the node.
    pub(super) fn pods(&self, all: IpNet, of_node: IpNet) -> Option<IpNet> {
        if self.word("detectLocalMode") == Some("NodeCIDR") {
            return Some(of_node);
        }
        let Some(said) = self.word("clusterCIDR") else {
            return Some(all);
        };
        let mut said = said.split(',').filter_map(|it| it.parse::<IpNet>().ok());
        said.find(|net| net.addr().is_ipv4() == all.addr().is_ipv4())
    }

    /// Networks whose addresses take node ports. `primary` is the node's own address of that family.
    pub(super) fn node_ports(&self, family: Family, node: &[IpAddr]) -> Vec<IpNet> {
        let said = self.0.get("nodePortAddresses").and_then(Value::as_array);
        let said = said.into_iter().flatten().filter_map(Value::as_str);
        let of = |word: &str| match word {
            "primary" => node
                .iter()
                .copied()
                .find(|ip| family.has(*ip))
                .map(IpNet::from),
            other => other.parse().ok(),
        };
        said.filter_map(of).collect()
    }

    /// Conntrack's settings as kube-proxy writes them at its start; those of 0 are left alone (conntrack.go of
    /// `cmd/kube-proxy`; `tcpBeLiberal` and UDP's from 1.29, which others ignore).
    pub(super) fn write_sysctls(&self, knows_liberal: bool) -> io::Result<()> {
        let number = |name: &str| self.of("conntrack", name).and_then(Value::as_u64);
        let per_core = number("maxPerCore").unwrap_or(0);
        if per_core > 0 {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let most = per_core * u64::try_from(cores).unwrap_or(1);
            let most = most.max(number("min").unwrap_or(0));
            write("nf_conntrack_max", most)?;
        }
        if knows_liberal && self.truth("conntrack", "tcpBeLiberal") == Some(true) {
            write("nf_conntrack_tcp_be_liberal", 1)?;
        }
        for (name, file, known) in [
            ("tcpEstablishedTimeout", "tcp_timeout_established", true),
            ("tcpCloseWaitTimeout", "tcp_timeout_close_wait", true),
            ("udpTimeout", "udp_timeout", knows_liberal),
            ("udpStreamTimeout", "udp_timeout_stream", knows_liberal),
        ] {
            let said = self.of("conntrack", name).and_then(Value::as_str);
            let time = said.and_then(parse_duration).unwrap_or(Duration::ZERO);
            if known && time > Duration::ZERO {
                write(&format!("nf_conntrack_{file}"), time.as_secs())?;
            }
        }
        Ok(())
    }
}

/// Of the calling thread's node. What is so already is not written.
fn write(name: &str, value: u64) -> io::Result<()> {
    let file = format!("/proc/sys/net/netfilter/{name}");
    if fs::read_to_string(&file).is_ok_and(|now| now.trim() == value.to_string()) {
        return Ok(());
    }
    fs::write(&file, value.to_string())
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
}

/// The addresses of the calling thread's node.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    let addresses = all
        .filter_map(|interface| interface.address)
        .filter_map(|address| {
            let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
        });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(value: &Value) -> Said {
        Said(value.as_object().expect("an object").clone())
    }

    fn net(text: &str) -> IpNet {
        text.parse().expect("a network")
    }

    #[test]
    fn an_empty_cluster_cidr_is_none_and_none_said_is_all_pods() {
        let (all, own) = (net("10.20.0.0/16"), net("10.20.2.0/24"));
        let pods = |value: Value| said(&value).pods(all, own);
        assert_eq!(pods(json!({})), Some(all));
        assert_eq!(pods(json!({ "clusterCIDR": "" })), None);
        let both = json!({ "clusterCIDR": "fd00::/56,10.0.0.0/8" });
        assert_eq!(pods(both), Some(net("10.0.0.0/8")));
        assert_eq!(pods(json!({ "detectLocalMode": "NodeCIDR" })), Some(own));
    }

    #[test]
    fn each_mode_has_its_own_masquerade_all() {
        let said = said(&json!({ "nftables": { "masqueradeAll": true } }));
        for (mode, all) in [(Mode::Iptables, false), (Mode::Nftables, true)] {
            let mut config = Config::new("1.32".parse().expect("a release"), "n1");
            config.mode = mode;
            said.settle(&mut config);
            assert_eq!(config.masquerade_all, all);
        }
    }

    #[test]
    fn primary_is_the_nodes_own_address() {
        let said = said(&json!({ "nodePortAddresses": ["primary", "127.0.0.0/8"] }));
        let node: Vec<IpAddr> = vec!["10.0.1.2".parse().expect("an address")];
        assert_eq!(
            said.node_ports(Family::Ipv4, &node),
            [net("10.0.1.2/32"), net("127.0.0.0/8")]
        );
    }
}
