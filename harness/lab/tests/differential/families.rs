//! From a world that is drawn in IPv4 to one of other families: every address has a twin in IPv6.
//!
//! In IPv6 each address is its twin. In a dual-stack world services have both families, in either order, or
//! one of them, by their number; and every slice of IPv4 has a twin of IPv6 beside it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use chainbreak_model::case::IpFamily;
use ipnet::{IpNet, Ipv6Net};
use serde_json::{Value, json};

use crate::{sequence::Operation, stage::Families};

/// What ends the names of slices that are twins.
const TWIN: &str = "-twin";

/// What an operation that is drawn in IPv4 is in these families.
pub(crate) fn operations(families: Families, operation: Operation) -> Vec<Operation> {
    match (families, operation) {
        (Families::V6, Operation::Put(object)) => vec![Operation::Put(in_v6(object))],
        (Families::Dual, Operation::Put(object)) => {
            both(object).into_iter().map(Operation::Put).collect()
        }
        (Families::Dual, Operation::Delete(object)) if object["kind"] == "EndpointSlice" => {
            let twin = twin_of(object.clone());
            vec![Operation::Delete(object), Operation::Delete(twin)]
        }
        (_, operation) => vec![operation],
    }
}

/// A script of IPv4 in a family: its words that are addresses, networks and names of programs and tables.
pub(crate) fn script(family: IpFamily, script: &str) -> String {
    if family == IpFamily::V4 {
        return script.to_owned();
    }
    let script = script.replace("iptables", "ip6tables");
    let words = script.split(' ').map(|word| match word {
        "ip" => "ip6".to_owned(),
        "ipv4_addr" => "ipv6_addr".to_owned(),
        word => other(word).unwrap_or_else(|| word.to_owned()),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The IPv6 cluster IP of one in IPv4. The range of these is the lowest 16 bits.
pub(crate) fn cluster_ip(v4: &str) -> String {
    let twin = twin(v4.parse().expect("cluster IPs are drawn in IPv4"));
    let [_, _, a, b] = v4
        .parse::<Ipv4Addr>()
        .expect("cluster IPs are drawn in IPv4")
        .octets();
    let base = IpFamily::V6.address(Ipv4Addr::new(10, 96, 0, 0).into());
    match (base, twin) {
        (IpAddr::V6(base), IpAddr::V6(_)) => {
            let mut segments = base.segments();
            segments[7] = u16::from_be_bytes([a, b]);
            Ipv6Addr::from(segments).to_string()
        }
        _ => unreachable!("a twin is of IPv6"),
    }
}

fn twin(v4: Ipv4Addr) -> IpAddr {
    IpFamily::V6.address(v4.into())
}

/// The twin of an address or network; an address of IPv6 gets one of IPv4 that nobody else has.
fn other(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(match address {
            IpAddr::V4(v4) => twin(v4).to_string(),
            IpAddr::V6(v6) => {
                let [.., last] = v6.octets();
                Ipv4Addr::new(10, 21, v6.octets()[3], last).to_string()
            }
        });
    }
    let IpNet::V4(net) = text.parse().ok()? else {
        return None;
    };
    let exact = IpFamily::V6.net(net.into());
    // No IPv6 network has just the twins of these: any will do, as long as bits beyond the prefix stay.
    let IpAddr::V6(address) = twin(net.addr()) else {
        return None;
    };
    let about = IpNet::V6(Ipv6Net::new_assert(address, 40));
    Some(exact.unwrap_or(about).to_string())
}

fn others(list: &mut Value) {
    let texts = list.as_array_mut().into_iter().flatten();
    for text in texts {
        if let Some(other) = text.as_str().and_then(other) {
            *text = json!(other);
        }
    }
}

fn in_v6(mut object: Value) -> Value {
    if object["kind"] == "EndpointSlice" {
        return slice_in_other(object);
    }
    if let Some(ip) = object["spec"]["clusterIP"]
        .as_str()
        .filter(|it| *it != "None")
    {
        object["spec"]["clusterIP"] = json!(cluster_ip(ip));
    }
    for list in ["/spec/externalIPs", "/spec/loadBalancerSourceRanges"] {
        object.pointer_mut(list).into_iter().for_each(others);
    }
    let ingress = object.pointer_mut("/status/loadBalancer/ingress");
    let ingress = ingress.and_then(Value::as_array_mut);
    for point in ingress.into_iter().flatten() {
        if let Some(ip) = point["ip"].as_str().and_then(other) {
            point["ip"] = json!(ip);
        }
    }
    object
}

fn slice_in_other(mut slice: Value) -> Value {
    let type_ = if slice["addressType"] == "IPv4" {
        "IPv6"
    } else {
        "IPv4"
    };
    slice["addressType"] = json!(type_);
    let endpoints = slice["endpoints"].as_array_mut().into_iter().flatten();
    for endpoint in endpoints {
        others(&mut endpoint["addresses"]);
    }
    slice
}

fn twin_of(mut slice: Value) -> Value {
    let name = slice["metadata"]["name"].as_str().unwrap_or_default();
    slice["metadata"]["name"] = json!(format!("{name}{TWIN}"));
    slice
}

/// A slice and its twin, or a service of both families.
fn both(mut object: Value) -> Vec<Value> {
    if object["kind"] == "EndpointSlice" {
        let twin = (object["addressType"] == "IPv4").then(|| {
            let mut twin = slice_in_other(twin_of(object.clone()));
            // Not all endpoints have both families.
            let endpoints = twin["endpoints"].as_array_mut();
            endpoints.and_then(Vec::pop);
            twin
        });
        return [object].into_iter().chain(twin).collect();
    }
    let Some(v4) = object["spec"]["clusterIP"].as_str().map(str::to_owned) else {
        return vec![object];
    };
    if v4 == "None" {
        return vec![object];
    }
    let v6 = in_v6(object.clone());
    for list in ["/spec/externalIPs", "/spec/loadBalancerSourceRanges"] {
        mix(&mut object, &v6, list);
    }
    mix(&mut object, &v6, "/status/loadBalancer/ingress");
    let number = v4.rsplit('.').next().and_then(|it| it.parse::<u16>().ok());
    let v4 = (IpFamily::V4, v4.clone());
    let v6 = (IpFamily::V6, cluster_ip(&v4.1));
    give(
        &mut object,
        &match number.unwrap_or_default() % 4 {
            0 => vec![v4],
            1 => vec![v6],
            2 => vec![v6, v4],
            _ => vec![v4, v6],
        },
    );
    vec![object]
}

/// Gives a service these cluster IPs.
pub(crate) fn give(service: &mut Value, ips: &[(IpFamily, String)]) {
    let (families, ips): (Vec<_>, Vec<_>) = ips.iter().cloned().unzip();
    let policy = if ips.len() > 1 {
        "RequireDualStack"
    } else {
        "SingleStack"
    };
    service["spec"]["clusterIP"] = json!(ips[0]);
    service["spec"]["clusterIPs"] = json!(ips);
    service["spec"]["ipFamilies"] = json!(families);
    service["spec"]["ipFamilyPolicy"] = json!(policy);
}

/// What the list has in either family.
fn mix(object: &mut Value, twin: &Value, list: &str) {
    let (Some(Value::Array(ours)), Some(Value::Array(theirs))) =
        (object.pointer_mut(list), twin.pointer(list))
    else {
        return;
    };
    let known = ours.clone();
    ours.extend(theirs.iter().filter(|it| !known.contains(it)).cloned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_of_ipv4_is_said_in_ipv6_word_by_word() {
        let script = |text| script(IpFamily::V6, text);
        assert_eq!(
            script("iptables -t nat -A POSTROUTING -s 192.0.2.0/24 -j ACCEPT"),
            "ip6tables -t nat -A POSTROUTING -s fd00:192::2:0/112 -j ACCEPT"
        );
        assert_eq!(
            script("nft flush table ip kube-proxy"),
            "nft flush table ip6 kube-proxy"
        );
    }

    #[test]
    fn in_both_families_a_slice_has_a_twin_and_a_service_two_addresses() {
        let slice = json!({
            "kind": "EndpointSlice", "metadata": { "name": "s2-a" }, "addressType": "IPv4",
            "endpoints": [{ "addresses": ["10.20.3.2"] }, { "addresses": ["10.20.3.11"] }],
        });
        let Operation::Put(twin) = operations(Families::Dual, Operation::Put(slice)).remove(1)
        else {
            panic!("a twin is put");
        };
        assert_eq!(
            twin["endpoints"],
            json!([{ "addresses": ["fd00:10:20::3:2"] }])
        );
        assert_eq!(twin["metadata"]["name"], "s2-a-twin");
        let service = json!({ "kind": "Service", "spec": { "clusterIP": "10.96.1.2" } });
        let Operation::Put(service) = operations(Families::Dual, Operation::Put(service)).remove(0)
        else {
            panic!("a service is put");
        };
        assert_eq!(
            service["spec"]["clusterIPs"],
            json!(["fd00:10:96::102", "10.96.1.2"])
        );
    }
}
