//! Links, addresses and routes: rendered as `ip` commands by pure functions, applied by one
//! `ip -batch -` for each place.
//!
//! ```text
//! worker's own namespace     bridge "underlay" 10.0.0.1, a port for each node and host, and for pods' further interfaces
//! node                       eth0 on the underlay, a route for each other node's pods, cali… or eni… for each pod,
//!                            vxlan.calico and vxlan-v6.calico where some pool is carried by them
//! pod                        eth0 with a /32, everything goes to 169.254.1.1, whom proxy ARP answers for
//! ```

use std::{fmt::Write, net::IpAddr, process::Stdio};

use chainbreak_model::{case::PodOwner, pod_network::Attachment};
use ipnet::IpNet;
use sha1::{Digest, Sha1};
use tokio::{io::AsyncWriteExt, process::Child};

use crate::{
    addresses::{POD_GATEWAY, Plan},
    error::LabError,
    place::PlaceThread,
};

/// The bridge of the underlay, in the worker's own namespace.
pub(crate) const BRIDGE: &str = "underlay";
/// The bridge's own MAC address. One that nobody chose is that of the lowest port: it would change with a pod's
/// further interface, and nodes that have asked for the API's would talk to nobody until they ask again, up to
/// a minute later.
const BRIDGE_MAC: &str = "0e:00:00:00:00:01";
/// The MAC address of every host-side pod interface, as Calico sets it.
const POD_HOST_MAC: &str = "ee:ee:ee:ee:ee:ee";

/// Something that hangs on the underlay.
#[derive(Debug, Clone, Copy)]
pub struct Port {
    /// The thread in whose namespace its `eth0` goes.
    pub tid: i32,
    /// Its address.
    pub address: IpAddr,
}

/// The underlay: bridge, the API's address and its first endpoint's, how it answers pods, and a port for each node and host.
pub fn underlay(plan: Plan, answers: &End, ports: &[Port]) -> String {
    let mut batch = format!(
        "link set lo up\n\
         link add {BRIDGE} address {BRIDGE_MAC} type bridge stp_state 0 forward_delay 0\n\
         addr add {}/{} dev {BRIDGE}\n\
         addr add {}/{} dev {BRIDGE}\n\
         link set {BRIDGE} up\n",
        plan.api(),
        plan.underlay_prefix(),
        plan.api_endpoint(0),
        plan.underlay_prefix()
    );
    for (number, port) in ports.iter().enumerate() {
        let tid = port.tid;
        line(
            &mut batch,
            format_args!("link add u{number} type veth peer name eth0 netns {tid}"),
        );
        line(
            &mut batch,
            format_args!("link set u{number} master {BRIDGE} up"),
        );
    }
    batch.push_str(&routes(answers));
    batch
}

/// A node's or host's end of the underlay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// Beside the one on the underlay.
    pub addresses: Vec<IpAddr>,
    /// What is reached through whom: other nodes' pods, hosts' further addresses, a host's own routes.
    pub routes: Vec<(IpNet, IpAddr)>,
}

/// A node's or host's end. Of two routes to the same the later one holds.
pub fn end(plan: Plan, address: IpAddr, end: &End) -> String {
    let mut batch = format!(
        "link set lo up\n\
         addr add {address}/{} dev eth0\n\
         link set eth0 up\n\
         route add default via {}\n",
        plan.underlay_prefix(),
        plan.api()
    );
    for further in &end.addresses {
        line(
            &mut batch,
            format_args!("addr add {} dev eth0", IpNet::from(*further)),
        );
    }
    batch.push_str(&routes(end));
    batch
}

/// What is reached through whom.
fn routes(end: &End) -> String {
    let mut batch = String::new();
    for (range, via) in &end.routes {
        line(&mut batch, format_args!("route replace {range} via {via}"));
    }
    batch
}

/// A node's end of a tunnel, as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelEnd {
    /// The node's address on the underlay.
    pub node: IpAddr,
    /// In the tunnel.
    pub tunnel: IpAddr,
    /// In the tunnel.
    pub mac: String,
    /// What is reached through it.
    pub blocks: Vec<IpNet>,
}

/// A node's end of a VXLAN tunnel, `own` as others see it: input of `ip`, and what `bridge` is told after that.
pub fn tunnel(device: &str, own: &TunnelEnd, others: &[TunnelEnd]) -> (String, String) {
    let (node, address, mac) = (own.node, IpNet::from(own.tunnel), &own.mac);
    let mut batch = format!(
        "link add {device} address {mac} type vxlan id 4096 local {node} dev eth0 dstport 4789 nolearning\n\
         addr add {address} dev {device}\n\
         link set {device} up\n"
    );
    let mut forwarding = String::new();
    for TunnelEnd {
        node,
        tunnel,
        mac,
        blocks,
    } in others
    {
        let permanent = format_args!("neigh add {tunnel} lladdr {mac} dev {device} nud permanent");
        line(&mut batch, permanent);
        for block in blocks {
            let route = format_args!("route add {block} via {tunnel} dev {device} onlink");
            line(&mut batch, route);
        }
        let entry = format_args!("fdb append {mac} dev {device} dst {node}");
        line(&mut forwarding, entry);
    }
    (batch, forwarding)
}

/// A further interface of a pod, on the underlay's bridge: input in the worker's namespace, then in the pod's.
pub fn attachment(port: &str, tid: i32, attachment: &Attachment) -> (String, String) {
    let Attachment {
        interface,
        addresses,
    } = attachment;
    let bridge = format!(
        "link add {port} type veth peer name {interface} netns {tid}\n\
         link set {port} master {BRIDGE} up\n"
    );
    let mut pod = String::new();
    for address in addresses {
        let add = format_args!("addr add {address} dev {interface}");
        line(&mut pod, add);
    }
    line(&mut pod, format_args!("link set {interface} up"));
    (bridge, pod)
}

/// The name of the bridge's port for a pod's further interface.
pub fn attachment_port(namespace: &str, name: &str, interface: &str) -> String {
    self::interface("port", namespace, &format!("{name}.{interface}"))
}

/// A pod's link as its node sees it. Proxy ARP answers at once instead of after a random delay; this
/// way of setting it also works in a user namespace, where the file of that setting is missing.
pub fn pod_on_node(interface: &str, tid: i32, address: IpAddr) -> String {
    format!(
        "link add {interface} address {POD_HOST_MAC} type veth peer name eth0 netns {tid}\n\
         ntable change name arp_cache dev {interface} proxy_delay 0\n\
         link set {interface} up\n\
         route add {address}/32 dev {interface} scope link\n"
    )
}

/// A pod's link as the pod sees it.
pub fn pod_itself(address: IpAddr, mtu: Option<u16>) -> String {
    let mtu = mtu.map_or(String::new(), |mtu| format!("mtu {mtu} "));
    format!(
        "link set lo up\n\
         addr add {address}/32 dev eth0\n\
         link set eth0 {mtu}up\n\
         route add {POD_GATEWAY} dev eth0 scope link\n\
         route add default via {POD_GATEWAY} dev eth0\n"
    )
}

/// With what the interfaces of another CNI's pods begin, as Amazon's.
pub(crate) const OTHERS: &str = "eni";

/// What names a pod's interface on its node, by namespace and name: Calico's prefix and hash (`VethNameForWorkload`), or those of
/// another CNI, which Felix looks for where its prefix is set so.
pub fn pod_interface(owner: PodOwner) -> fn(&str, &str) -> String {
    match owner {
        PodOwner::Calico => |namespace, name| interface("cali", namespace, name),
        PodOwner::ThirdParty => |namespace, name| interface(OTHERS, namespace, name),
    }
}

fn interface(prefix: &str, namespace: &str, name: &str) -> String {
    let digest = Sha1::digest(format!("{namespace}.{name}"));
    let hex = digest.iter().take(6).fold(String::new(), |mut hex, byte| {
        line_free(&mut hex, format_args!("{byte:02x}"));
        hex
    });
    hex.chars()
        .take(11)
        .fold(prefix.to_owned(), |mut interface, digit| {
            interface.push(digit);
            interface
        })
}

/// Runs a batch of `ip` in a place.
pub async fn apply(place: &PlaceThread, batch: String) -> Result<(), LabError> {
    apply_by(place, "ip", batch).await
}

/// Runs a batch of `ip` or `bridge` in a place.
pub async fn apply_by(
    place: &PlaceThread,
    program: &'static str,
    batch: String,
) -> Result<(), LabError> {
    let argv = [program, "-batch", "-"];
    let started = place.spawn(&argv, |command| {
        command.stdout(Stdio::null());
    });
    let child = started.await;
    finish(place.name(), child, batch).await
}

/// Runs a batch in the worker's own network namespace.
pub async fn apply_here(batch: String) -> Result<(), LabError> {
    let child = tokio::process::Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    finish("the underlay", child, batch).await
}

async fn finish(what: &str, child: std::io::Result<Child>, batch: String) -> Result<(), LabError> {
    let failed = |stderr: String| LabError::Wire {
        what: what.to_owned(),
        stderr,
    };
    let mut child = child.map_err(|error| failed(format!("ip: {error}")))?;
    let mut stdin = child.stdin.take().expect("standard input is piped");
    // `ip` reads while it works and says nothing before its first failure: writing all first is safe
    // for batches that fit its reading, and a broken pipe means that it failed and says why.
    let written = stdin.write_all(batch.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() && written.is_ok() {
        return Ok(());
    }
    Err(failed(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}

fn line(batch: &mut String, text: std::fmt::Arguments<'_>) {
    line_free(batch, text);
    batch.push('\n');
}

fn line_free(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::block;

    #[test]
    fn a_pods_interface_is_named_as_calico_names_it() {
        // The digits are those of `printf ns1.pod1 | sha1sum`.
        let calico = pod_interface(PodOwner::Calico)("ns1", "pod1");
        assert_eq!(calico, "calie822bf90b23");
        let other = pod_interface(PodOwner::ThirdParty)("ns1", "pod1");
        assert_eq!(other, "enie822bf90b23");
    }

    #[test]
    fn the_underlays_own_address_stays_whatever_is_attached_to_it() {
        let batch = underlay(Plan::ipv4(), &End::default(), &[]);
        let lowest = "link add low address 02:00:00:00:00:01 type veth peer name other\n\
                      link set low master underlay up\n\
                      link show underlay\n";
        let mut child = std::process::Command::new("unshare")
            .args(["-Urn", "ip", "-o", "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        std::io::Write::write_all(&mut stdin.unwrap(), (batch + lowest).as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains(BRIDGE_MAC), "{shown}");
    }

    #[test]
    fn a_tunnel_knows_every_other_node_as_felix_tells_it() {
        let plan = Plan::ipv4();
        let pool = "10.30.0.0/16".parse().unwrap();
        let end = |number: u8, mac: &str| TunnelEnd {
            node: plan.node(number.into()),
            tunnel: [10, 30, number, 1].into(),
            mac: mac.to_owned(),
            blocks: vec![block(pool, number.into())],
        };
        let (own, other) = (end(1, "66:00:00:00:00:01"), end(2, "66:00:00:00:00:02"));
        let (ip, bridge) = tunnel("vxlan.calico", &own, &[other]);
        insta::assert_snapshot!(format!("{ip}{bridge}"), @r"
        link add vxlan.calico address 66:00:00:00:00:01 type vxlan id 4096 local 10.0.1.1 dev eth0 dstport 4789 nolearning
        addr add 10.30.1.1/32 dev vxlan.calico
        link set vxlan.calico up
        neigh add 10.30.2.1 lladdr 66:00:00:00:00:02 dev vxlan.calico nud permanent
        route add 10.30.2.0/24 via 10.30.2.1 dev vxlan.calico onlink
        fdb append 66:00:00:00:00:02 dev vxlan.calico dst 10.0.1.2
        ");
    }

    #[test]
    fn a_node_routes_to_each_other_nodes_pods() {
        let plan = Plan::ipv4();
        let one = End {
            addresses: vec![[192, 0, 2, 7].into()],
            routes: vec![(block(plan.pods(), 2), plan.node(2))],
        };
        let batch = end(plan, plan.node(1), &one);
        assert_eq!(
            batch,
            "link set lo up\n\
             addr add 10.0.1.1/16 dev eth0\n\
             link set eth0 up\n\
             route add default via 10.0.0.1\n\
             addr add 192.0.2.7/32 dev eth0\n\
             route replace 10.20.2.0/24 via 10.0.1.2\n"
        );
    }
}
