//! In a cell with both families, what a scenario says of its default family holds of each: the second
//! one has traffic, promises and expectations of its own, named `NAME.ipv6`, which no scenario can name.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

use super::follow::tables;
use crate::{
    case::{
        Case, Claim, Destination, Expect, Family, Fault, IpFamily, OfFamily, Promise, Step, Traffic,
    },
    names::{PromiseName, TrafficName},
};

/// Whose traffic and promises are doubled, by the name that they have.
struct Second {
    first: Family,
    other: IpFamily,
    traffic: Vec<TrafficName>,
    promises: Vec<PromiseName>,
}

/// Gives a case whose cluster has both families the second one's part.
pub(super) fn both(case: &mut Case) {
    let [first, other] = case.cluster.ip_families[..] else {
        return;
    };
    let mut second = Second {
        first: tables(first),
        other,
        traffic: Vec::new(),
        promises: Vec::new(),
    };
    let traffic = std::mem::take(Arc::make_mut(&mut case.traffic));
    case.traffic = Arc::new(second.traffic(traffic, first, &case.manifests));
    let promises = std::mem::take(Arc::make_mut(&mut case.promises));
    case.promises = Arc::new(second.promises(promises));
    let timeline = std::mem::take(Arc::make_mut(&mut case.timeline));
    let timeline = timeline.into_iter().flat_map(|step| {
        let other = second.step(&step);
        [step].into_iter().chain(other)
    });
    case.timeline = Arc::new(timeline.collect());
    if let Expect::Broken(broken) = &mut case.expect {
        let doubled = broken.iter().filter(|name| second.promises.contains(name));
        let others: Vec<PromiseName> = doubled.map(|it| second.name(it.as_str()).into()).collect();
        broken.extend(others);
    }
}

impl Second {
    fn name(&self, name: &str) -> String {
        format!("{name}.{}", self.other.as_str().to_lowercase())
    }

    fn tables(&self) -> Family {
        tables(self.other)
    }

    /// Traffic that names no family, where its target has both.
    fn traffic(
        &mut self,
        all: IndexMap<TrafficName, Traffic>,
        first: IpFamily,
        manifests: &[Value],
    ) -> IndexMap<TrafficName, Traffic> {
        let mut each = IndexMap::new();
        for (name, mut traffic) in all {
            let other = traffic.family.is_none() && has_both(&traffic.to, manifests);
            let other = other.then(|| Traffic {
                family: Some(self.other),
                ..traffic.clone()
            });
            if other.is_some() {
                traffic.family = Some(first);
                self.traffic.push(name.clone());
            }
            let twin = TrafficName::from(self.name(name.as_str()));
            each.insert(name, traffic);
            each.extend(other.map(|other| (twin, other)));
        }
        each
    }

    fn promises(&mut self, all: IndexMap<PromiseName, Promise>) -> IndexMap<PromiseName, Promise> {
        let mut each = IndexMap::new();
        for (name, promise) in all {
            let other = self.claim(&promise.claim).map(|claim| Promise {
                claim,
                ..promise.clone()
            });
            let twin = PromiseName::from(self.name(name.as_str()));
            if other.is_some() {
                self.promises.push(name.clone());
            }
            each.insert(name, promise);
            each.extend(other.map(|other| (twin, other)));
        }
        each
    }

    /// What a claim says of the second family; nothing where it does not speak of the first.
    fn claim(&self, claim: &Claim) -> Option<Claim> {
        let mut other = claim.clone();
        match other.of_family()? {
            OfFamily::Traffic(traffic) => self.rename(traffic)?,
            OfFamily::Tables(family) => self.turn(family)?,
        }
        Some(other)
    }

    fn step(&self, step: &Step) -> Option<Step> {
        let mut other = step.clone();
        let Step::Fault { fault, .. } = &mut other else {
            return None;
        };
        match fault {
            Fault::Flush { rules, .. } | Fault::DeleteRule { rules, .. } => {
                self.turn(&mut rules.family)?;
            }
            _ => return None,
        }
        Some(other)
    }

    fn rename(&self, traffic: &mut TrafficName) -> Option<()> {
        let doubled = self.traffic.contains(traffic);
        *traffic = self.name(traffic.as_str()).into();
        doubled.then_some(())
    }

    fn turn(&self, family: &mut Family) -> Option<()> {
        let speaks = *family == self.first;
        *family = self.tables();
        speaks.then_some(())
    }
}

/// Whether a target of a cluster with both families has an address of each: a Service only where it asks for it.
fn has_both(to: &Destination, manifests: &[Value]) -> bool {
    let Some((namespace, name)) = to.service() else {
        return true;
    };
    let is = |object: &&Value| {
        let metadata = &object["metadata"];
        let within = metadata["namespace"].as_str().unwrap_or("default");
        object["kind"] == "Service" && metadata["name"] == *name && within == namespace
    };
    let policy = manifests.iter().find(is);
    let policy = policy.and_then(|service| service["spec"]["ipFamilyPolicy"].as_str());
    policy.is_some_and(|policy| policy != "SingleStack")
}
