//! The chains of one workload and of the profiles it has (`felix/rules/endpoints.go` and policy.go).
//! Policies are not modelled: a pod has the profiles of its namespace and of its service account.

use std::net::IpAddr;

use super::{
    hashes::chain_name,
    renderer::{Renderer, clear, set_mark, state},
    rule::{Chain, Rule},
};

/// A pod on this node whose interface Calico owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The host's end of its interface: `cali1234567890a`.
    pub interface: String,
    /// Profiles in order: `kns.default`, `ksa.default.default`.
    pub profiles: Vec<String>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    To,
    From,
}

impl Renderer {
    /// The chains for packets to and from a workload.
    pub(super) fn workload(&self, workload: &Workload) -> [Chain; 2] {
        [Direction::To, Direction::From].map(|direction| {
            let prefix = match direction {
                Direction::To => "cali-tw-",
                Direction::From => "cali-fw-",
            };
            let rules = self.endpoint(workload, direction);
            Chain::new(chain_name(prefix, &workload.interface), rules)
        })
    }

    fn endpoint(&self, workload: &Workload, direction: Direction) -> Vec<Rule> {
        let deny = || Rule::then(self.deny());
        let mut rules = self.conntrack();
        rules.push(clear(self.marks.accept | self.marks.pass));
        if direction == Direction::From {
            rules.extend(self.encapsulated());
        }
        let prefix = match direction {
            Direction::To => "cali-pri-",
            Direction::From => "cali-pro-",
        };
        for profile in &workload.profiles {
            rules.extend([
                Rule::jump(chain_name(prefix, profile)),
                Rule::then("RETURN")
                    .saying("Return if profile accepted")
                    .when(self.accepted()),
            ]);
        }
        rules.push(deny().saying(&format!("{} if no profiles matched", self.deny_word())));
        rules
    }

    /// Known flows pass, and packets that conntrack calls INVALID are denied before any policy.
    fn conntrack(&self) -> Vec<Rule> {
        let known = || state("RELATED,ESTABLISHED");
        let mut rules = Vec::new();
        if self.allow() != "ACCEPT" {
            rules.push(set_mark(self.marks.accept, self.marks.accept).when(known()));
        }
        rules.push(Rule::then(self.allow()).when(known()));
        if !self.params.is("DisableConntrackInvalidCheck") {
            rules.push(Rule::then(self.deny()).when(state("INVALID")));
        }
        rules
    }

    /// A workload must not reach around policy by encapsulating its packets itself.
    fn encapsulated(&self) -> Vec<Rule> {
        let deny = |what: &str| {
            let comment = format!(
                "{} {what} encapped packets originating in workloads",
                self.deny_word()
            );
            Rule::then(self.deny()).saying(&comment)
        };
        let port = self.params.number("VXLANPort");
        let mut rules = Vec::new();
        if !self.params.is("AllowVXLANPacketsFromWorkloads") {
            let ports = format!("-m multiport --destination-ports {port}");
            rules.push(deny("VXLAN").when("-p 17").when(ports));
        }
        if !self.params.is("AllowIPIPPacketsFromWorkloads") {
            rules.push(deny("IPinIP").when("-p 4"));
        }
        rules
    }

    /// The chains of a profile. A namespace's profile allows everything, a service account's says nothing.
    pub(super) fn profile(&self, profile: &str) -> [Chain; 2] {
        [("cali-pri-", "ingress"), ("cali-pro-", "egress")].map(|(prefix, direction)| {
            let rule = if profile.starts_with("kns.") {
                set_mark(self.marks.accept, self.marks.accept)
            } else {
                Rule::default()
            };
            let rule = rule.saying(&format!("Profile {profile} {direction}"));
            Chain::new(chain_name(prefix, profile), vec![rule])
        })
    }
}
