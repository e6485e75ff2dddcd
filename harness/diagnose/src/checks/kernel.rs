//! What the kernel's settings and counters say.

use chainbreak_model::case::Symptom;
use chainbreak_netfilter::Owner;

use super::{Context, first_of};
use crate::{Finding, Weight, reproduction::Made};

const MOST: &str = "net.netfilter.nf_conntrack_max";
const ENTRIES: &str = "net.netfilter.nf_conntrack_count";
/// The table is full, for who wants a new entry, a little before its last place is taken.
const FULL: u64 = 95;

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(forwarding(context));
    findings.extend(full(context));
    findings.extend(was_full(context));
    findings.extend(lost(context));
    findings.extend(invalid(context));
    findings
}

fn forwarding(context: &Context<'_>) -> Option<Finding> {
    let name = "net.ipv4.ip_forward";
    let value = context.evidence.dumps.sysctl(name)?;
    let what = format!(
        "{name} = {value}: of IPv4 the node passes nothing on, neither pods' packets nor those to a service's endpoints"
    );
    // On a node of IPv6 alone it means nothing.
    let leads = context.led.iter().any(|it| it.address.is_ipv4());
    (value == "0").then(|| {
        Finding::new(Symptom::NoForwarding, Weight::where_so(leads), what)
            .mended_by(format!("`sysctl -w {name}=1`"))
            .made_by(Made {
                steps: vec![format!("sysctl: {{ at: node/n1, set: {{ {name}: 0 }} }}")],
                pods: true,
                ..Made::default()
            })
    })
}

/// The sums of `conntrack -S` since the node was started.
fn counted(context: &Context<'_>, name: &str) -> u64 {
    let counted = context.evidence.dumps.statistics().get(name);
    counted.copied().unwrap_or(0)
}

fn full(context: &Context<'_>) -> Option<Finding> {
    let number = |name| context.evidence.dumps.sysctl(name)?.parse::<u64>().ok();
    let (most, entries) = (number(MOST)?, number(ENTRIES)?);
    let share = entries.saturating_mul(100).checked_div(most)?;
    let what = format!(
        "conntrack's table is {share} % full ({entries} of {most} entries): where no entry can be dropped early for a new one, new connections are dropped and old ones go on"
    );
    let mends = format!(
        "a greater {MOST} (kube-proxy sets it: --conntrack-max-per-core), or fewer connections that linger"
    );
    let has_dropped = counted(context, "drop") > counted(context, "insert_failed");
    (share >= FULL).then(|| {
        Finding::new(Symptom::ConntrackFull, Weight::where_so(has_dropped), what)
            .mended_by(mends)
            .made_by(Made {
                steps: vec!["fill-conntrack: { node: n1, entries: full }".to_owned()],
                pods: true,
                node: true,
                ..Made::default()
            })
    })
}

/// What the kernel's log says of it, in whichever namespace.
fn was_full(context: &Context<'_>) -> Option<Finding> {
    let times = context.evidence.hints.table_full;
    let what = format!(
        "the kernel has dropped packets because conntrack's table was full: {times} lines of its log say so, and it says so of few of them"
    );
    let mends = format!("a greater {MOST}, or fewer connections that linger");
    (times > 0).then(|| Finding::odd(Symptom::ConntrackFull, what).mended_by(mends))
}

fn lost(context: &Context<'_>) -> Vec<Finding> {
    let (failed, dropped) = (counted(context, "insert_failed"), counted(context, "drop"));
    let mut findings = Vec::new();
    // From Linux 5.10 on what could not be inserted is counted as dropped, too; before, also where nothing was lost.
    if let Some(full) = dropped.checked_sub(failed).filter(|it| *it > 0) {
        let what = format!(
            "conntrack has dropped {full} packets for want of a place in its table since the node was started"
        );
        findings.push(Finding::odd(Symptom::ConntrackDropped, what));
    }
    if failed > 0 {
        let lost = failed.min(dropped);
        let what = format!(
            "{failed} entries could not be inserted into conntrack's table since the node was started (insert_failed), by which at most {lost} packets were lost: another connection had their addresses and ports, as parallel lookups of DNS by one client have, or connections whose source port masquerading could not change"
        );
        findings.push(Finding::odd(Symptom::ConntrackInsertFailed, what));
    }
    findings
}

/// kube-proxy's rule that drops what conntrack cannot place, where it has counted.
fn invalid(context: &Context<'_>) -> Option<Finding> {
    let mut lines = Vec::new();
    for tables in &context.tables {
        for site in tables.ruleset.drops() {
            let Some(rule) = site.rule.filter(|_| site.counters.packets > 0) else {
                continue;
            };
            if rule.text.contains("--ctstate INVALID") {
                let owner = Owner::of_rule(site.chain, rule);
                let packets = site.counters.packets;
                lines.push(format!(
                    "{packets} packets ended in {} {} {} ({owner}, {tables})",
                    site.table, site.chain, rule.text
                ));
            }
        }
    }
    let liberal = context
        .evidence
        .dumps
        .sysctl("net.netfilter.nf_conntrack_tcp_be_liberal");
    lines.extend(
        liberal
            .filter(|_| !lines.is_empty())
            .map(|it| format!("net.netfilter.nf_conntrack_tcp_be_liberal = {it}")),
    );
    let what = "packets are dropped that conntrack calls INVALID: answers that came another way than the requests went, segments outside of the window that it knows, or the last segments of connections whose entry is gone, which every busy node has some of";
    (!lines.is_empty()).then(|| {
        Finding::odd(Symptom::InvalidDropped, what)
            .on(first_of(lines))
            .mended_by("routes by which both ways pass this node; net.netfilter.nf_conntrack_tcp_be_liberal = 1 (kube-proxy --conntrack-tcp-be-liberal) where only the window is wrong")
    })
}

#[cfg(test)]
mod tests {
    use crate::checks::tests::{HEALTHY, found, kinds};

    #[test]
    fn settings_and_counters_that_lose_packets_are_found() {
        let settings = |entries: u64, forward: u64| {
            format!(
                "net.netfilter.nf_conntrack_max = 1000\nnet.netfilter.nf_conntrack_count = {entries}\nnet.ipv4.ip_forward = {forward}\n"
            )
        };
        assert_eq!(kinds(&[&settings(900, 1)]), [""; 0]);
        let both = ["no-forwarding", "conntrack-full"];
        assert_eq!(kinds(&[&settings(1000, 0)]), both);
        let counted = |failed: u64, dropped: u64| {
            format!(
                "cpu=0  \tfound=3 invalid=7 insert=0 insert_failed={failed} drop={dropped} early_drop=0 error=0 search_restart=0\n"
            )
        };
        assert_eq!(kinds(&[&counted(0, 0)]), [""; 0]);
        assert_eq!(kinds(&[&counted(2, 2)]), ["conntrack-insert-failed"]);
        assert_eq!(kinds(&[&counted(0, 9)]), ["conntrack-dropped"]);
    }

    #[test]
    fn what_the_kernels_log_says_of_a_full_table_is_found() {
        let line = "[Tue Nov 20 22:30:22 2018] nf_conntrack: table full, dropping packet\n";
        let [(kind, text)] = found(&[line, line]).try_into().unwrap();
        assert_eq!(kind, "conntrack-full");
        assert!(text.contains("2 lines of its log"), "{text}");
    }

    #[test]
    fn packets_that_were_dropped_as_invalid_are_told_with_the_rule() {
        let rule = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP";
        let counted = HEALTHY[0].replace(rule, &format!("[503:20120] {rule}"));
        assert_ne!(counted, HEALTHY[0], "the rule is there");
        let [(kind, text)] = found(&[&counted]).try_into().unwrap();
        assert_eq!(kind, "invalid-dropped");
        assert!(
            text.contains("503 packets ended in filter KUBE-FORWARD"),
            "{text}"
        );
    }
}
