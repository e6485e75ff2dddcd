use super::*;

const BOTH: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];

fn cluster(cidrs: &[&str]) -> Addresses {
    let cidrs: Vec<IpNet> = cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
    Addresses::new(&cidrs)
}

fn service(spec: &Value) -> Value {
    let mut service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    service
}

/// What becomes of a Service: its addresses, families and policy, or why not.
fn told(result: Result<(), ApiError>, service: &Value) -> String {
    match result {
        Ok(()) => {
            let spec = &service["spec"];
            assert_eq!(spec["clusterIP"], spec["clusterIPs"][0]);
            let (ips, families) = (&spec["clusterIPs"], &spec["ipFamilies"]);
            format!("{ips} {families} {}", spec["ipFamilyPolicy"]).replace('"', "")
        }
        Err(error) => error.to_string(),
    }
}

fn made(cidrs: &[&str], spec: &Value) -> String {
    let mut service = service(spec);
    told(cluster(cidrs).settle(&mut service, None), &service)
}

#[test]
fn a_service_has_the_families_that_it_and_its_cluster_want() {
    let (v4, v6) = ("10.96.1.0", "fd00:10:96::100");
    for (cidrs, spec, expected) in [
        (&BOTH[..], json!({}), format!("[{v4}] [IPv4] SingleStack")),
        (
            &["fd00:10:96::/112", "10.96.0.0/16"],
            json!({}),
            format!("[{v6}] [IPv6] SingleStack"),
        ),
        (
            &BOTH,
            json!({"ipFamilies": ["IPv6"]}),
            format!("[{v6}] [IPv6] SingleStack"),
        ),
        (
            &BOTH,
            json!({"ipFamilyPolicy": "PreferDualStack"}),
            format!("[{v4},{v6}] [IPv4,IPv6] PreferDualStack"),
        ),
        (
            &BOTH,
            json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}),
            format!("[{v6},{v4}] [IPv6,IPv4] RequireDualStack"),
        ),
        (
            &["10.96.0.0/16"],
            json!({"ipFamilyPolicy": "PreferDualStack"}),
            format!("[{v4}] [IPv4] PreferDualStack"),
        ),
        (
            &BOTH,
            json!({"clusterIP": "fd00:10:96::7"}),
            "[fd00:10:96::7] [IPv6] SingleStack".to_owned(),
        ),
        (
            &BOTH,
            json!({"clusterIP": "None", "selector": {"app": "web"}}),
            "[None] [IPv4] SingleStack".to_owned(),
        ),
        (
            &["10.96.0.0/16"],
            json!({"clusterIP": "None"}),
            "[None] [IPv4,IPv6] RequireDualStack".to_owned(),
        ),
    ] {
        assert_eq!(made(cidrs, &spec), expected, "{spec} in {cidrs:?}");
    }
}

#[test]
fn a_cluster_of_one_family_gives_no_other() {
    for (spec, expected) in [
        (
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured \
             for dual-stack services",
        ),
        (
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({"clusterIP": "fd00::7"}),
            "spec.clusterIPs[0]: Invalid value: [\"fd00::7\"]: IPv6 is not configured on this cluster",
        ),
    ] {
        let expected = format!("Service \"web\" is invalid: {expected}");
        assert_eq!(made(&BOTH[..1], &spec), expected, "{spec}");
    }
}

#[test]
fn families_that_cannot_be_are_refused_in_kubernetes_words() {
    for (spec, expected) in [
        (
            json!({"ipFamilies": ["IPv4", "IPv6"]}),
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or \
             'PreferDualStack' when multiple IP families are specified",
        ),
        (
            json!({"ipFamilies": ["IPv4", "IPv4"]}),
            "spec.ipFamilies[1]: Duplicate value: \"IPv4\"",
        ),
        (
            json!({"ipFamilies": ["IPv5"]}),
            "spec.ipFamilies[0]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\"",
        ),
        (
            json!({"ipFamilyPolicy": "Dual"}),
            "spec.ipFamilyPolicy: Unsupported value: \"Dual\": supported values: \
             \"PreferDualStack\", \"RequireDualStack\", \"SingleStack\"",
        ),
        (
            json!({"clusterIP": "10.96.0.7", "ipFamilies": ["IPv6"]}),
            "spec.clusterIPs[0]: Invalid value: \"10.96.0.7\": expected an IPv6 value as indicated \
             by `ipFamilies[0]`",
        ),
        (
            json!({"clusterIPs": ["10.96.0.7"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.0.7\"]: must be empty when `clusterIP` is not \
             specified",
        ),
        (
            json!({"clusterIP": "fd01::7"}),
            "spec.clusterIPs: Invalid value: [\"fd01::7\"]: failed to allocate IP fd01::7: the \
             provided IP (fd01::7) is not in the valid range. The range of valid IPs is \
             fd00:10:96::/112",
        ),
    ] {
        let expected = format!("Service \"web\" is invalid: {expected}");
        assert_eq!(made(&BOTH, &spec), expected, "{spec}");
    }
}

#[test]
fn a_service_gets_a_second_family_and_gives_it_back_when_it_says_so() {
    let mut addresses = cluster(&BOTH);
    let mut one = service(&json!({}));
    addresses.settle(&mut one, None).unwrap();
    let mut update = |old: &Value, spec: &Value| {
        let mut new = old.clone();
        for (field, value) in spec.as_object().unwrap() {
            new["spec"][field] = value.clone();
        }
        let told = told(addresses.settle(&mut new, Some(old)), &new);
        (new, told)
    };
    let (two, upgraded) = update(&one, &json!({"ipFamilyPolicy": "PreferDualStack"}));
    let both = "[10.96.1.0,fd00:10:96::100] [IPv4,IPv6] PreferDualStack";
    assert_eq!(upgraded, both);
    let (_, replaced) = update(
        &two,
        &json!({"clusterIP": null, "clusterIPs": null, "ipFamilies": null, "ipFamilyPolicy": null}),
    );
    assert_eq!(replaced, both);
    let (_, refused) = update(&two, &json!({"ipFamilies": ["IPv4"]}));
    assert!(refused.contains("must be 'SingleStack' to release the secondary IP family"));
    let (_, refused) = update(&two, &json!({"clusterIP": "10.96.0.9"}));
    assert!(
        refused.contains(
            "spec.clusterIPs[0]: Invalid value: [\"10.96.0.9\"]: may not change once set"
        )
    );
    let (_, downgraded) = update(&two, &json!({"ipFamilyPolicy": "SingleStack"}));
    assert_eq!(downgraded, "[10.96.1.0] [IPv4] SingleStack");
    let mut other = service(&json!({"clusterIP": "fd00:10:96::100"}));
    addresses.settle(&mut other, None).unwrap();
}
