//! Kernel settings.

use chainbreak_model::case::Origin;
use indexmap::IndexMap;

use super::{Injection, command};
use crate::{
    cluster::{Debt, Place},
    infra_error::InfraError,
};

impl Injection<'_> {
    /// Sets each setting, in one place or on every node.
    pub(super) async fn sysctl(
        &mut self,
        at: Option<&Origin>,
        set: &IndexMap<String, String>,
    ) -> Result<(), InfraError> {
        for place in self.places(at) {
            for (name, value) in set {
                self.set(&place, name, value).await?;
            }
        }
        Ok(())
    }

    /// The given place, or every node.
    pub(super) fn places(&self, at: Option<&Origin>) -> Vec<Place> {
        match at {
            Some(at) => vec![at.into()],
            None => self.nodes(None).into_iter().map(Place::Node).collect(),
        }
    }

    async fn set(&mut self, at: &Place, name: &str, value: &str) -> Result<(), InfraError> {
        let path = path(name);
        let before = words(&self.run(at, &["cat", &path]).await?);
        let debt = Debt {
            text: format!("set {name} in {at} back to {before}"),
            at: at.clone(),
            command: command(&["tee", &path]),
            input: before.clone(),
        };
        self.undo_by(debt).await?;
        self.feed(at, &["tee", &path], value).await?;
        let now = words(&self.run(at, &["cat", &path]).await?);
        if now != words(value) {
            let doing = format!("set {name} to {value} in {at}");
            return Err(InfraError::new(doing, format!("it is {now} after that")));
        }
        self.say(format!("set {name} to {value} in {at}; it was {before}"));
        Ok(())
    }
}

/// Where a setting is: dots are folders, and a slash in the name of an interface is its dot (sysctl(8)).
pub(super) fn path(name: &str) -> String {
    let swapped = name.chars().map(|c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    });
    format!("/proc/sys/{}", swapped.collect::<String>())
}

/// The kernel puts tabs between values that were written with blanks.
fn words(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_an_interface_with_a_dot_is_written_as_sysctl_takes_it() {
        assert_eq!(path("net.ipv4.ip_forward"), "/proc/sys/net/ipv4/ip_forward");
        let of_vlan = "/proc/sys/net/ipv4/conf/eth0.7/rp_filter";
        assert_eq!(path("net.ipv4.conf.eth0/7.rp_filter"), of_vlan);
    }
}
