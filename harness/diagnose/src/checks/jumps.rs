//! The jumps into kube-proxy's chains of iptables, and what these lead to.

use chainbreak_model::case::Symptom;
use chainbreak_netfilter::Family;

use super::{Context, first_of};
use crate::{
    Finding, Weight,
    reproduction::{Made, Mends},
    services::{self, Led},
    tables::{CANARY, KubeProxy, Tables},
};

/// A jump that kube-proxy keeps (1.20 to 1.36), and what it means that it is not there.
struct Jump {
    table: &'static str,
    from: &'static str,
    /// That it is not there, up to where it leads.
    says: &'static str,
    to: &'static str,
    without: &'static str,
    weight: Weight,
}

const JUMPS: [Jump; 4] = [
    Jump {
        table: "nat",
        from: "PREROUTING",
        says: "PREROUTING does not jump",
        to: SERVICES,
        without: "pods and others outside reach no service by this node",
        weight: Weight::Breaks,
    },
    Jump {
        table: "nat",
        from: "OUTPUT",
        says: "OUTPUT does not jump",
        to: SERVICES,
        without: "programs of the node itself reach no service",
        weight: Weight::Breaks,
    },
    Jump {
        table: "nat",
        from: "POSTROUTING",
        says: "POSTROUTING does not jump",
        to: "KUBE-POSTROUTING",
        without: "what is to be masqueraded keeps its source address",
        weight: Weight::Odd,
    },
    Jump {
        table: "filter",
        from: "FORWARD",
        says: "FORWARD does not jump",
        to: "KUBE-FORWARD",
        without: "what goes to services is accepted by no rule of kube-proxy's, and packets that conntrack cannot place are not dropped",
        weight: Weight::Odd,
    },
];

const SERVICES: &str = "KUBE-SERVICES";

/// Both jumps to the services.
const NEITHER: Jump = Jump {
    table: "nat",
    from: "",
    says: "neither PREROUTING nor OUTPUT jumps",
    to: SERVICES,
    without: "neither pods nor others outside nor programs of the node itself reach any service by it",
    weight: Weight::Breaks,
};

const RESTART: &str = "a restart of kube-proxy writes everything again";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let all = context.tables.iter();
    let judged = all.filter(|tables| match tables.kube_proxy() {
        KubeProxy::Iptables => true,
        // What is left of another mode or front end is no outage, nor is what was written for a family that the cluster does not have.
        KubeProxy::Canary => tables.family == Family::V4 && !is_elsewhere(context),
        KubeProxy::Ipvs | KubeProxy::None => false,
    });
    // A scenario's cluster has IPv4.
    let findings = judged.flat_map(|tables| {
        let is_made = tables.family == Family::V4;
        of(context, tables).into_iter().map(move |it| Finding {
            made: it.made.filter(|_| is_made),
            ..it
        })
    });
    findings.collect()
}

/// Whether kube-proxy leads services by other rules.
fn is_elsewhere(context: &Context<'_>) -> bool {
    context.nftables().next().is_some()
        || context
            .tables
            .iter()
            .any(|it| matches!(it.kube_proxy(), KubeProxy::Iptables | KubeProxy::Ipvs))
}

fn of(context: &Context<'_>, tables: &Tables) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut missing: Vec<&Jump> = JUMPS
        .iter()
        .filter(|jump| is_missing(tables, jump))
        .collect();
    // What neither leads is one thing.
    if missing.iter().filter(|jump| jump.to == SERVICES).count() == 2 {
        missing.retain(|jump| jump.to != SERVICES);
        missing.insert(0, &NEITHER);
    }
    findings.extend(
        missing
            .into_iter()
            .map(|jump| missing_jump(context, tables, jump)),
    );
    let services = tables.chain("nat", SERVICES);
    if services.is_some_and(|it| it.rules.is_empty()) {
        let what = format!(
            "kube-proxy's chain KUBE-SERVICES is empty in nat ({tables}): no service is led anywhere"
        );
        let step = flush(SERVICES);
        findings.push(
            Finding::breaks(Symptom::ServicesEmpty, what)
                .mended_by(RESTART)
                .made_by(for_all([step])),
        );
    }
    let led = services::of_iptables(tables);
    let made = emptied(&led);
    let dead = services::nowhere(led);
    if !dead.is_empty() {
        let what = format!(
            "requests to {} are led into chains that lead nowhere ({tables})",
            count(dead.len())
        );
        findings.push(
            Finding::breaks(Symptom::ServiceLeadsNowhere, what)
                .on(first_of(dead))
                .mended_by(RESTART)
                .made_by(made),
        );
    }
    findings
}

fn count(services: usize) -> String {
    match services {
        1 => "a service's port".to_owned(),
        many => format!("{many} ports of services"),
    }
}

/// A jump is missed where the table was listed.
fn is_missing(tables: &Tables, jump: &Jump) -> bool {
    tables.ruleset.tables.contains_key(jump.table)
        && tables.ruleset.count(jump.table, jump.from, Some(jump.to)) == 0
}

/// Whether what comes from outside over IPv4 is led to kube-proxy's services. None where what was attached does not tell.
pub(super) fn leads_from_outside(context: &Context<'_>) -> Option<bool> {
    let v4 = context.tables.iter().filter(|it| it.family == Family::V4);
    let v4: Vec<&Tables> = v4.collect();
    if v4.iter().any(|it| it.leads_in()) || context.nftables().any(|it| it.family == "ip") {
        return Some(true);
    }
    let kube_proxys: Vec<KubeProxy> = v4.iter().map(|it| it.kube_proxy()).collect();
    let was_there = [KubeProxy::Iptables, KubeProxy::Canary];
    let is_known = kube_proxys.iter().any(|it| was_there.contains(it))
        && !kube_proxys.contains(&KubeProxy::Ipvs)
        && v4.iter().any(|it| it.ruleset.tables.contains_key("nat"));
    is_known.then_some(false)
}

fn missing_jump(context: &Context<'_>, tables: &Tables, jump: &Jump) -> Finding {
    let Jump {
        table,
        from,
        says,
        to,
        without,
        weight,
    } = jump;
    let what = format!("{table} {says} to {to} ({tables}): {without}");
    let others = JUMPS.iter().filter(|it| it.to == *to && it.from != *from);
    let others = others
        .filter(|it| !is_missing(tables, it))
        .map(|it| it.from);
    let others: Vec<&str> = others.collect();
    let mut evidence = vec![match (tables.chain(table, to), others.as_slice()) {
        (None, _) => format!("{table} {to} is not there either"),
        (Some(_), []) => format!("{table} {to} is there, and no packet gets to it"),
        (Some(_), others) => format!(
            "{table} {to} is there, and {} jumps to it",
            others.join(", ")
        ),
    }];
    if *table == "nat" && tables.chain("mangle", CANARY).is_some() {
        evidence.push(format!(
            "kube-proxy looks after mangle {CANARY}, which is there: it does not notice, and its partial syncs (from 1.27 on) do not write the jump; from 1.33 on a full sync does, hourly where there are fewer than 1,000 endpoints"
        ));
    }
    // The programs answer before any rule is asked.
    if context.ebpf && *weight == Weight::Breaks {
        evidence.push(
            "Felix is in eBPF mode: its programs lead to services in the place of these rules, as long as they are attached and know the endpoints".to_owned(),
        );
        return Finding::odd(Symptom::JumpMissing, what).on(evidence).mended_by(
            "without kube-proxy nothing is amiss; with it, bpfKubeProxyIptablesCleanupEnabled: false ends that Felix deletes what it writes",
        );
    }
    let finding = Finding::new(Symptom::JumpMissing, *weight, what);
    let from = if from.is_empty() {
        vec!["PREROUTING", "OUTPUT"]
    } else {
        vec![*from]
    };
    let steps = from.iter().map(|from| {
        format!("delete-rule: {{ node: n1, table: {table}, chain: {from}, matches: '-j {to}' }}")
    });
    let breaks = *weight == Weight::Breaks;
    finding.on(evidence).mended_by(RESTART).made_by(Made {
        pods: breaks && from.contains(&"PREROUTING"),
        node: breaks && from.contains(&"OUTPUT"),
        ..for_all(steps)
    })
}

fn flush(chain: &str) -> String {
    format!("flush: {{ node: n1, table: nat, chain: {chain} }}")
}

/// So many chains are emptied to bring about what was found.
const EMPTIED: usize = 5;

/// What empties the chains of services over TCP that lead nowhere; nothing where there are none.
fn emptied(led: &[Led]) -> Option<Made> {
    let is_word = |text: &str| {
        text.bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'-')
    };
    let dead = led
        .iter()
        .filter(|it| it.endpoints.is_empty() && it.protocol == "tcp" && is_word(&it.chain));
    let dead: Vec<&Led> = dead.take(EMPTIED).collect();
    let made = Made {
        only: dead.iter().map(|it| it.name.clone()).collect(),
        ..for_all(dead.iter().map(|it| flush(&it.chain)))
    };
    (!dead.is_empty()).then_some(made)
}

/// What everybody loses requests by, and a restart of kube-proxy mends.
fn for_all(steps: impl IntoIterator<Item = String>) -> Made {
    Made {
        steps: steps.into_iter().collect(),
        pods: true,
        node: true,
        mends: Some(Mends::Restart),
        ..Made::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::tests::{HEALTHY, found, kinds, without};

    #[test]
    fn a_jump_that_is_missing_is_found_with_what_follows() {
        for save in &HEALTHY[..2] {
            let cut = without(save, &["-A PREROUTING", "-j KUBE-SERVICES"]);
            let [(kind, text)] = found(&[&cut]).try_into().unwrap();
            assert_eq!(kind, "jump-missing");
            assert!(
                text.starts_with("nat PREROUTING does not jump to KUBE-SERVICES ("),
                "{text}"
            );
            assert!(
                text.contains("KUBE-SERVICES is there, and OUTPUT jumps to it"),
                "{text}"
            );
        }
    }

    #[test]
    fn what_felix_deletes_beside_kube_proxy_is_no_outage_by_itself() {
        let save = include_str!("../../../netfilter/tests/data/felix-3.28.1-ebpf.save");
        for (kind, text) in found(&[save]) {
            assert!(
                ["jump-missing", "felix-cleans-up"].contains(&kind.as_str()),
                "{kind} {text}"
            );
        }
    }

    #[test]
    fn chains_that_lead_nowhere_are_found_with_their_services() {
        let flushed = without(HEALTHY[0], &["--to-destination"]);
        let [(kind, text)] = found(&[&flushed]).try_into().unwrap();
        assert_eq!(kind, "service-leads-nowhere");
        assert!(text.contains("test/nginx:http: chain KUBE-SVC-"), "{text}");
        let empty = without(HEALTHY[0], &["-A KUBE-SERVICES"]);
        assert_eq!(kinds(&[&empty]), ["services-empty"]);
    }

    /// What the kubelet makes where kube-proxy is not, or in another mode (1.32).
    const KUBELETS: &str = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-FIREWALL - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\n\
        -A INPUT -j KUBE-FIREWALL\n-A OUTPUT -j KUBE-FIREWALL\nCOMMIT\n*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n\
        :KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";

    #[test]
    fn what_others_call_kube_is_no_kube_proxys() {
        let router = KUBELETS.replace("KUBE-FIREWALL", "KUBE-ROUTER-INPUT");
        let ipvs = KUBELETS.replace("KUBE-FIREWALL", "KUBE-NODE-PORT");
        let left = KUBELETS.replace("KUBE-KUBELET-CANARY", "KUBE-PROXY-CANARY");
        for alone in [KUBELETS, &router, &ipvs] {
            assert!(found(&[alone]).is_empty(), "{:?}", found(&[alone]));
        }
        for beside in [KUBELETS, &left] {
            assert!(
                found(&[beside, HEALTHY[3]]).is_empty(),
                "{:?}",
                found(&[beside, HEALTHY[3]])
            );
        }
        assert_eq!(
            kinds(&[&left])[0],
            "jump-missing",
            "of kube-proxy the canary alone is there"
        );
    }
}
