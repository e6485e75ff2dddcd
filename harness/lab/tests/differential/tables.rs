//! Whether two tables of nftables mode are the same, as far as kube-proxy itself decides it.
//!
//! The order of rules counts, that of elements, sets and chains does not: it says what was made first. A chain
//! that nothing leads to is emptied by one sync and deleted by the first that begins more than a second
//! later, which is a matter of when that comes: an empty one counts as none.

use std::collections::BTreeMap;

/// The lines of every set, map and chain, by the line that it begins with, in an order that chance has no part in.
pub(crate) fn lines(listed: &str) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut block = String::new();
    for line in joined(listed) {
        match line.strip_prefix('\t') {
            None if line.ends_with('{') => {
                all.insert(line.trim_end_matches(" {").to_owned(), Vec::new());
            }
            Some(first) if !first.starts_with('\t') && first.ends_with('{') => {
                first.trim_end_matches(" {").clone_into(&mut block);
                all.insert(block.clone(), Vec::new());
            }
            Some(rest) if rest.starts_with('\t') => {
                all.entry(block.clone()).or_default().extend(content(rest));
            }
            _ => {}
        }
    }
    all.retain(|name, lines| {
        !(lines.is_empty() && name.starts_with("chain ") && name.contains('/'))
    });
    all
}

/// A line of its own for what goes on behind a comma, deeper in.
fn joined(listed: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in listed.lines() {
        match lines.last_mut() {
            Some(last) if last.ends_with(',') => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

/// A line, or one for each element.
fn content(line: &str) -> Vec<String> {
    let line = line.trim();
    let elements = line.strip_prefix("elements = {");
    let Some(elements) = elements.and_then(|it| it.strip_suffix('}')) else {
        return vec![line.to_owned()];
    };
    let elements = elements.split(", ");
    let mut elements: Vec<String> = elements
        .map(|it| format!("element {}", without_age(it.trim())))
        .collect();
    elements.sort_unstable();
    elements
}

/// A client that is remembered is so from another moment on in either place.
fn without_age(element: &str) -> &str {
    element.split(" expires ").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "table ip kube-proxy {
	set cluster-ips {
		type ipv4_addr
		elements = { 10.96.0.9, 10.96.0.1,
			     10.96.0.5 }
	}

	chain services {
		type nat hook output priority -100; policy accept;
		first
		second
	}

	chain endpoint-AAAA-a/b/tcp/__10.20.1.1/80 {
	}

	chain reject-chain {
	}
}
";

    #[test]
    fn elements_have_no_order_and_rules_have_one() {
        let [set, rules] = [
            ("10.96.0.9, 10.96.0.1", "10.96.0.1, 10.96.0.9"),
            ("first\n\t\tsecond", "second\n\t\tfirst"),
        ]
        .map(|(from, to)| LISTING.replace(from, to));
        assert_eq!(lines(LISTING), lines(&set));
        assert_ne!(lines(LISTING), lines(&rules));
        assert_eq!(lines(LISTING)["set cluster-ips"].len(), 4);
    }

    #[test]
    fn an_empty_chain_of_a_service_counts_as_none_and_a_base_chain_counts() {
        let lines = lines(LISTING);
        assert!(lines.keys().all(|it| !it.contains("endpoint-")));
        assert!(lines.contains_key("chain reject-chain"));
        assert!(lines["chain services"][0].contains("priority -100"));
    }
}
