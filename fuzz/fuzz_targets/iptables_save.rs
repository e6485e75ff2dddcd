//! What `iptables-save` printed: printed again it is parsed the same, restored twice it stands as restored once, and what a
//! rule says does not depend on how it is spelled.
#![no_main]

use chainbreak_netfilter::{Family, Order, Rule, Ruleset, Tally, apply, changes, diff, join};
use libfuzzer_sys::fuzz_target;

/// As an agent restores all of a table.
const RESTORE: [&str; 1] = ["iptables-restore"];

fuzz_target!(|text: &str| {
    // As an agent could have written it.
    drop(changes(&RESTORE, text));
    let Ok(ruleset) = Ruleset::parse(text) else {
        return;
    };
    let printed = ruleset.to_string();
    assert_eq!(Ruleset::parse(&printed).as_ref(), Ok(&ruleset), "{printed}");
    assert_eq!(diff(Family::V4, &ruleset, &ruleset, Order::Kept), []);
    restored_twice(&printed);
    for chain in ruleset
        .tables
        .values()
        .flat_map(|table| table.chains.values())
    {
        chain.rules.iter().for_each(spelled_otherwise);
    }
    let mut tally = Tally::default();
    assert!(
        tally.see(ruleset.counted()).is_empty(),
        "what was seen first has not grown"
    );
    assert!(
        tally.see(ruleset.counted()).is_empty(),
        "nothing has grown since"
    );
    for site in ruleset.drops() {
        let chain = ruleset.chain(site.table, site.chain).expect("it is listed");
        let index = site.number.checked_sub(1);
        assert_eq!(index.map(|index| &chain.rules[index]), site.rule);
    }
});

fn restored_twice(text: &str) {
    let mut once = Ruleset::default();
    let restored = apply(&mut once, &RESTORE, text);
    let mut twice = once.clone();
    assert_eq!(apply(&mut twice, &RESTORE, text), restored);
    assert_eq!(twice, once);
}

fn spelled_otherwise(rule: &Rule) {
    let words: Vec<_> = rule.words().collect();
    let joined = Rule::new(join(words.iter().map(AsRef::as_ref)));
    assert!(joined.words().eq(rule.words()));
    assert!(joined.same(rule) && rule.same(&joined));
    assert_eq!(joined.target(), rule.target());
}
