//! What `nft list ruleset` printed, and what is written for `nft -f -`: blanks between words mean nothing, the places of a listing
//! are those of the tables that are made of them, and a refused transaction has changed nothing.
#![no_main]

use chainbreak_netfilter::nft::{NftTable, Tables, listing, normal, places};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for line in text.lines() {
        assert_eq!(normal(&respaced(line)), normal(line), "{line}");
    }
    transaction(text);
    let Ok(tables) = listing(text) else {
        return;
    };
    assert_eq!(Ok(&tables), listing(text).as_ref());
    tables.iter().for_each(kept_in_places);
});

/// With other blanks, and some around the marks that stand by themselves.
fn respaced(line: &str) -> String {
    let (mut quoted, mut text) = (false, "\t".to_owned());
    for char in line.chars() {
        match char {
            '"' => {
                quoted = !quoted;
                text.push(char);
            }
            '{' | '}' | ',' | ';' if !quoted => text.extend([' ', char, '\t']),
            blank if blank.is_whitespace() && !quoted => text.push_str("  "),
            _ => text.push(char),
        }
    }
    text
}

fn kept_in_places(table: &NftTable) {
    let listed = places(table);
    let mut names: Vec<&String> = listed.iter().map(|(name, _)| name).collect();
    // Names are words.
    names.retain(|name| name.split(' ').count() == 4);
    names.sort_unstable();
    names.dedup();
    let kept = of_places(&listed).places();
    let mut kept: Vec<&String> = kept.iter().map(|(name, _)| name).collect();
    kept.sort_unstable();
    assert_eq!(kept, names);
}

fn of_places(places: &[(String, Vec<String>)]) -> Tables {
    let places = places.iter();
    Tables::of_places(places.map(|(place, lines)| (place.as_str(), lines.as_slice())))
}

/// Line by line, each a transaction; then all lines as one.
fn transaction(text: &str) {
    let mut tables = Tables::default();
    for transaction in text.lines().chain([text]) {
        let before = tables.clone();
        let mut again = tables.clone();
        let refused = tables.apply(transaction).is_err();
        assert!(!refused || tables == before, "{transaction}");
        assert_eq!(again.apply(transaction).is_err(), refused);
        assert_eq!(again, tables);
    }
}
