//! What people attach: files and folders, those in archives among them, of one node or of several: in folders `nodes/NAME` (`calicoctl cluster
//! diags`), or by what their pods say (`kubectl cluster-info dump`, `oc adm must-gather`).

mod found;
mod left_out;
mod settle;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use anyhow::Result;
use chainbreak_model::input;
use chainbreak_netfilter::dumps::Dumps;
use chainbreak_report::text::count;

use self::{found::Found, left_out::LeftOut};
use crate::{archive, cases::invalid};

/// The most that is read of all files, in bytes: 100,000 rules are some 20 MB.
const MOST: u64 = 256 << 20;
/// So many nodes are named.
pub(crate) const NODES: usize = 5;
/// In which folder each node has one.
const OF_NODES: &str = "nodes";
/// The folder of `bpftool map dump`, and what files of eBPF maps are called: by far the largest of a bundle, and nothing here reads others than
/// these, by which packets are walked.
const MAPS: &str = "bpf-maps";
const OF_MAPS: &str = "bpf-";
const WALKED: [&str; 4] = ["bpf-nat.", "bpf-conntrack.", "bpf-routes.", "bpf-ipsets."];
/// By which a node is diagnosed.
pub(crate) const DIAGNOSED: [&str; 1] = ["bpf-nat."];
/// How a file begins in which Felix notes the policies of a program.
const POLICY: &str = "{\"ifacename\":";
/// In which folder a sosreport has what it asks in other network namespaces, pods' among them: rules, addresses and settings that are not the
/// node's.
const ELSEWHERE: &str = "networking/namespaces";
/// What such a file is called, also in older ones, which have them among the node's own.
const ASKED_ELSEWHERE: &str = "ip_netns_exec_";

/// What is made of a file's text: whether anything in it is known.
pub(crate) type Take<'a> = dyn FnMut(&Path, &str) -> Result<bool> + 'a;

/// The texts of all files.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    texts: Vec<Attachment>,
    /// The files directly in what may be a node's folder, by its name.
    folders: BTreeMap<String, BTreeSet<String>>,
    left_out: LeftOut,
    /// Whether nodes are told by what their pods say alone.
    by_pods: bool,
    /// The node that is asked for.
    asked: Option<String>,
    /// Which eBPF maps are read, by how their files begin.
    reads: &'static [&'static str],
    /// So many files are eBPF maps that are not read.
    maps: usize,
    /// So many are of other network namespaces than the node's own.
    elsewhere: usize,
}

/// A file that is text.
#[derive(Debug)]
struct Attachment {
    name: PathBuf,
    /// In whose folder it lies.
    node: Option<String>,
    /// Whether it was named itself, and not a folder or an archive.
    is_named: bool,
    text: String,
}

/// Of which node a file is, by its folders.
#[derive(Debug, PartialEq, Eq)]
enum Lies {
    /// Of none in particular.
    Anywhere,
    /// In the folder of that name.
    In(String),
    /// In one that has no node's name.
    Nowhere,
}

impl Attached {
    /// Reads every file that is named or lies in a folder; of nodes only the one that is asked for, and of eBPF maps these.
    pub(crate) fn read(
        paths: &[PathBuf],
        asked: Option<&str>,
        reads: &'static [&'static str],
    ) -> Result<Self> {
        let mut attached = Self {
            reads,
            asked: asked.map(str::to_owned),
            ..Self::default()
        };
        let mut left = MOST;
        let files = found::files(paths, &mut |file, why| attached.left_out.add(file, why))?;
        for file in files {
            match attached.read_file(&file, left) {
                Ok(length) => left = left.saturating_sub(length),
                Err(why) if file.is_named => return Err(why),
                Err(why) => crate::note(&format!("{why:#}, left out")),
            }
            if left == 0 {
                crate::note(&format!(
                    "{} and what comes after it: more than {} MB, left out",
                    file.path.display(),
                    MOST >> 20
                ));
                break;
            }
        }
        attached.settle();
        Ok(attached)
    }

    /// Takes in a file, or those in an archive; how many bytes they have.
    fn read_file(&mut self, file: &Found, most: u64) -> Result<u64> {
        let unreadable =
            |why: std::io::Error| invalid(format!("{} cannot be read: {why}", file.path.display()));
        if !archive::is_one(&file.path) {
            if !self.is_wanted(&file.inside) {
                return Ok(0);
            }
            let bytes = input::read(&file.path, most).map_err(unreadable)?;
            let length = bytes.len();
            self.add(&file.path, &file.inside, file.is_named, bytes);
            return Ok(length as u64);
        }
        let mut is_wanted = |entry: &Path| self.is_wanted(&file.inside.join(entry));
        let files = archive::files(&file.path, most, &mut is_wanted).map_err(unreadable)?;
        let mut length = 0;
        for (entry, bytes) in files {
            length += bytes.len();
            let is_alone = entry.as_os_str().is_empty();
            let [name, inside] = [&file.path, &file.inside].map(|it| {
                if is_alone {
                    it.with_extension("")
                } else {
                    it.join(&entry)
                }
            });
            self.add(&name, &inside, file.is_named && is_alone, bytes);
        }
        Ok(length as u64)
    }

    /// Whether a file is read, by where it lies. Notes the node in whose folder that is.
    fn is_wanted(&mut self, inside: &Path) -> bool {
        let name = inside.file_name().map(|it| it.to_string_lossy());
        let name = name.unwrap_or_default();
        let lies = lies(inside);
        if let Lies::In(node) = &lies {
            let is_direct = inside.parent().is_some_and(|it| it.ends_with(node));
            let files = self.folders.entry(node.clone()).or_default();
            files.extend(is_direct.then(|| name.clone().into_owned()));
        }
        if is_elsewhere(inside) {
            self.elsewhere += 1;
            return false;
        }
        let is_read = self.reads.iter().any(|map| name.starts_with(map));
        let is_map = name.starts_with(OF_MAPS) && !is_read
            || inside.parent().is_some_and(|it| it.ends_with(MAPS));
        if is_map && lies != Lies::Anywhere {
            self.maps += 1;
            return false;
        }
        match lies {
            Lies::In(node) => self.asked.as_ref().is_none_or(|asked| *asked == node),
            Lies::Anywhere | Lies::Nowhere => true,
        }
    }

    fn add(&mut self, name: &Path, inside: &Path, is_named: bool, bytes: Vec<u8>) {
        let Ok(mut text) = String::from_utf8(bytes) else {
            self.left_out.add(name, "no text, left out");
            return;
        };
        if text.starts_with(POLICY) {
            // Of which family it is its name alone says.
            let file = name.file_name().unwrap_or_default();
            text.insert_str(0, &format!("{}:", file.display()));
        }
        let node = match lies(inside) {
            Lies::Anywhere => None,
            Lies::In(node) => Some(node),
            Lies::Nowhere => {
                self.left_out
                    .add(name, "its folder has no node's name, left out");
                return;
            }
        };
        if name.file_name().is_some_and(|it| it == "left-out") {
            let name = name.display();
            text.lines()
                .for_each(|line| crate::note(&format!("{name}: {line}")));
            return;
        }
        let mut push = |name: PathBuf, text| {
            self.texts.push(Attachment {
                name,
                node: node.clone(),
                is_named,
                text,
            });
        };
        let Some((rest, logs)) = settle::divide(&text) else {
            push(name.to_owned(), text);
            return;
        };
        if !rest.trim().is_empty() {
            push(name.to_owned(), rest);
        }
        for (pod, log) in logs {
            push(name.join(pod), log);
        }
    }

    /// The nodes that folders are of.
    fn nodes(&self) -> BTreeSet<&str> {
        self.folders.keys().map(String::as_str).collect()
    }

    /// The node that is asked for, or all; none where folders are of no node in particular.
    pub(crate) fn chosen(&self) -> Result<Vec<&str>> {
        let nodes = self.nodes();
        let Some(asked) = &self.asked else {
            return Ok(nodes.into_iter().collect());
        };
        match nodes.get(asked.as_str()) {
            Some(node) => Ok(vec![*node]),
            None if nodes.is_empty() => Err(invalid(format!(
                "--node {asked}: what is attached does not say of which node it is; of several each has a folder {OF_NODES}/NAME"
            ))),
            None => Err(invalid(format!(
                "--node {asked}: nothing of it is attached, but of {}",
                first_of(&nodes, NODES)
            ))),
        }
    }

    /// The one that is asked for, or the only one. What pods say is no reason to ask.
    pub(crate) fn only(&self) -> Result<Option<&str>> {
        if self.by_pods && self.asked.is_none() {
            return Ok(None);
        }
        match *self.chosen()?.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            _ => Err(invalid(format!(
                "of which node? Attached are {}: --node NODE",
                first_of(&self.nodes(), NODES)
            ))),
        }
    }

    /// Hands over the texts of a node: what lies in its folder and what was named beside it, or everything where no folder is a node's.
    /// How many had something that is known; of the others it is said that they are left out, of the first by their names.
    pub(crate) fn take(&self, node: Option<&str>, take: &mut Take<'_>) -> Result<usize> {
        let is_its = |it: &&Attachment| match node {
            None => true,
            Some(_) if it.node.is_none() => self.goes_along(it),
            of => it.node.as_deref() == of,
        };
        let why = "nothing that is known, left out";
        self.hand_over(is_its, why, take)
    }

    /// Hands over the texts that lie in no node's folder, where there are some, those that were named themselves among them or not.
    pub(crate) fn take_of_all(&self, and_named: bool, take: &mut Take<'_>) -> Result<usize> {
        let is_its = |it: &&Attachment| it.node.is_none() && (and_named || !self.goes_along(it));
        let why = if self.by_pods {
            "nothing that the API holds, and nobody says of which node it is (`--node NODE` does): left out"
        } else {
            "in no node's folder, and nothing that the API holds: left out"
        };
        self.hand_over(is_its, why, take)
    }

    /// Whether what lies in no node's folder is of the node that is diagnosed: what was named beside folders of nodes, and, where nodes are told
    /// by their pods alone, whatever is attached of the one that is asked for.
    fn goes_along(&self, it: &Attachment) -> bool {
        if self.by_pods {
            self.asked.is_some()
        } else {
            it.is_named
        }
    }

    fn hand_over(
        &self,
        is_its: impl FnMut(&&Attachment) -> bool,
        why: &str,
        take: &mut Take<'_>,
    ) -> Result<usize> {
        let mut known = 0;
        for it in self.texts.iter().filter(is_its) {
            if take(&it.name, &it.text)? {
                known += 1;
            } else {
                self.left_out.add(&it.name, why);
            }
        }
        Ok(known)
    }

    /// Says what was left out.
    pub(crate) fn end(&self) {
        self.left_out.tell();
        if self.maps > 0 {
            let maps = count(self.maps, "file");
            crate::note(&format!(
                "{maps} of eBPF maps, which nothing here reads: left out"
            ));
        }
        if self.elsewhere > 0 {
            let elsewhere = count(self.elsewhere, "file");
            crate::note(&format!(
                "{elsewhere} of other network namespaces ({ELSEWHERE}): left out"
            ));
        }
    }
}

/// The dumps in these files and folders, of that node where they are of several.
pub(crate) fn dumps(paths: &[PathBuf], node: Option<&str>) -> Result<Dumps> {
    let attached = Attached::read(paths, node, &WALKED)?;
    let node = attached.only()?;
    let mut dumps = Dumps::default();
    let known = attached.take(node, &mut |name, text| {
        let found = dumps.add(text).map_err(|error| {
            invalid(format!(
                "{}, {error}: a dump that is whole ends each table with COMMIT (iptables) or }} (nft)",
                name.display()
            ))
        })?;
        Ok(!found.is_empty())
    })?;
    attached.end();
    if known == 0 {
        return Err(nothing_in(paths, "no dump"));
    }
    Ok(dumps)
}

/// That these files and folders have nothing to read.
pub(crate) fn nothing_in(paths: &[PathBuf], what: &str) -> anyhow::Error {
    let places = paths.iter().map(|path| path.display().to_string());
    let places: Vec<String> = places.collect();
    invalid(format!(
        "{what} is in {}: `chainbreak collect` prints the script that makes them, or put there what \
         `iptables-save -c`, `nft list ruleset`, `conntrack -L`, `ip route show table all`, `ip rule`, `ip addr` and \
         `sysctl -a` print on the node, a file each",
        places.join(" or ")
    ))
}

/// The first names of many.
pub(crate) fn first_of(names: &BTreeSet<&str>, most: usize) -> String {
    let first: Vec<&str> = names.iter().take(most).copied().collect();
    let more = names.len().saturating_sub(most);
    let more = if more > 0 {
        format!(" and {}", count(more, "other"))
    } else {
        String::new()
    };
    format!("{}{more}", first.join(", "))
}

/// Whether a file is of another network namespace than the node's own.
fn is_elsewhere(inside: &Path) -> bool {
    let name = inside.file_name().map(|it| it.to_string_lossy());
    let mut folders = inside.ancestors().skip(1);
    folders.any(|folder| folder.ends_with(ELSEWHERE))
        || name.is_some_and(|name| name.starts_with(ASKED_ELSEWHERE))
}

/// Where a file lies, by the folders that were named and those in them: `…/nodes/n1/ip-route.txt` is of n1. The last such folder counts, as
/// what was named may lie in one.
fn lies(inside: &Path) -> Lies {
    let folders = inside.parent().into_iter().flat_map(Path::components);
    let folders: Vec<Component<'_>> = folders.collect();
    let mut pairs = folders.iter().zip(folders.iter().skip(1)).rev();
    let Some((_, name)) = pairs.find(|(of, _)| of.as_os_str() == OF_NODES) else {
        return Lies::Anywhere;
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let name = match name {
        Component::Normal(name) => name.to_str().filter(|it| it.bytes().all(is_plain)),
        _ => None,
    };
    name.map_or(Lies::Nowhere, |name| Lies::In(name.to_owned()))
}

#[cfg(test)]
mod tests;
