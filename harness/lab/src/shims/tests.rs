//! What the shim and the recorder share, without a shim.

use super::{
    folder_name, names,
    wire::{Done, Tag, frame, piece, read_piece, read_words, words},
};

#[path = "../../shim/input.rs"]
mod input;

#[test]
fn words_of_any_bytes_arrive_as_they_were_sent() {
    let sent: [&[u8]; 4] = [b"iptables", b"", b"a b\n\xff", b"-j"];
    let bytes = words(&sent);
    assert_eq!(read_words(&bytes).unwrap(), sent);
    for cut in [bytes.len() - 1, 9, 2] {
        assert_eq!(read_words(&bytes[..cut]), None, "cut at {cut}");
    }
}

#[test]
fn an_end_arrives_as_it_was_sent() {
    let done = Done {
        exit: -1,
        begin_us: 1 << 40,
        end_us: u64::MAX,
    };
    assert_eq!(Done::read(&done.bytes()), Some(done));
    assert_eq!(Done::read(&done.bytes()[1..]), None);
    assert_eq!(frame(Tag::Done, b"xy"), [b'd', 2, 0, 0, 0, b'x', b'y']);
    for tag in [Tag::Ask, Tag::Input, Tag::Stderr, Tag::Done] {
        assert_eq!(Tag::of(tag as u8), Some(tag));
    }
    assert_eq!(Tag::of(0), None);
    assert_eq!(
        read_piece(&piece(1 << 40, b"*nat")),
        Some((1 << 40, &b"*nat"[..]))
    );
    assert_eq!(read_piece(b"short"), None);
}

#[test]
fn there_are_shims_for_every_name_of_both_backends() {
    let names: Vec<String> = names().collect();
    for name in [
        "iptables",
        "ip6tables-restore",
        "iptables-legacy-save",
        "ip6tables-nft",
        "nft",
        "conntrack",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    assert_eq!(names.len(), 2 * 3 * 3 + 3);
}

#[test]
fn a_folder_of_any_name_leaves_room_in_a_sockets_path() {
    assert_eq!(folder_name("kube-proxy"), "kube-proxy");
    let long = format!("pod/{}/{}-x7k2p", "n".repeat(63), "ü".repeat(100));
    let name = folder_name(&long);
    assert!(name.len() <= 64 && name.ends_with("-x7k2p"), "{name}");
    assert!(!name.contains('/'));
}

#[test]
fn standard_input_is_taken_only_where_the_program_reads_it() {
    for (line, is_read) in [
        ("iptables-restore", true),
        ("iptables-restore -w 5 -W 100000 --noflush --counters", true),
        ("ip6tables-legacy-restore -w --noflush -T nat", true),
        ("iptables-nft-restore --wait=5 -", true),
        ("iptables-restore --noflush rules.v4", false),
        ("iptables-restore -T nat rules.v4", false),
        ("iptables-restore --version", false),
        ("iptables -w 5 -S", false),
        ("iptables-save -c", false),
        ("nft -f -", true),
        ("nft --check -f -", true),
        ("nft -cf -", true),
        ("nft --json --file /dev/stdin", true),
        ("nft --file=-", true),
        ("nft -i", true),
        ("nft -f rules.nft", false),
        ("nft --json list ruleset", false),
        ("nft add element ip t s { 1 - 5 }", false),
        ("ipset restore", true),
        ("ipset -exist restore", true),
        ("ipset restore -!", true),
        ("ipset -R", true),
        ("ipset -o save restore", true),
        ("ipset -", true),
        ("ipset restore -file sets", false),
        ("ipset create restore hash:ip", false),
        ("ipset list", false),
        ("conntrack -R -", true),
        ("conntrack --load-file entries", false),
        ("conntrack -D -p udp", false),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(input::is_read(words[0], &words[1..]), is_read, "{line}");
    }
}
