//! Of what was removed more than once, and of which protocol.

use crate::{
    culprits::headline,
    history::{cleanup, command},
};

#[test]
fn who_empties_a_table_of_what_was_deleted_before_is_not_blamed_for_it() {
    let emptied = |program: &str, at_us| {
        let nat = "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n";
        command("n2", at_us, "somebody", &[program], nat)
    };
    let [v4, v6] = ["iptables-restore", "ip6tables-restore"];
    let by_felix = headline(cleanup("n2", 1_485_000));
    assert!(by_felix.contains("deleted by felix"), "{by_felix}");
    let after = [cleanup("n2", 1_485_000), vec![emptied(v4, 1_495_000)]];
    assert_eq!(headline(after.concat()), by_felix);
    let said = headline(vec![emptied(v4, 1_495_000)]);
    assert!(said.contains("deleted by somebody"), "{said}");
    // Requests are of IPv4.
    let said = headline(vec![emptied(v6, 1_495_000)]);
    assert!(!said.contains("somebody"), "{said}");
}
