//! The chain that a rule is asked for in: called by its name, or by the service that it is kube-proxy's for.

use chainbreak_netfilter::names::{Namespaced, PortName, Protocol, ServiceChain};

use super::{
    super::{
        fields::{Fields, note, text, word},
        manifests::ServicePort,
        traffic,
        words::TABLES,
    },
    Reading,
};
use crate::{case::RuleChain, nearest::suggest, yaml::Node};

impl Reading<'_> {
    /// The table and the chain; `native` when they are asked for through `nft`.
    pub(super) fn chain(&self, fields: &Fields<'_>, native: bool) -> Option<(String, RuleChain)> {
        if fields.get("service").is_some() {
            return self.chain_of_service(fields, native);
        }
        let gathered = self.gathered;
        let table = fields.need_here("table", |node| {
            if native {
                return self.nft_name(node, "table");
            }
            word(gathered, node, "table", &TABLES).map(str::to_owned)
        });
        let chain = fields.need("chain", |node| self.chain_name(node, native));
        Some((table?, RuleChain::Named(chain?)))
    }

    /// Of one kind, and in the table in which kube-proxy has those of services.
    fn chain_of_service(&self, fields: &Fields<'_>, native: bool) -> Option<(String, RuleChain)> {
        let gathered = self.gathered;
        let of = self.service_port(fields.get("service")?);
        let which = fields.need("chain", |node| {
            word(gathered, node, "a service's chain", &ServiceChain::ALL)
        });
        let home = if native { "kube-proxy" } else { "nat" };
        let table = fields.maybe("table", |node| {
            let written = text(gathered, node, "table")?;
            if written != home {
                let message = format!("chains of services are in the table {home}");
                note(
                    gathered,
                    &node.place,
                    message,
                    Some("leave it out".to_owned()),
                );
            }
            Some(())
        });
        if native && fields.get("family").and_then(Node::text) == Some("inet") {
            let message = "kube-proxy has a table of each family, and none for both";
            let hint = "write `family: ip` or `family: ip6`".to_owned();
            note(gathered, &fields.key("family"), message, Some(hint));
        }
        let chain = RuleChain::OfService {
            which: which?,
            of: of?,
        };
        table?;
        Some((home.to_owned(), chain))
    }

    /// `[NAMESPACE/]NAME[:PORT]`: a port, by its name, that a Service of the manifests has.
    fn service_port(&self, node: &Node) -> Option<PortName> {
        let (gathered, world) = (self.gathered, self.known.world);
        let written = text(gathered, node, "service")?;
        let (full, port) = written.split_once(':').unwrap_or((written, ""));
        let (namespace, name) = full.split_once('/').unwrap_or(("default", full));
        let (namespace, name) = traffic::service(gathered, node, world, namespace, name)?;
        // Else not everything of the manifests could be read, which is said there.
        let ports = &world.manifests.service(&namespace, &name)?.ports;
        let service = Namespaced::new(namespace, name);
        let Some(found) = ports.iter().find(|it| it.name == port) else {
            self.no_such_port(node, &service, port, ports);
            return None;
        };
        let Some(protocol) = Protocol::from_api(Some(found.protocol.as_str())) else {
            let of = &found.protocol;
            let message = format!("service {service} is of the protocol {of:?}: it has no chains");
            note(gathered, &node.place, message, None);
            return None;
        };
        Some(PortName {
            service,
            port: port.to_owned(),
            protocol,
        })
    }

    /// Without any port it is the Service's mistake, and said there.
    fn no_such_port(&self, at: &Node, service: &Namespaced, port: &str, ports: &[ServicePort]) {
        if ports.is_empty() {
            return;
        }
        let message = match port {
            "" => format!("service {service} has no port without a name"),
            port => format!("service {service} has no port {port:?}"),
        };
        let there = ports.iter().map(|it| match it.name.as_str() {
            "" => service.to_string(),
            name => format!("{service}:{name}"),
        });
        let there: Vec<String> = there.collect();
        let meant = if port.is_empty() {
            service.to_string()
        } else {
            format!("{service}:{port}")
        };
        let hint = suggest(&meant, there.iter().map(String::as_str));
        note(self.gathered, &at.place, message, hint);
    }

    /// A chain's or a target's name.
    pub(super) fn chain_name(&self, node: &Node, native: bool) -> Option<String> {
        if native {
            return self.nft_name(node, "chain");
        }
        let written = text(self.gathered, node, "chain")?;
        // iptables allows 28 bytes.
        if written.len() > 28 || written.contains(char::is_whitespace) || written.starts_with('-') {
            let message = format!("{written:?} cannot be the name of a chain");
            let hint = "iptables allows 28 characters".to_owned();
            note(self.gathered, &node.place, message, Some(hint));
            return None;
        }
        Some(written.to_owned())
    }

    /// A name in nftables.
    pub(super) fn nft_name(&self, node: &Node, what: &str) -> Option<String> {
        let written = text(self.gathered, node, what)?;
        if written.contains(char::is_whitespace) || written.contains(['{', '}', ';', '"']) {
            let message = format!("{written:?} cannot be the name of a {what}");
            note(self.gathered, &node.place, message, None);
            return None;
        }
        Some(written.to_owned())
    }
}
