//! What shows that both have seen everything: a service that is written last.

use std::net::{IpAddr, Ipv4Addr};

use chainbreak_model::case::{IpFamily, ProxyMode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{compare::Rules, families, stage::Stage};

/// The service and the slice that end a round carry its number. Watches are ordered, so rules that show
/// both were made from all that was written before.
const MARKER: &str = "10.96.255.1";
pub(crate) const FIRST_MARK: usize = 1000;

/// What a round ends with.
#[derive(Default)]
pub(crate) struct Settle {
    pub(crate) marks: Vec<Mark>,
    /// Texts that both have to have said so often.
    pub(crate) said: Vec<(&'static str, usize)>,
}

/// What the rules of a family have to show: one of these texts.
#[derive(Debug, Serialize)]
pub(crate) struct Mark {
    family: IpFamily,
    /// One of iptables' tables.
    table: Option<&'static str>,
    any: Vec<String>,
}

impl Settle {
    pub(crate) fn said(&mut self, stage: Stage, text: &'static str, times: usize) {
        self.said.push((text, times));
        for &family in stage.families.all() {
            for table in ["mangle", "nat", "filter"] {
                self.mark(family, Some(table), &[":KUBE-PROXY-CANARY ".to_owned()]);
            }
        }
    }

    pub(crate) fn marked(&mut self, stage: Stage, mark: usize) {
        for &family in stage.families.all() {
            let (ip, endpoint) = (marker_ip(family), marker_endpoint(family));
            let to = match endpoint {
                IpAddr::V4(ip) => format!("{ip}:{mark}"),
                IpAddr::V6(ip) => format!("[{ip}]:{mark}"),
            };
            match stage.mode {
                ProxyMode::Iptables => {
                    let jump = format!("cluster IP\" -m tcp --dport {mark} -j KUBE-SVC-");
                    let service = format!("\"default/marker {jump}");
                    self.mark(family, Some("nat"), &[service]);
                    self.mark(family, Some("nat"), &[format!("--to-destination {to}\n")]);
                }
                ProxyMode::Nftables => {
                    self.mark(
                        family,
                        None,
                        &[format!("{ip} . tcp . {mark} : goto service-")],
                    );
                    let dnat = [
                        format!(" dnat to {to}\n"),
                        format!(" : {endpoint} . {mark} }}\n"),
                    ];
                    self.mark(family, None, &dnat);
                }
                ProxyMode::Ipvs => unreachable!("no model plays it"),
            }
        }
    }

    fn mark<const N: usize>(
        &mut self,
        family: IpFamily,
        table: Option<&'static str>,
        any: &[String; N],
    ) {
        let any = any.to_vec();
        self.marks.push(Mark { family, table, any });
    }

    /// What the rules do not show yet.
    pub(crate) fn lacking(&self, rules: &Rules) -> Vec<String> {
        let shown = |mark: &Mark| {
            let rules = rules.get(&mark.family).map_or("", String::as_str);
            mark.any.iter().any(|text| rules.contains(text))
        };
        let lacking = self.marks.iter().filter(|mark| !shown(mark));
        lacking
            .map(|mark| format!("{}: {}", mark.family, mark.any[0]))
            .collect()
    }
}

/// The cluster IP of the marker.
fn marker_ip(family: IpFamily) -> String {
    match family {
        IpFamily::V4 => MARKER.to_owned(),
        IpFamily::V6 => families::cluster_ip(MARKER),
    }
}

/// The address of its endpoint.
fn marker_endpoint(family: IpFamily) -> IpAddr {
    family.address(Ipv4Addr::new(10, 20, 255, 1).into())
}

/// The service and its slices that end a round.
pub(crate) fn marker(stage: Stage, mark: usize) -> Vec<Value> {
    let all = stage.families.all();
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "marker", "namespace": "default" },
        "spec": { "clusterIP": MARKER, "ports": [{ "port": mark }] },
    });
    if all != [IpFamily::V4] {
        let ips: Vec<_> = all.iter().map(|&it| (it, marker_ip(it))).collect();
        families::give(&mut service, &ips);
    }
    let slices = all.iter().map(|&family| {
        let name = match family {
            IpFamily::V4 => "marker",
            IpFamily::V6 => "marker-v6",
        };
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": name, "namespace": "default",
                "labels": { "kubernetes.io/service-name": "marker" },
            },
            "addressType": family,
            "endpoints": [{ "addresses": [marker_endpoint(family)] }],
            "ports": [{ "name": "", "port": mark, "protocol": "TCP" }],
        })
    });
    [service].into_iter().chain(slices).collect()
}
