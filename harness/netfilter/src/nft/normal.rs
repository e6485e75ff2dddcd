//! The one spelling of a line of nft's, so that what an agent wrote is recognised in what nft prints:
//! `mark set mark or 0x4000` is `meta mark set meta mark | 0x00004000`.
//!
//! Known limit: of the intervals in an anonymous set those that lie in another are left out, as nft merges
//! them; intervals that touch are not made one.

use std::net::IpAddr;

/// The normal form of a rule, an element, or a line that says what a chain or a set is.
pub fn normal(line: &str) -> String {
    let tokens = tokens(line);
    let mut words = spelled(&tokens);
    let is_base =
        words.first().is_some_and(|it| it == "type") && words.iter().any(|it| it == "hook");
    if is_base && !words.iter().any(|it| it == "policy") {
        words.extend(["policy".to_owned(), "accept".to_owned()]);
    }
    words.join(" ")
}

/// Words, quoted texts, and the marks that stand by themselves whether or not there are blanks around them.
pub(crate) fn tokens(line: &str) -> Vec<String> {
    let (mut tokens, mut token, mut quoted) = (Vec::new(), String::new(), false);
    let mut end = |token: &mut String| {
        if !token.is_empty() {
            tokens.push(std::mem::take(token));
        }
    };
    for char in line.chars() {
        match char {
            '"' => {
                quoted = !quoted;
                token.push(char);
            }
            _ if quoted => token.push(char),
            '{' | '}' | ',' | ';' => {
                end(&mut token);
                end(&mut char.to_string());
            }
            _ if char.is_whitespace() => end(&mut token),
            _ => token.push(char),
        }
    }
    end(&mut token);
    tokens
}

fn spelled(tokens: &[String]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut rest = tokens.iter().map(String::as_str).enumerate();
    while let Some((at, token)) = rest.next() {
        let next = tokens.get(at + 1).map(String::as_str);
        match (token, next) {
            (";", _) | ("meta", Some("mark")) => {}
            ("{", _) => {
                let inside = inside(&tokens[at + 1..]);
                words.extend(set(inside));
                // Its closing brace, too.
                rest.nth(inside.len());
            }
            // `dnat ip addr . port to`: nft leaves out what the map's type says.
            ("addr", Some(".")) if tokens.get(at + 3).is_some_and(|it| it == "to") => {
                rest.nth(1);
            }
            ("counter", Some("packets")) => {
                words.push("counter".to_owned());
                rest.nth(3);
            }
            ("priority", _) => {
                let (number, length) = priority(&tokens[at + 1..]);
                words.extend(["priority".to_owned(), number.to_string()]);
                if let Some(skipped) = length.checked_sub(1) {
                    rest.nth(skipped);
                }
            }
            ("timeout", Some(time)) => {
                words.extend(["timeout".to_owned(), seconds(time)]);
                rest.next();
            }
            _ => words.push(word(token)),
        }
    }
    words
}

/// What stands before the brace that closes.
fn inside(tokens: &[String]) -> &[String] {
    let mut depth = 0;
    let end = tokens.iter().position(|token| match token.as_str() {
        "{" => {
            depth += 1;
            false
        }
        "}" if depth == 0 => true,
        "}" => {
            depth -= 1;
            false
        }
        _ => false,
    });
    &tokens[..end.unwrap_or(tokens.len())]
}

/// A set has no order; one of a single element, which is no map, is that element.
fn set(tokens: &[String]) -> Vec<String> {
    let items = tokens.split(|it| it == ",").map(|it| spelled(it).join(" "));
    let items: Vec<String> = items.filter(|it| !it.is_empty()).collect();
    let outermost = |item: &&String| {
        !items
            .iter()
            .any(|other| *item != other && contains(other, item))
    };
    let mut kept: Vec<String> = items.iter().filter(outermost).cloned().collect();
    kept.sort_unstable();
    kept.dedup();
    match kept.as_slice() {
        [only] if !only.contains(" : ") => kept,
        _ => vec![format!("{{ {} }}", kept.join(", "))],
    }
}

fn contains(outer: &str, inner: &str) -> bool {
    let (Some((net, length)), Some((ip, inner))) = (network(outer), network(inner)) else {
        return false;
    };
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    net.is_ipv4() == ip.is_ipv4() && length <= inner && bits(net) & mask == bits(ip) & mask
}

fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (ip, length) = text.split_once('/').unwrap_or((text, ""));
    let ip: IpAddr = ip.parse().ok()?;
    let whole = if ip.is_ipv4() { 32 } else { 128 };
    let length = if length.is_empty() {
        whole
    } else {
        length.parse().ok()?
    };
    (length <= whole).then_some((ip, length))
}

/// Names of priorities are the kernel's (`nft(8)`), `dstnat` and `srcnat` those of the families `ip` and `ip6`.
fn priority(tokens: &[String]) -> (i32, usize) {
    let end = tokens.iter().position(|it| it == ";" || it == "policy");
    let words = &tokens[..end.unwrap_or(tokens.len())];
    let text: String = words.concat();
    let split = text.find(['+', '-']).filter(|at| *at > 0);
    let (name, offset) = text.split_at(split.unwrap_or(text.len()));
    let base: i32 = match name {
        "raw" => -300,
        "mangle" => -150,
        "dstnat" => -100,
        "filter" => 0,
        "security" => 50,
        "srcnat" => 100,
        number => number.parse().unwrap_or_default(),
    };
    (
        base.saturating_add(offset.parse().unwrap_or_default()),
        words.len(),
    )
}

/// `3h` is `10800s`; fractions of a second are dropped.
fn seconds(text: &str) -> String {
    let (mut all, mut number, mut unit) = (0_u64, String::new(), String::new());
    let mut add = |number: &mut String, unit: &mut String| {
        let factor: u64 = match unit.as_str() {
            "d" => 86_400,
            "h" => 3600,
            "m" => 60,
            "ms" => 0,
            _ => 1,
        };
        let seconds: u64 = number.parse().unwrap_or_default();
        all = all.saturating_add(seconds.saturating_mul(factor));
        number.clear();
        unit.clear();
    };
    for char in text.chars() {
        if char.is_ascii_digit() {
            if !unit.is_empty() {
                add(&mut number, &mut unit);
            }
            number.push(char);
        } else {
            unit.push(char);
        }
    }
    add(&mut number, &mut unit);
    format!("{all}s")
}

fn word(token: &str) -> String {
    match token {
        "and" => return "&".to_owned(),
        "or" => return "|".to_owned(),
        "xor" => return "^".to_owned(),
        _ => {}
    }
    if let Some(number) = token
        .strip_prefix("0x")
        .and_then(|it| u32::from_str_radix(it, 16).ok())
    {
        return number.to_string();
    }
    match network(token) {
        Some((ip, 32)) if ip.is_ipv4() => ip.to_string(),
        Some((ip, 128)) => ip.to_string(),
        Some((ip, length)) => format!("{ip}/{length}"),
        None => token.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_printed_lines_have_one_form() {
        let pairs = [
            (
                "mark set mark or 0x4000",
                "meta mark set meta mark | 0x00004000",
            ),
            (
                "mark and 0x4000 == 0 return",
                "meta mark & 0x00004000 == 0x00000000 return",
            ),
            (
                "type filter hook prerouting priority -110",
                "type filter hook prerouting priority dstnat - 10; policy accept;",
            ),
            (
                "type nat hook postrouting priority 100",
                "type nat hook postrouting priority srcnat; policy accept;",
            ),
            (
                "ip daddr { 10.96.0.0/16 } drop comment \"a, { b\"",
                "ip daddr 10.96.0.0/16 drop comment \"a, { b\"",
            ),
            (
                "ip saddr != { 203.0.113.0/24 , 10.0.1.1/32 , 10.0.0.0/8 } drop",
                "ip saddr != { 10.0.0.0/8, 203.0.113.0/24 } drop",
            ),
            (
                "numgen random mod 2 vmap { 0 : goto a , 1 : goto b }",
                "numgen random mod 2 vmap { 0 : goto a, 1 : goto b }",
            ),
            ("timeout 10800s", "timeout 3h"),
            ("timeout 90061s", "timeout 1d1h1m1s"),
            ("counter drop", "counter packets 3 bytes 4 drop"),
            (
                "dnat ip addr . port to numgen random mod 1 map { 0 : 10.0.0.1 . 80 }",
                "dnat ip to numgen random mod 1 map { 0 : 10.0.0.1 . 80 }",
            ),
            ("update @s { ip saddr }", "update @s { ip saddr }"),
        ];
        for (written, printed) in pairs {
            assert_eq!(normal(written), normal(printed));
        }
    }

    #[test]
    fn numbers_that_no_kernel_has_are_spelled_as_the_nearest_one() {
        for (line, spelled) in [
            ("priority dstnat - 2147483648", "priority -2147483648"),
            ("priority srcnat + 2147483647", "priority 2147483647"),
            (
                "timeout 9999999999999999999d",
                "timeout 18446744073709551615s",
            ),
            (
                "timeout 18446744073709551615s1s",
                "timeout 18446744073709551615s",
            ),
        ] {
            assert_eq!(normal(line), spelled);
        }
    }

    #[test]
    fn different_lines_have_different_forms() {
        let lines = [
            "ip saddr 10.0.0.1 jump x",
            "ip saddr != 10.0.0.1 jump x",
            "ip saddr 10.0.0.1 goto x",
            "ip saddr 10.0.0.0/8 jump x",
            "numgen random mod 1 vmap { 0 : goto a }",
            "numgen random mod 2 vmap { 0 : goto a, 1 : goto b }",
            "numgen random mod 2 vmap { 0 : goto b, 1 : goto a }",
            "ip saddr != { 10.0.0.0/8, 11.0.0.0/8 } drop",
            "type filter hook input priority 0",
            "type filter hook input priority 1",
            "type filter hook input priority 0; policy drop;",
        ];
        let forms: std::collections::BTreeSet<_> = lines.iter().map(|it| normal(it)).collect();
        assert_eq!(forms.len(), lines.len());
    }
}
