//! nftables mode on the real nft: what stands in the kernel, and what becomes of it when others interfere.

mod converges;
mod harm;
mod layouts;
mod memory;
mod rules;
mod settings;

use std::collections::BTreeMap;

use chainbreak_agents::kube_proxy::{Config, Mode};

use crate::{netns::Netns, objects::config};

fn nftables(version: &str) -> Config {
    Config {
        mode: Mode::Nftables,
        ..config(version)
    }
}

/// What `nft list table` prints, by the line that each set, map and chain begins with: their order in the
/// table says only which was made first. Elements have no order at all.
fn blocks(listed: &str) -> BTreeMap<String, String> {
    let mut blocks = BTreeMap::new();
    let mut name = String::new();
    // A list of elements goes on behind a comma, further in.
    let listed = regex(r",\n\t+ +").replace_all(listed, ", ");
    let elements = regex(r"(elements = \{ )(.*)( \})");
    let listed = elements.replace_all(&listed, |found: &regex::Captures<'_>| {
        let mut elements: Vec<&str> = found[2].split(", ").collect();
        elements.sort_unstable();
        format!("{}{}{}", &found[1], elements.join(", "), &found[3])
    });
    for line in listed.lines() {
        match line.strip_prefix('\t') {
            Some(first) if first.ends_with(" {") => first.clone_into(&mut name),
            Some(rest) if rest.starts_with('\t') => {
                let block: &mut String = blocks.entry(name.clone()).or_default();
                block.extend([rest.trim_start(), "\n"]);
            }
            _ => {}
        }
    }
    blocks
}

fn regex(text: &str) -> regex::Regex {
    regex::Regex::new(text).unwrap()
}

impl Netns {
    /// kube-proxy's table, block by block; empty when there is none.
    fn table(&mut self) -> BTreeMap<String, String> {
        blocks(&self.try_sh("nft list table ip kube-proxy").stdout)
    }
}
