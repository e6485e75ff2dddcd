//! What is said when stale UDP flows cannot be deleted. The lines are klog's own: none but the last names a family.

use std::time::Duration;

use super::{Logs, Value, klog};
use crate::{
    kube_proxy::{conntrack::Complaint, iptables::Failure},
    step::Severity,
};

impl Logs {
    /// Stale UDP flows could not be deleted.
    pub(crate) fn conntrack_failed(&self, complaint: &Complaint, failure: &Failure) {
        let output = failure.output();
        let status = failure.status();
        let error = format!("conntrack command returned: {output:?}, error message: {status}");
        match complaint {
            Complaint::Early { site, text } => {
                let text = format!("{text}, error: {error}");
                self.plain(0, Severity::Error, site, text);
            }
            Complaint::Later {
                text,
                pairs,
                error: what,
            } => {
                let mut line = format!("{text:?}");
                klog::append(&mut line, "err", &format!("{what}, error: {error}"));
                line.push_str(pairs);
                self.io.log(Severity::Error, self.sites.conntrack, line);
            }
        }
    }

    /// Conntrack's table could not be listed over netlink: stale flows stay (cleanup.go 1.34.2).
    pub(crate) fn listing_failed(&self, error: &str) {
        let text = "Failed to list conntrack entries";
        self.bare().error("cleanup.go:57", text, error, &[]);
    }

    /// It was listed in part.
    pub(crate) fn partial_listing(&self, error: &str) {
        let text = "received a partial result, continuing to clean with partial result";
        self.bare().error("cleanup.go:55", text, error, &[]);
    }

    /// Not all stale flows could be deleted; so many were.
    pub(crate) fn deletion_failed(&self, error: &str, deleted: usize, took: Duration) {
        let error = format!("error deleting conntrack entries, error: {error}");
        let took = klog::go_duration(took);
        let pairs = [
            ("ipFamily", Value::Text(self.family)),
            ("entriesDeleted", Value::Bare(deleted.to_string())),
            ("took", Value::Text(&took)),
        ];
        let text = "Failed to clear all conntrack entries";
        self.bare().error("cleanup.go:150", text, &error, &pairs);
    }
}
