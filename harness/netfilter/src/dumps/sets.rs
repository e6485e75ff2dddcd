//! `ipset list`, which people attach more often than `ipset save`.

use super::address;

/// Where in a listing a line stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Outside,
    Head,
    Members,
}

/// The sets of a text as `ipset save` prints them, and the lines that are none of them. A listing of a set is (ipset 7.17):
///
/// ```text
/// Name: cali40all-ipam-pools
/// Type: hash:net
/// …
/// Members:
/// 10.20.0.0/16
/// ```
pub(super) fn of_listing(text: &str) -> (String, String) {
    let (mut saved, mut rest) = (String::new(), String::new());
    let (mut at, mut name, mut kind) = (At::Outside, "", "");
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim_end();
        let next = lines.peek().and_then(|next| next.strip_prefix("Type: "));
        match (line.strip_prefix("Name: "), next, at) {
            (Some(named), Some(next), _) => {
                (at, name, kind) = (At::Head, named.trim(), next.trim());
            }
            // Of one whose members were not listed nothing is known.
            (_, _, At::Head) if line == "Members:" => {
                at = At::Members;
                saved.extend(["create ", name, " ", kind, "\n"]);
            }
            (_, _, At::Head) if !line.is_empty() => {}
            (_, _, At::Members) if is_member(line) => saved.extend(["add ", name, " ", line, "\n"]),
            _ => {
                if line.is_empty() {
                    at = At::Outside;
                }
                rest.extend([line, "\n"]);
            }
        }
    }
    (saved, rest)
}

/// Whether it is an address, a network or a range, with or without a port and whatever else the set's type has.
fn is_member(line: &str) -> bool {
    let element = line.split([' ', ',', '-']).next().unwrap_or_default();
    address(element).is_some()
        && ![" dev ", " via ", " port "]
            .iter()
            .any(|it| line.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_says_what_a_save_says_and_what_stands_around_it_is_left() {
        let text = "before\nName: cali40s:a\nType: hash:net\nRevision: 7\nHeader: family inet hashsize 1024\nReferences: 1\nNumber of entries: 2\n\
            Members:\n10.0.0.0/8\n10.1.0.0/16 nomatch\n\nName: cali40t:b\nType: hash:ip,port\nMembers:\n10.0.0.1,tcp:80\n10.0.0.0/24 dev eth0 scope link\n10.0.0.2,tcp:80\n\nName: unlisted\nType: hash:ip\n\nName: nobody\n";
        let (saved, rest) = of_listing(text);
        assert_eq!(
            saved,
            "create cali40s:a hash:net\nadd cali40s:a 10.0.0.0/8\nadd cali40s:a 10.1.0.0/16 nomatch\ncreate cali40t:b hash:ip,port\nadd cali40t:b 10.0.0.1,tcp:80\nadd cali40t:b 10.0.0.2,tcp:80\n"
        );
        assert_eq!(
            rest,
            "before\n\n10.0.0.0/24 dev eth0 scope link\n\n\nName: nobody\n"
        );
    }
}
