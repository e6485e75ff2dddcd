//! Of which node a file is that lies in no node's folder, and which folders are no nodes'.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use chainbreak_diagnose::Places;

use super::{Attached, Attachment};

/// What `kubectl cluster-info dump` prints before and after what a container said, among the lists of objects.
const START: &str = "==== START logs for container ";
const END: &str = "==== END logs for container ";

impl Attached {
    pub(super) fn settle(&mut self) {
        self.keep_nodes();
        self.place_logs();
    }

    /// Has no node where a folder has only what pods say: those that are on no node lie there by their namespace (Calico v3.31 and later).
    fn keep_nodes(&mut self) {
        let says_more = |files: &BTreeSet<String>| {
            let is_logs = |file: &String| {
                let log = Path::new(file).with_extension("log");
                log.to_str().is_some_and(|log| files.contains(log))
            };
            files.iter().any(|file| !is_logs(file))
        };
        self.folders.retain(|_, files| says_more(files));
        for it in &mut self.texts {
            it.node.take_if(|node| !self.folders.contains_key(node));
        }
    }

    /// What pods say is of the nodes that they are on, where these are several: of `kubectl cluster-info dump` and of must-gathers.
    fn place_logs(&mut self) {
        let mut places = Places::default();
        // Whether each has objects.
        let mut lists = Vec::new();
        for it in &self.texts {
            lists.push(it.node.is_none() && places.add(&it.text));
        }
        if places.is_empty() {
            return;
        }
        let nodes = self.texts.iter().zip(lists).map(|(it, is_list)| {
            let is_placed = is_list || it.node.is_some();
            if is_placed {
                None
            } else {
                node_of(it, &places)
            }
        });
        let nodes: Vec<Option<String>> = nodes.collect();
        if nodes.iter().flatten().collect::<BTreeSet<_>>().len() < 2 {
            return;
        }
        self.by_pods = self.folders.is_empty();
        for (it, node) in self.texts.iter_mut().zip(nodes) {
            if let Some(node) = node {
                self.folders.entry(node.clone()).or_default();
                it.node = Some(node);
            }
        }
    }
}

/// So many folders a file of a pod lies in, at most: a must-gather has six between the namespace and the file.
const DEEP: usize = 16;

/// The node of the pod in whose folder a file lies, below its namespace's.
fn node_of(it: &Attachment, places: &Places) -> Option<String> {
    let parts = it.name.components().rev().take(DEEP);
    let mut parts: Vec<&str> = parts.filter_map(|it| it.as_os_str().to_str()).collect();
    parts.reverse();
    let pairs = parts.iter().enumerate().rev();
    let mut found = pairs.filter_map(|(place, name)| {
        let mut above = parts.iter().take(place).rev();
        above.find_map(|namespace| places.node_of(namespace, name))
    });
    found.next().map(str::to_owned)
}

/// What pods said, by `NAMESPACE/NAME/CONTAINER`, and the rest of a text of `kubectl cluster-info dump`; nothing of another text.
pub(super) fn divide(text: &str) -> Option<(String, BTreeMap<String, String>)> {
    let (mut rest, mut logs) = (String::new(), BTreeMap::<String, String>::new());
    let mut open: Option<String> = None;
    for line in text.lines() {
        if let Some(whose) = line.strip_prefix(START) {
            open = name(whose);
        } else if let Some(whose) = &open {
            // Where the last line has no end, it stands behind it.
            let (said, is_over) = match line.split_once(END) {
                Some((said, of)) if name(of).as_ref() == Some(whose) => (said, true),
                _ => (line, false),
            };
            if !(is_over && said.is_empty()) {
                let log = logs.entry(whose.clone()).or_default();
                log.extend([said, "\n"]);
            }
            open.take_if(|_| is_over);
        } else {
            rest.extend([line, "\n"]);
        }
    }
    (!logs.is_empty()).then_some((rest, logs))
}

/// `kube-proxy of pod kube-system/kube-proxy-f42m5 ====`.
fn name(whose: &str) -> Option<String> {
    let (container, pod) = whose.strip_suffix(" ====")?.split_once(" of pod ")?;
    Some(format!("{pod}/{container}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attached::tests::held;

    const PODS: &str = r#"{ "kind": "PodList", "items": [
        { "kind": "Pod", "metadata": { "namespace": "kube-system", "name": "kube-proxy-a" }, "spec": { "nodeName": "n1" } },
        { "kind": "Pod", "metadata": { "namespace": "kube-system", "name": "kube-proxy-b" }, "spec": { "nodeName": "n2" } }
    ] }"#;

    fn framed(pod: &str, log: &str) -> String {
        let whose = format!("kube-proxy of pod kube-system/{pod} ====");
        format!("{START}{whose}\n{log}{END}{whose}\n")
    }

    fn log(of: &str) -> String {
        format!("E1130 00:00:00.000000       1 proxier.go:1] \"{of}\"\n")
    }

    #[test]
    fn what_pods_of_several_nodes_say_is_of_their_nodes() {
        let [one, other] = ["one", "other"].map(log);
        let of_pods = |a: &str, b: &str| {
            held(&[
                ("dump/kube-system/pods.json", PODS),
                (a, &one),
                (b, &other),
                ("dump/iptables-save", "*nat\nCOMMIT\n"),
            ])
        };
        let at = |pod: &str| format!("dump/kube-system/{pod}/logs.txt");
        let [a, b] = ["kube-proxy-a", "kube-proxy-b"].map(at);
        let attached = of_pods(&a, &b);
        assert_eq!(attached.nodes(), BTreeSet::from(["n1", "n2"]));
        let nodes: Vec<Option<&str>> = attached.texts.iter().map(|it| it.node.as_deref()).collect();
        assert_eq!(nodes, [None, Some("n1"), Some("n2"), None]);
        // Of one node alone they are with whatever else is attached.
        assert!(of_pods(&a, &at("kube-proxy-c")).nodes().is_empty());
        // As `--output-directory` has it.
        let framed =
            [("kube-proxy-a", &one), ("kube-proxy-b", &other)].map(|(pod, log)| framed(pod, log));
        let folder = held(&[
            ("dump/kube-system/pods.json", PODS),
            (&a, &framed[0]),
            (&b, &framed[1]),
        ]);
        let texts: Vec<_> = folder
            .texts
            .iter()
            .map(|it| (it.node.as_deref(), it.text.as_str()))
            .collect();
        assert_eq!(
            texts,
            [(None, PODS), (Some("n1"), &one), (Some("n2"), &other)]
        );
        // Another namespace's pod of that name.
        assert!(
            of_pods(&a, "dump/test/kube-proxy-b/logs.txt")
                .nodes()
                .is_empty()
        );
        let must_gather = |pod: &str| {
            format!(
                "must-gather/namespaces/kube-system/pods/{pod}/kube-proxy/kube-proxy/logs/current.log"
            )
        };
        let [a, b] = ["kube-proxy-a", "kube-proxy-b"].map(must_gather);
        assert_eq!(of_pods(&a, &b).nodes().len(), 2);
    }

    /// Rules beside it are of the node that somebody names.
    #[test]
    fn what_lies_beside_what_pods_say_is_of_the_node_that_is_asked_for_and_else_of_none() {
        let [one, other] = ["one", "other"].map(log);
        let files = [
            ("kube-system/pods.json", PODS),
            ("kube-system/kube-proxy-a/logs.txt", &one),
            ("kube-system/kube-proxy-b/logs.txt", &other),
            ("iptables-save", "*nat\nCOMMIT\n"),
        ];
        let mut attached = held(&files);
        let taken = |attached: &Attached, node| {
            let mut taken = Vec::new();
            let known = attached.take(node, &mut |name, _| {
                taken.push(name.display().to_string());
                Ok(true)
            });
            assert_eq!(known.unwrap(), taken.len());
            taken
        };
        assert_eq!(taken(&attached, Some("n1")), [files[1].0]);
        // Whoever explains a packet asks for rules.
        assert_eq!(attached.only().unwrap(), None);
        assert_eq!(taken(&attached, None).len(), files.len());
        attached.asked = Some("n1".to_owned());
        assert_eq!(attached.only().unwrap(), Some("n1"));
        assert_eq!(
            taken(&attached, Some("n1")),
            [files[0].0, files[1].0, files[3].0]
        );
    }

    /// As kubectl 1.34 prints it.
    #[test]
    fn what_a_dump_has_of_each_pod_in_one_text_is_told_apart() {
        let [one, other] = ["one", "other"].map(log);
        let text = [
            "{\"kind\": \"NodeList\", \"items\": []}\n".to_owned(),
            framed("kube-proxy-a", &one),
            // A program was ended in the middle of a line.
            framed("kube-proxy-b", other.trim_end()),
            PODS.to_owned(),
        ];
        let attached = held(&[("dump.txt", &text.concat())]);
        let texts: Vec<_> = attached
            .texts
            .iter()
            .map(|it| (it.node.as_deref(), it.text.as_str()))
            .collect();
        let rest = format!("{}{PODS}\n", text[0]);
        assert_eq!(
            texts,
            [
                (None, rest.as_str()),
                (Some("n1"), &one),
                (Some("n2"), &other)
            ]
        );
        assert_eq!(divide(PODS), None);
    }
}
