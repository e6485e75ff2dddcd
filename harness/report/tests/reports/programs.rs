//! That programs are named which lead requests to backends that are gone, or drop them.

use std::collections::BTreeSet;

use chainbreak_model::event::{Event, EventKind};

use crate::{
    culprits::{DEAD, headline},
    history::{cleanup, command, event},
};

/// What the API says of test/nginx.
pub(crate) fn endpoints(at_us: u64, ready: Option<BTreeSet<String>>, draining: &[&str]) -> Event {
    let told = EventKind::Endpoints {
        service: "test/nginx".to_owned(),
        ready,
        draining: draining.iter().map(|&it| it.to_owned()).collect(),
    };
    event(at_us, told)
}

/// Felix's map leads to 10.20.1.9, and from 1.45 s on the API has other endpoints; kube-proxy's jump was deleted before.
fn led_astray(api: &[&str]) -> Vec<Event> {
    let rule = "ip daddr 10.96.0.7 tcp dport 80 dnat to 10.20.1.9:80 comment \"test/nginx:http\"";
    let map = format!(
        "flush chain ip felix-programs frontends\nadd rule ip felix-programs frontends {rule}\n"
    );
    let told = |at_us, ready: &[&str]| {
        let ready = ready.iter().map(|&it| it.to_owned()).collect();
        endpoints(at_us, Some(ready), &[])
    };
    let mut events = vec![
        command("n2", 400_000, "felix", &["nft", "-f", "-"], &map),
        told(350_000, &["10.20.1.9"]),
    ];
    events.extend(cleanup("n2", 1_200_000));
    events.push(told(1_450_000, api));
    events
}

#[test]
fn a_map_that_knows_none_of_a_services_endpoints_is_named_and_not_the_jump_that_was_deleted() {
    assert_eq!(
        headline(led_astray(&["10.20.1.10"])),
        format!(
            "{DEAD}felix's NAT map leads test/nginx to 10.20.1.9, its EndpointSlices have 10.20.1.10 since 1.450"
        )
    );
}

/// Looks at n2's map at these times, and what each showed; the jump was deleted, and from 1.45 s on the API has 10.20.1.10 alone.
fn looked_at(looks: &[(u64, Option<&str>)]) -> String {
    let one = |address: &str| BTreeSet::from([address.to_owned()]);
    let look = |&(at_us, backend): &(u64, Option<&str>)| {
        let seen = EventKind::NatMap {
            node: "n2".into(),
            service: "test/nginx".to_owned(),
            backends: backend.map(one),
        };
        event(at_us, seen)
    };
    let mut events = vec![endpoints(350_000, Some(one("10.20.1.9")), &[])];
    events.extend(looks.iter().map(look));
    events.extend(cleanup("n2", 1_200_000));
    events.push(endpoints(1_450_000, Some(one("10.20.1.10")), &[]));
    events.sort_by_key(|event| event.at_us);
    headline(events)
}

#[test]
fn a_real_felixs_map_is_blind_from_when_endpoints_changed_until_the_last_look_that_showed_it() {
    const OLD: Option<&str> = Some("10.20.1.9");
    let blind = format!(
        "{DEAD}felix's NAT map leads test/nginx to 10.20.1.9, its EndpointSlices have 10.20.1.10 since 1.450"
    );
    let from_before = (400_000, OLD);
    assert_eq!(looked_at(&[from_before, (9_000_000, OLD)]), blind);
    // It saw again, who knows when.
    for later in [Some("10.20.1.10"), None] {
        let said = looked_at(&[from_before, (1_460_000, OLD), (9_000_000, later)]);
        assert!(!said.contains("NAT map"), "{later:?}: {said}");
    }
    let said = looked_at(&[from_before]);
    assert!(!said.contains("NAT map"), "nobody looked again: {said}");
}

#[test]
fn programs_that_drop_each_packet_are_named_and_not_the_jump_that_was_deleted() {
    let lost = "add table ip felix-programs\nadd chain ip felix-programs marks\n\
        flush chain ip felix-programs marks\nadd rule ip felix-programs marks iifname != \"lo\" counter drop\n";
    let mut events = cleanup("n2", 1_200_000);
    let nft = ["nft", "-f", "-"];
    events.push(command("n2", 1_400_000, "end of felix's pod", &nft, lost));
    assert_eq!(
        headline(events),
        format!("{DEAD}felix's programs drop every packet since 1.400 (end of felix's pod)")
    );
}

#[test]
fn a_map_that_knows_one_of_them_is_not_why_all_requests_are_lost() {
    let said = headline(led_astray(&["10.20.1.9", "10.20.1.10"]));
    // Nor is the jump, without which requests were answered for a while.
    assert_eq!(said, format!("{DEAD}no recorded command explains it"));
}
