//! iptables and nftables as text: what `iptables-save` prints, what `iptables-restore` and `iptables` are told, and
//! what such a command changes. Pure: nothing here runs a program or reads a clock.
//!
//! - [`Ruleset`] is a parsed `iptables-save`; [`Ruleset::count`] and [`Ruleset::drops`] ask it.
//! - [`changes`] names what a command was told to change; [`committed`] what it did change, given how it ended.
//! - [`apply`] predicts the ruleset after a command, [`diff`] says what lies between two rulesets.
//! - [`Owner`] tells whose a chain or a rule is.
//! - [`Tally`] sums what rules' counters grow by from look to look; [`nft`] reads what `nft list` prints.
//! - [`walk`] says what becomes of a packet on a node with such rules.
//! - [`replay`] rebuilds the rules of a node from the commands that ran there.
//! - [`dumps`] are what people attach of a node, recognised by what is in them.
//! - [`names`] are those that kube-proxy gives to the chains of services.
//! - [`bpf_counters`] says what Felix's eBPF programs dropped.
//! - [`conntrack`] reads the listings of `conntrack`; [`netlink`] what is said and heard without a program.

mod apply;
pub mod bpf_counters;
mod change;
mod command;
pub mod conntrack;
mod counters;
mod diff;
mod drops;
pub mod dumps;
mod error;
pub mod felix_programs;
pub mod names;
pub mod netlink;
pub mod nft;
mod normal;
mod owner;
pub mod replay;
mod restore;
mod rule;
mod save;
mod transaction;
pub mod walk;
mod words;

pub use apply::{Refusal, apply};
pub use change::{Change, ChangeKind, changes, committed};
pub use command::{Command, Family, Invocation};
pub use counters::{RuleCounters, Site, Tally};
pub use diff::{Order, diff};
pub use error::NetfilterError;
pub use owner::Owner;
pub use restore::{Section, sections};
pub use rule::{Counters, Rule};
pub use save::{Chain, DropSite, Ruleset, Table};
pub use words::{join, quote, words};
