//! What a modern kube-proxy leaves in the kernel: a cluster IP, and a load balancer with a source
//! range and the local traffic policy, whose chains Felix's list does not know (kube-proxy 1.32).

use crate::netns::{Backend, Netns};

pub(crate) const RULES: &str = r#"*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-NODEPORTS -p tcp -m comment --comment "test/lb:http health check node port" -m tcp --dport 32100 -j ACCEPT
-A KUBE-PROXY-FIREWALL -d 192.0.2.10/32 -p tcp -m comment --comment "test/lb:http traffic not accepted by KUBE-FW-VGUOL4GRNAEO3TE3" -m tcp --dport 80 -j DROP
COMMIT
*nat
:KUBE-EXT-VGUOL4GRNAEO3TE3 - [0:0]
:KUBE-FW-VGUOL4GRNAEO3TE3 - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-SEP-S7XCV467AW272WRX - [0:0]
:KUBE-SEP-XAAQ4E3V5J6GEKUJ - [0:0]
:KUBE-SEP-T274TAJ36YSJDWTK - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-IU46S4VZFN77LK6S - [0:0]
:KUBE-SVC-VGUOL4GRNAEO3TE3 - [0:0]
:KUBE-SVL-VGUOL4GRNAEO3TE3 - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-EXT-VGUOL4GRNAEO3TE3 -s 10.20.0.0/16 -m comment --comment "pod traffic for test/lb:http external destinations" -j KUBE-SVC-VGUOL4GRNAEO3TE3
-A KUBE-EXT-VGUOL4GRNAEO3TE3 -m comment --comment "masquerade LOCAL traffic for test/lb:http external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
-A KUBE-EXT-VGUOL4GRNAEO3TE3 -m comment --comment "route LOCAL traffic for test/lb:http external destinations" -m addrtype --src-type LOCAL -j KUBE-SVC-VGUOL4GRNAEO3TE3
-A KUBE-EXT-VGUOL4GRNAEO3TE3 -j KUBE-SVL-VGUOL4GRNAEO3TE3
-A KUBE-FW-VGUOL4GRNAEO3TE3 -s 203.0.113.0/24 -m comment --comment "test/lb:http loadbalancer IP" -j KUBE-EXT-VGUOL4GRNAEO3TE3
-A KUBE-FW-VGUOL4GRNAEO3TE3 -m comment --comment "other traffic to test/lb:http will be dropped by KUBE-PROXY-FIREWALL"
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-NODEPORTS -p tcp -m comment --comment "test/lb:http" -m tcp --dport 30080 -j KUBE-EXT-VGUOL4GRNAEO3TE3
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-SEP-S7XCV467AW272WRX -s 10.20.11.179/32 -m comment --comment "test/nginx:http" -j KUBE-MARK-MASQ
-A KUBE-SEP-S7XCV467AW272WRX -p tcp -m comment --comment "test/nginx:http" -m tcp -j DNAT --to-destination 10.20.11.179:80
-A KUBE-SEP-T274TAJ36YSJDWTK -s 10.20.10.127/32 -m comment --comment "test/lb:http" -j KUBE-MARK-MASQ
-A KUBE-SEP-T274TAJ36YSJDWTK -p tcp -m comment --comment "test/lb:http" -m tcp -j DNAT --to-destination 10.20.10.127:80
-A KUBE-SEP-XAAQ4E3V5J6GEKUJ -s 10.20.10.127/32 -m comment --comment "test/nginx:http" -j KUBE-MARK-MASQ
-A KUBE-SEP-XAAQ4E3V5J6GEKUJ -p tcp -m comment --comment "test/nginx:http" -m tcp -j DNAT --to-destination 10.20.10.127:80
-A KUBE-SERVICES -d 10.96.10.10/32 -p tcp -m comment --comment "test/nginx:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-IU46S4VZFN77LK6S
-A KUBE-SERVICES -d 10.96.10.20/32 -p tcp -m comment --comment "test/lb:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-VGUOL4GRNAEO3TE3
-A KUBE-SERVICES -d 192.0.2.10/32 -p tcp -m comment --comment "test/lb:http loadbalancer IP" -m tcp --dport 80 -j KUBE-FW-VGUOL4GRNAEO3TE3
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SVC-IU46S4VZFN77LK6S ! -s 10.20.0.0/16 -d 10.96.10.10/32 -p tcp -m comment --comment "test/nginx:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-IU46S4VZFN77LK6S -m comment --comment "test/nginx:http -> 10.20.10.127:80" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-XAAQ4E3V5J6GEKUJ
-A KUBE-SVC-IU46S4VZFN77LK6S -m comment --comment "test/nginx:http -> 10.20.11.179:80" -j KUBE-SEP-S7XCV467AW272WRX
-A KUBE-SVC-VGUOL4GRNAEO3TE3 -m comment --comment "test/lb:http -> 10.20.10.127:80" -j KUBE-SEP-T274TAJ36YSJDWTK
-A KUBE-SVL-VGUOL4GRNAEO3TE3 -m comment --comment "test/lb:http -> 10.20.10.127:80" -j KUBE-SEP-T274TAJ36YSJDWTK
COMMIT
"#;

/// Puts kube-proxy's rules below what is there.
pub(crate) fn program(netns: &Netns, backend: Backend) {
    let restore = format!("iptables-{}-restore", backend.word());
    netns.must(&[&restore, "--noflush"], RULES);
}
