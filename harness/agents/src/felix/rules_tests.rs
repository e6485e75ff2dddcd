//! Every id of the rule sets, against ids computed from Felix's source for v3.28.1 and against a dump
//! that Calico's own tests keep (felix/fv/cali-iptables-dump.txt, v3.32.1, whose table mangle is an older release's).

use serde_json::json;

use super::{
    Config, Event, Family, Pool, Workload, params::Params, renderer::Renderer, world::World,
};

fn config(version: &str) -> Config {
    Config {
        version: version.parse().unwrap(),
        node_name: "n1".to_owned(),
        env: super::manifest_environment(),
        ipv6: false,
        programs: false,
        seed: 1,
    }
}

pub(super) fn renderer(version: &str, spec: &serde_json::Value) -> Renderer {
    let spec = spec.as_object().unwrap().clone();
    let config = config(version);
    let params = Params::resolve(&spec, &config, &mut Vec::new()).unwrap();
    Renderer::new(&config, &params, Family::V4).unwrap()
}

fn world(interfaces: &[&str]) -> World {
    let mut world = World::new(&config("v3.28.1"));
    for &interface in interfaces {
        world.take(Event::Workload(Workload {
            namespace: "default".to_owned(),
            name: interface.to_owned(),
            interface: interface.to_owned(),
            profiles: vec!["kns.default".to_owned(), "ksa.default.default".to_owned()],
            addresses: vec![],
        }));
    }
    world
}

/// `chain id` for every rule of a table, appended rules under `chain+`.
fn ids(world: &World, renderer: &Renderer, table: &str) -> Vec<String> {
    let layout = world.layout(table, renderer);
    let plain = layout.inserts.iter().chain(&layout.chains);
    let plain = plain.map(|chain| (chain.name.clone(), chain));
    let appended = layout
        .appends
        .iter()
        .map(|chain| (format!("{}+", chain.name), chain));
    let mut ids: Vec<String> = plain
        .chain(appended)
        .flat_map(|(name, chain)| chain.ids.iter().map(move |id| format!("{name} {id}")))
        .collect();
    ids.sort_unstable();
    ids
}

fn golden(text: &str) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let chain = words.next().unwrap();
        ids.extend(words.map(|id| format!("{chain} {id}")));
    }
    ids.sort_unstable();
    ids
}

const RAW: &str = "
PREROUTING 6gwbT8clXdHdC1b1
OUTPUT tVnHkvAo15HuiPy0
cali-PREROUTING XFX5xbM8B9qR10JG EWMPb0zVROM-woQp PWuxTAIaFCtsg5Qa fSSbGND7dgyemWU7 ImU0-4Rl2WoOI9Ou lV4V2MPoMBf0hl9T
cali-OUTPUT njdnLwYeGqBJyMxW rz86uTUcEZAfFsh7 pN0F5zD0b8yf9W1Z";
const MANGLE: &str = "
PREROUTING 6gwbT8clXdHdC1b1
POSTROUTING O3lYWMrLQYEMJtB5
cali-PREROUTING 6BJqBjBC7crtA-7- KX7AGNd6rMcDUai6 wNH7KsA3ILKJBsY9 Cg96MgVuoPm7UMRo
cali-POSTROUTING NX-7roTexQ3fGRfU nnqPh8lh2VOogSzX nquN8Jw8Tz72pcBW jWrgvDQ0xEZHmta3";
const NAT: &str = "
PREROUTING 6gwbT8clXdHdC1b1
OUTPUT tVnHkvAo15HuiPy0
POSTROUTING O3lYWMrLQYEMJtB5
cali-PREROUTING r6XmIziWUJsdOK6Z
cali-OUTPUT GBTAv2p5CwevEyJm
cali-POSTROUTING Z-c7XtVd2Bq7s_hA nYKhEzDlr11Jccal
cali-nat-outgoing flqWnvo8yq4ULQLa";
const FILTER: &str = "
INPUT Cz_u1IQiXIMmKD4c
OUTPUT tVnHkvAo15HuiPy0
FORWARD wUHhoiAYhphO9Mso
FORWARD+ S93hcgKJrXEqnTfs mp77cMpurHhyjLrM
cali-FORWARD vjrMJCRpqwy5oRoX A_sPAO0mcxbT9mOV 8ZoYfO5HKXWbB3pk jdEuaPBe14V2hutn 12bc6HljsMKsmfr- NOSxoaGx8OIstr1z
cali-INPUT FewJpBykm9iJ-YNH hder3ARWznqqv8Va xgOu2uJft6H9oDGF _-d-qojMfHM6NwBo LqmE76MP94lZTGhA
cali-OUTPUT Mq1_rAdXXH3YkrzW 69FkRTJDvD5Vu6Vl Fskumj4SGQtDV6GC 1F4VWEsQu0QbRwKf m8Eqm15x1MjD24LD
cali-wl-to-host Ee9Sbo10IpVujdIY nSZbcOoG1xPONxb8
cali-from-wl-dispatch BvclViMh5p4PB4lE T4wc1wivt0_tlJL5
cali-to-wl-dispatch FifdfFbIRE-FBgHe 5OEcq8bpIrv0v5Pd
cali-tw-cali1234567890a yjbWxjIO7U6xj1b7 Xkd4eX3xETeWKR8o gGXAAp-2mvJHXSM4 Yl6MT9_9JzeRQfRt X7MdxWyYZXoovjxE
cali-tw-cali1234567890a eCC3g3HZSCgUPvmh QYG42kjK4gYEh5LT 5cW3LmcXPlLqDcaq
cali-fw-cali1234567890a f89lcpQhFJHk3qpy ktm9EUsNPPlYxgc0 U0zmtwNN_vNtMYET FkAaqUWgRaUqlQJr egcSEs7_X9lqwuw1
cali-fw-cali1234567890a ktZ9hyu6v05enCHN JKBrnl4B9mbUXCkV ogorU3VVEczrKhoR Uy10dy6NWOuxjpvT tQpGkt4EGsNgPltv
cali-pri-kns.default WMSw8BmYOknRHfsz
cali-pro-kns.default Vr81boRqq4V77Sg8
cali-pri-ksa.default.default PrckJA84jX_kGp99
cali-pro-ksa.default.default bUZzZcietq9v5Ybq";

#[test]
fn every_id_of_iptables_mode_is_felix_v3_28_1s() {
    let renderer = renderer("v3.28.1", &json!({}));
    let mut world = world(&["cali1234567890a"]);
    world.take(Event::Pools(vec![Pool {
        cidr: "10.244.0.0/16".parse().unwrap(),
        nat_outgoing: true,
        vxlan: false,
    }]));
    for (table, text) in [
        ("raw", RAW),
        ("mangle", MANGLE),
        ("nat", NAT),
        ("filter", FILTER),
    ] {
        assert_eq!(ids(&world, &renderer, table), golden(text), "{table}");
    }
}

#[test]
fn without_the_invalid_check_the_rule_is_absent_and_later_ids_change() {
    let renderer = renderer("v3.28.1", &json!({"disableConntrackInvalidCheck": true}));
    let ids = ids(&world(&["cali1234567890a"]), &renderer, "filter");
    let tw: Vec<String> = ids
        .into_iter()
        .filter(|line| line.starts_with("cali-tw-"))
        .collect();
    let text = "cali-tw-cali1234567890a yjbWxjIO7U6xj1b7 RuOsnEwfoPGK381r jBVdVrGOQ7UaPkYg MiQ0Y4EuhSyXcVeV \
                OiSTJ-CP0PWZNfBG sb15L-dgdNX1UNv0 241wfWLgTa3BKfoG";
    assert_eq!(tw, golden(text));
}

/// The dump of Calico's own tests: VXLAN, no workload, the rules that need an IP set taken out.
const DUMP_RAW: &str = "
PREROUTING 6gwbT8clXdHdC1b1
OUTPUT tVnHkvAo15HuiPy0
cali-OUTPUT clI8WObfCl4yhr60 ZbkN6P8OdRcBRPpU ry5_UEpt1OaPPCxO MGhICIksKDnYMIkW
cali-PREROUTING DQ6LK2guiBRMyrLK sIsu2aAqNN6K3YYn W0qKAga6QivxLxL1 QOYCZUivPyJL6Dp1 uvipz_NmQPrGYnTB pj4jqF0K2OCNLmzX Jefg6QI5khJcHnVl";
const DUMP_NAT: &str = "
PREROUTING 6gwbT8clXdHdC1b1
OUTPUT tVnHkvAo15HuiPy0
POSTROUTING+ 0i8pjzKKPyA34aQD
cali-OUTPUT GBTAv2p5CwevEyJm
cali-POSTROUTING Z-c7XtVd2Bq7s_hA nYKhEzDlr11Jccal e9dnSgSVNmIcpVhP
cali-PREROUTING r6XmIziWUJsdOK6Z";
const DUMP_FILTER: &str = "
INPUT Cz_u1IQiXIMmKD4c
FORWARD wUHhoiAYhphO9Mso
FORWARD+ S93hcgKJrXEqnTfs mp77cMpurHhyjLrM
OUTPUT tVnHkvAo15HuiPy0
cali-FORWARD W_vvds1Nw3n9QE2f ZfgmjuiLaA8Pg0kp tAzwBLPaV-j53OOZ 4Z0Pf0byo05NFe-P hQ7Oc16wmUtLuneJ rnKNH2WxGcRQcIlD
cali-INPUT EDCNTTxYfggApx8C H03xYXARh4e8pwd4 MN6K3isIWBigb1Va aKDQAoV0P_FFAIwV vIx3xkWzuvLW9fr4 5W9XghKma9wuz47x
cali-OUTPUT Mq1_rAdXXH3YkrzW 69FkRTJDvD5Vu6Vl 6T0hFtymUtXMOfEV IpTGXsDHURPUaLjJ wgnULo2gucg1umsA
cali-from-wl-dispatch zTj6P0TIgYvgz-md
cali-to-wl-dispatch 7KNphB1nNHw80nIO
cali-wl-to-host Ee9Sbo10IpVujdIY nSZbcOoG1xPONxb8";
const DUMP_MANGLE: &str = "
PREROUTING 6gwbT8clXdHdC1b1
POSTROUTING O3lYWMrLQYEMJtB5
cali-POSTROUTING NX-7roTexQ3fGRfU JkYr4aB8O4_N8NBS nO0nbHA3Or7V6l7t mgxNjIoKySH7TEGH
cali-PREROUTING 6BJqBjBC7crtA-7- KX7AGNd6rMcDUai6 wNH7KsA3ILKJBsY9 Cg96MgVuoPm7UMRo";

/// What a real v3.32.1 wrote in the lab: from v3.31 on packets may get a DSCP first.
const MEASURED_MANGLE: &str = "
PREROUTING 6gwbT8clXdHdC1b1
POSTROUTING O3lYWMrLQYEMJtB5
cali-POSTROUTING rjggb5FqJG-Y25Bt jjeDINEyBNIZOyCC zNC99P5aQEt6jv4X Zq8WVZgLnBNyn-Ed x8FyevjrLjl7aiMw
cali-PREROUTING 6BJqBjBC7crtA-7- KX7AGNd6rMcDUai6 wNH7KsA3ILKJBsY9 Cg96MgVuoPm7UMRo";

#[test]
fn the_ids_of_v3_30_and_later_are_those_of_the_dump_in_calicos_own_tests_and_in_mangle_the_measured_ones()
 {
    let tables = [
        ("raw", DUMP_RAW),
        ("nat", DUMP_NAT),
        ("filter", DUMP_FILTER),
    ];
    for (version, mangle) in [("v3.30.7", DUMP_MANGLE), ("v3.32.1", MEASURED_MANGLE)] {
        let mut renderer = renderer(version, &json!({}));
        renderer.vxlan = true;
        for (table, text) in tables.into_iter().chain([("mangle", mangle)]) {
            let ours = ids(&world(&[]), &renderer, table);
            let missing: Vec<String> = golden(text)
                .into_iter()
                .filter(|id| !ours.contains(id))
                .collect();
            assert!(
                missing.is_empty(),
                "{version} {table}: {missing:?} are not in {ours:#?}"
            );
        }
    }
}

#[test]
fn a_pool_with_vxlan_has_rules_and_a_set_in_its_own_family_only() {
    let pool = |cidr: &str| Pool {
        cidr: cidr.parse().unwrap(),
        nat_outgoing: false,
        vxlan: true,
    };
    let mut world = world(&[]);
    world.take(Event::Pools(vec![pool("fd00:10:30::/96")]));
    world.take(Event::Nodes(
        ["10.0.1.2", "fd00:10::1:2"]
            .map(|it| it.parse().unwrap())
            .to_vec(),
    ));
    assert!(!world.vxlan(Family::V4) && world.vxlan(Family::V6));
    let rejects = json!({ "iptablesFilterDenyAction": "Reject" });
    let mut renderer = renderer("v3.28.1", &rejects);
    (renderer.family, renderer.vxlan) = (Family::V6, true);
    let sets = super::sets::needed(&renderer, &world.pools, &world.nodes);
    assert_eq!(sets["cali60all-vxlan-net"], ["fd00:10::1:2"]);
    let text = |table: &str| {
        let layout = world.layout(table, &renderer);
        let rules = layout.chains.iter().flat_map(|chain| &chain.rules);
        let lines: Vec<String> = rules.map(|rule| rule.render("-A", "")).collect();
        lines.join("\n")
    };
    assert!(text("nat").contains("--out-interface vxlan-v6.calico"));
    let filter = text("filter");
    for said in [
        "--match-set cali60all-vxlan-net src",
        "Allow IPv6 VXLAN packets to other allowed hosts",
        "Reject IPv6 VXLAN packets from non-allowed hosts",
    ] {
        assert!(filter.contains(said), "{said} in {filter}");
    }
}

#[test]
fn bpf_mode_has_the_ids_that_public_dumps_show_and_leaves_service_nat_alone() {
    let renderer = renderer("v3.28.1", &json!({"bpfEnabled": true}));
    let world = world(&["cali1234567890a"]);
    let filter = world.layout("filter", &renderer);
    let forward = filter
        .inserts
        .iter()
        .find(|chain| chain.name == "FORWARD")
        .unwrap();
    assert_eq!(forward.ids[..2], ["umcmOn0WnTNOKJrp", "NnQ109Z-tVFkJGc1"]);
    let nat = world.layout("nat", &renderer);
    let hooked: Vec<&str> = nat
        .inserts
        .iter()
        .map(|chain| chain.name.as_str())
        .collect();
    assert_eq!(hooked, ["POSTROUTING"]);
    let mangle = world.layout("mangle", &renderer);
    assert!(mangle.chains.is_empty() && mangle.inserts.is_empty());
}

#[test]
fn bpf_mode_changed_from_release_to_release() {
    let text = |version: &str, spec: serde_json::Value, table: &str| {
        let mut spec = spec;
        spec["bpfEnabled"] = json!(true);
        let layout = world(&[]).layout(table, &renderer(version, &spec));
        let chains = layout.inserts.iter().chain(&layout.chains);
        let lines = chains.flat_map(|chain| {
            chain
                .rules
                .iter()
                .map(|rule| rule.render(&format!("-A {}", chain.name), ""))
        });
        lines.collect::<Vec<String>>().join("\n")
    };
    let filter = |version: &str| text(version, json!({}), "filter");
    assert!(filter("v3.25.0").contains("Mark pre-established host flows."));
    assert!(
        filter("v3.25.0").contains("-A INPUT  -m mark --mark 0x1000000/0x1000000 --jump ACCEPT")
    );
    assert!(!filter("v3.27.0").contains("tcp-reset"));
    assert!(filter("v3.28.1").contains("REJECT --reject-with tcp-reset"));
    assert!(
        !filter("v3.28.1").contains("-A INPUT  -m mark --mark 0x1000000/0x1000000 --jump ACCEPT")
    );
    let raw = |version: &str| text(version, json!({}), "raw");
    assert!(raw("v3.28.1").contains("-A cali-untracked-flows  --jump NOTRACK"));
    assert!(raw("v3.28.1").contains("0x3000000/0xffffffff --goto cali-untracked-policy"));
    assert!(raw("v3.30.0").contains("0x3500000/0xffffffff --goto cali-untracked-policy"));
    assert!(
        !raw("v3.30.0").contains("cali-untracked-flows"),
        "no bypass by default from v3.30"
    );
    let bypass = text("v3.30.0", json!({"bpfHostConntrackBypass": true}), "raw");
    assert!(bypass.contains("169.254.0.0/16 --jump RETURN"));
    // The drop mark moves the scratch marks, and the BPF programs' bits are skipped.
    assert!(raw("v3.28.1").contains("-A cali-OUTPUT  --jump MARK --set-mark 0/0xf0000"));
    assert!(raw("v3.30.0").contains("-A cali-OUTPUT  --jump MARK --set-mark 0/0x200b0000"));
}

#[test]
fn workloads_with_a_shared_prefix_share_a_child_chain() {
    let renderer = renderer("v3.28.1", &json!({}));
    let layout = world(&["cali1a", "cali1b", "cali2a"]).layout("filter", &renderer);
    let chain = |name: &str| -> Vec<String> {
        let chain = layout
            .chains
            .iter()
            .find(|chain| chain.name == name)
            .unwrap();
        chain
            .rules
            .iter()
            .map(|rule| rule.render("-A", "id"))
            .collect()
    };
    assert_eq!(
        chain("cali-from-wl-dispatch"),
        [
            "-A id --in-interface cali1+ --goto cali-from-wl-dispatch-1",
            "-A id --in-interface cali2a --goto cali-fw-cali2a",
            "-A id -m comment --comment \"Unknown interface\" --jump DROP",
        ]
    );
    assert_eq!(
        chain("cali-to-wl-dispatch-1"),
        [
            "-A id --out-interface cali1a --goto cali-tw-cali1a",
            "-A id --out-interface cali1b --goto cali-tw-cali1b",
            "-A id -m comment --comment \"Unknown interface\" --jump DROP",
        ]
    );
}

#[test]
fn a_mark_mask_that_is_too_small_is_refused() {
    let marks = |spec: serde_json::Value| {
        let config = config("v3.28.1");
        let params = Params::resolve(spec.as_object().unwrap(), &config, &mut Vec::new()).unwrap();
        Renderer::new(&config, &params, Family::V4).map(|renderer| renderer.marks.all())
    };
    assert!(marks(json!({"iptablesMarkMask": 0x30000})).is_err());
    assert!(marks(json!({"iptablesMarkMask": 0x00ff_0000, "bpfEnabled": true})).is_err());
    assert_eq!(
        marks(json!({"iptablesMarkMask": 0x00ff_0000})).unwrap(),
        0xf0000
    );
}

#[test]
fn in_bpf_mode_ipv6_is_dropped_until_v3_26_and_from_v3_29_on_gets_to_workloads_as_ipv4_does() {
    let forward = |version: &str, family: Family| {
        let mut renderer = renderer(version, &json!({ "bpfEnabled": true, "ipv6Support": true }));
        renderer.family = family;
        let layout = world(&["cali1234567890a"]).layout("filter", &renderer);
        let mut chains = layout.inserts.iter();
        let chain = chains.find(|it| it.name == "FORWARD").unwrap();
        let lines: Vec<String> = chain.rules.iter().map(|it| it.render("-A", "")).collect();
        let lines = lines.join("\n");
        ["drop IPv6", "--icmpv6-type 130", "check workload is known"].map(|it| lines.contains(it))
    };
    assert_eq!(forward("v3.26.5", Family::V6), [true, false, false]);
    assert_eq!(forward("v3.28.1", Family::V6), [false, true, false]);
    assert_eq!(forward("v3.29.7", Family::V6), [false, true, true]);
    // For v3.27 rules to workloads were of one family.
    assert_eq!(forward("v3.27.5", Family::V4), [false, false, false]);
    assert_eq!(forward("v3.28.1", Family::V4), [false, false, true]);
}
