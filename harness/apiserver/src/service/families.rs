//! Which IP families a Service has, in `ipFamilies`, `ipFamilyPolicy` and `clusterIPs`: defaults and
//! refusals of `initIPFamilyFields` and `ValidateServiceClusterIPsRelatedFields` (pkg/registry/core/service
//! and pkg/apis/core/validation of Kubernetes 1.32).

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::{
    error::Cause,
    object::{items, map_at, text},
};

const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
/// What an update says to take the second family away.
const RELEASE: &str = "must be 'SingleStack' to release the secondary";

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::V4, Self::V6]
            .into_iter()
            .find(|family| family.word() == word)
    }

    /// As the API writes it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

/// The families that the Service names.
pub(super) fn named(service: &Value) -> Vec<Family> {
    let words = items(service, "/spec/ipFamilies").iter();
    words
        .filter_map(|word| Family::parse(word.as_str()?))
        .collect()
}

/// The cluster IPs that the Service names.
pub(super) fn cluster_ips(service: &Value) -> Vec<IpAddr> {
    let ips = items(service, "/spec/clusterIPs").iter();
    ips.filter_map(|ip| ip.as_str()?.parse().ok()).collect()
}

/// Whether the Service has no cluster IP on purpose.
pub(super) fn is_headless(service: &Value) -> bool {
    text(service, "/spec/clusterIP") == "None"
}

/// Completes the families of a Service that wants a cluster IP, or is headless, in a cluster that has
/// the configured ones, its default first. `old` is the Service before an update.
pub(super) fn settle(
    service: &mut Value,
    old: Option<&Value>,
    configured: &[Family],
) -> Result<(), Vec<Cause>> {
    normalise(map_at(service, "spec"));
    default_policy(service, old);
    refused_unless_empty(loose_mistakes(service))?;
    let mut causes = old.map_or_else(Vec::new, |old| prepare_update(service, old));
    causes.extend(too_many_for_one(service));
    causes.extend(infer(service, configured));
    refused_unless_empty(causes)?;
    if !(is_headless(service) && selects_nothing(service)) {
        refused_unless_empty(not_configured(service, configured))?;
    }
    complete(service, configured);
    Ok(())
}

fn refused_unless_empty(causes: Vec<Cause>) -> Result<(), Vec<Cause>> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(causes)
    }
}

/// Either of `clusterIP` and `clusterIPs` may be left out.
fn normalise(spec: &mut Map<String, Value>) {
    for field in ["clusterIPs", "ipFamilies"] {
        if spec
            .get(field)
            .is_some_and(|list| list.as_array().is_none_or(Vec::is_empty))
        {
            spec.remove(field);
        }
    }
    if let Some(ip) = spec.get("clusterIP").cloned() {
        spec.entry("clusterIPs").or_insert(json!([ip]));
    }
}

fn default_policy(service: &mut Value, old: Option<&Value>) {
    let before = old.map(|old| old["spec"]["ipFamilyPolicy"].clone());
    let alone = if is_headless(service) && selects_nothing(service) {
        "RequireDualStack"
    } else {
        "SingleStack"
    };
    let policy = before
        .filter(Value::is_string)
        .unwrap_or_else(|| alone.into());
    crate::object::default(map_at(service, "spec"), "ipFamilyPolicy", policy);
}

fn selects_nothing(service: &Value) -> bool {
    let selector = service["spec"]["selector"].as_object();
    selector.is_none_or(Map::is_empty)
}

/// What is wrong whatever the cluster has.
fn loose_mistakes(service: &Value) -> Vec<Cause> {
    let spec = &service["spec"];
    let ips = items(service, "/spec/clusterIPs");
    let list = &spec["clusterIPs"];
    let of_list = |detail| Cause::invalid("spec.clusterIPs", list, detail);
    let mut causes = Vec::new();
    if let Some(first) = ips.first() {
        if text(service, "/spec/clusterIP").is_empty() {
            causes.push(of_list("must be empty when `clusterIP` is not specified"));
        } else if *first != spec["clusterIP"] {
            causes.push(of_list("first value must match `clusterIP`"));
        }
    }
    causes.extend(wrong_families(service));
    if !POLICIES.contains(&text(service, "/spec/ipFamilyPolicy")) {
        let policy = &spec["ipFamilyPolicy"];
        causes.push(Cause::unsupported("spec.ipFamilyPolicy", policy, &POLICIES));
    }
    let parsed = cluster_ips(service);
    if is_headless(service) {
        if ips.len() > 1 {
            causes.push(of_list("'None' must be the first and only value"));
        }
        return causes;
    }
    for (i, ip) in ips.iter().enumerate() {
        if ip.as_str().is_none_or(|ip| ip.parse::<IpAddr>().is_err()) {
            let field = format!("spec.clusterIPs[{i}]");
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.push(Cause::invalid(&field, ip, detail));
        }
    }
    if ips.len() > 2 {
        causes.push(of_list("may only hold up to 2 values"));
    }
    if parsed.len() == ips.len() {
        causes.extend(mismatches(service, &parsed));
    }
    causes
}

fn wrong_families(service: &Value) -> Vec<Cause> {
    let words = items(service, "/spec/ipFamilies");
    let wrong = words.iter().enumerate().filter_map(|(i, word)| {
        let field = format!("spec.ipFamilies[{i}]");
        if word.as_str().and_then(Family::parse).is_none() {
            return Some(Cause::unsupported(&field, word, &["IPv4", "IPv6"]));
        }
        let twice = words.iter().take(i).any(|earlier| earlier == word);
        twice.then(|| Cause {
            reason: "FieldValueDuplicate",
            field,
            message: format!("Duplicate value: {word}"),
        })
    });
    wrong.collect()
}

/// Addresses of one family twice, or of another one than is named in their place.
fn mismatches(service: &Value, ips: &[IpAddr]) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let [first, second, ..] = ips
        && Family::of(*first) == Family::of(*second)
    {
        let detail = "may specify no more than one IP for each IP family";
        let list = &service["spec"]["clusterIPs"];
        causes.push(Cause::invalid("spec.clusterIPs", list, detail));
    }
    for (i, (ip, family)) in ips.iter().zip(named(service)).enumerate() {
        if Family::of(*ip) != family {
            let word = family.word();
            let detail = format!("expected an {word} value as indicated by `ipFamilies[{i}]`");
            let field = format!("spec.clusterIPs[{i}]");
            causes.push(Cause::invalid(&field, &ip.to_string().into(), &detail));
        }
    }
    causes
}

/// `SingleStack` is clear intent to give the second family back; nothing else is.
fn prepare_update(service: &mut Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let single = text(service, "/spec/ipFamilyPolicy") == "SingleStack";
    let policy = service["spec"]["ipFamilyPolicy"].clone();
    for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let before = old["spec"][field].as_array();
        let now = map_at(service, "spec").get_mut(field);
        let (Some(before), Some(Value::Array(now))) = (before, now) else {
            continue;
        };
        if single && before == now {
            now.truncate(1);
        } else if !single && now.len() < before.len() {
            let detail = format!("{RELEASE} {what}");
            causes.push(Cause::invalid("spec.ipFamilyPolicy", &policy, &detail));
        }
    }
    causes
}

fn too_many_for_one(service: &Value) -> Vec<Cause> {
    if text(service, "/spec/ipFamilyPolicy") != "SingleStack" {
        return Vec::new();
    }
    let policy = &service["spec"]["ipFamilyPolicy"];
    let fields = [
        ("/spec/clusterIPs", "cluster IPs"),
        ("/spec/ipFamilies", "IP families"),
    ];
    let two = fields
        .iter()
        .filter(|(at, _)| items(service, at).len() == 2);
    let cause = |(_, what): &(&str, &str)| {
        let detail = format!(
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
        );
        Cause::invalid("spec.ipFamilyPolicy", policy, &detail)
    };
    two.map(cause).collect()
}

/// Addresses say families that are not named.
fn infer(service: &mut Value, configured: &[Family]) -> Vec<Cause> {
    let mut families = named(service);
    let mut causes = Vec::new();
    for (i, ip) in cluster_ips(service)
        .into_iter()
        .enumerate()
        .skip(families.len())
    {
        let family = Family::of(ip);
        if configured.contains(&family) {
            families.push(family);
            continue;
        }
        let detail = format!("{} is not configured on this cluster", family.word());
        let list = &service["spec"]["clusterIPs"];
        causes.push(Cause::invalid(
            &format!("spec.clusterIPs[{i}]"),
            list,
            &detail,
        ));
    }
    name(service, &families);
    causes
}

fn not_configured(service: &Value, configured: &[Family]) -> Vec<Cause> {
    let mut causes = Vec::new();
    if text(service, "/spec/ipFamilyPolicy") == "RequireDualStack" && configured.len() < 2 {
        let detail = "this cluster is not configured for dual-stack services";
        let policy = &service["spec"]["ipFamilyPolicy"];
        causes.push(Cause::invalid("spec.ipFamilyPolicy", policy, detail));
    }
    let named = named(service).into_iter().enumerate();
    let foreign = named.filter(|(_, family)| !configured.contains(family));
    causes.extend(foreign.map(|(i, family)| {
        let field = format!("spec.ipFamilies[{i}]");
        Cause::invalid(
            &field,
            &family.word().into(),
            "not configured on this cluster",
        )
    }));
    causes
}

/// A Service that names no family has the cluster's default, and a dual-stack one has both. Of a
/// headless one without selector the other family need not be the cluster's.
fn complete(service: &mut Value, configured: &[Family]) {
    let mut families = named(service);
    if families.is_empty() {
        families.extend(configured.first());
    }
    let dual = configured.len() == 2 || (is_headless(service) && selects_nothing(service));
    if let [only] = *families
        && dual
        && text(service, "/spec/ipFamilyPolicy") != "SingleStack"
    {
        families.push(only.other());
    }
    name(service, &families);
}

fn name(service: &mut Value, families: &[Family]) {
    let words: Vec<&str> = families.iter().map(|family| family.word()).collect();
    if !words.is_empty() {
        map_at(service, "spec").insert("ipFamilies".to_owned(), json!(words));
    }
}

/// Cluster IPs stay as they are; one may be added, and the second may go.
pub(super) fn change(new: &Value, old: &Value) -> Vec<Cause> {
    let (was, is) = (
        items(old, "/spec/clusterIPs"),
        items(new, "/spec/clusterIPs"),
    );
    let changed = was.iter().zip(is).enumerate();
    let changed = changed.filter(|(_, (was, is))| was != is);
    let list = &new["spec"]["clusterIPs"];
    let cause = |(i, _)| {
        let field = format!("spec.clusterIPs[{i}]");
        Cause::invalid(&field, list, "may not change once set")
    };
    let mut causes: Vec<Cause> = changed.map(cause).collect();
    let family = |service: &Value| named(service).first().copied();
    if let (Some(was), Some(is)) = (family(old), family(new))
        && was != is
        && !(is_headless(old) || is_headless(new))
    {
        let list = &new["spec"]["ipFamilies"];
        causes.push(Cause::invalid(
            "spec.ipFamilies[0]",
            list,
            "may not change once set",
        ));
    }
    causes
}
