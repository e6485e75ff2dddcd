//! A node with pods, and what happens to it, by seed: as a scenario, which somebody can run.

use std::{collections::BTreeSet, fmt};

use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How often something happens.
const ROUNDS: usize = 3;
/// Longer than two refreshes of Felix's, which are 1 s apart here.
const SETTLED: &str = "2500ms";
/// A Felix that begins loads its programs before it looks at rules: v3.32.1 took 7 s of a core for that.
const SETTLED_WITH_PROGRAMS: &str = "20s";
/// What others do to Felix's rules, and beside them. `$f` is each family's iptables.
const HARMS: [&str; 9] = [
    "$f -t filter -F FORWARD",
    "$f -t filter -F INPUT",
    "$f -t nat -F POSTROUTING",
    "$f -t raw -F",
    "$f -t mangle -F",
    "$f -I INPUT -m mark --mark 0x7 -j ACCEPT",
    "$f -A FORWARD -m mark --mark 0x7 -j RETURN",
    // At once: Felix deletes the chain as soon as it sees it.
    r"printf '%s\n' '*filter' ':cali-stray - [0:0]' '-A cali-stray -j RETURN' '-A OUTPUT -m mark --mark 0x7 -j cali-stray' COMMIT | $f-restore --noflush",
    "$f -t nat -I PREROUTING -m mark --mark 0x7 -j RETURN",
];

/// What Felix's rules are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All of Felix's work.
    Iptables,
    /// What is around its eBPF programs.
    Bpf,
}

/// The same in chains that it has in iptables mode alone.
const HARMS_OF_IPTABLES_MODE: [&str; 3] = [
    "$f -F cali-FORWARD",
    "$f -F cali-from-wl-dispatch",
    "$f -A cali-INPUT -m mark --mark 0x7 -j RETURN",
];

/// See the module.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct World(Value);

impl World {
    /// The world of a seed, with a Felix of that release in that mode.
    pub(crate) fn of(seed: u64, version: &str, mode: Mode) -> Self {
        let mut author = Author(ChaCha8Rng::seed_from_u64(seed));
        let is_dual = author.chance(4);
        let iptables = if author.chance(3) { "nft" } else { "legacy" };
        let families = if is_dual {
            json!(["IPv4", "IPv6"])
        } else {
            json!(["IPv4"])
        };
        let mut felix = json!({ "iptablesRefreshInterval": "1s", "bpfEnabled": mode == Mode::Bpf });
        author.configure(&mut felix, 6, mode);
        let mut objects = vec![
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "test" } }),
            pod("test", "client"),
        ];
        objects.extend(author.pool());
        objects.extend(
            (1..=author.0.random_range(1..=3))
                .map(|number| pod("default", &format!("web-{number}"))),
        );
        Self(json!({
            "name": format!("felix-{seed}"),
            "about": "What happens to a node by chance.",
            "cluster": {
                "nodes": 1,
                "ip-families": families,
                "kube-proxy": { "mode": "iptables", "iptables": iptables, "version": "1.32" },
                "calico": { "version": version },
                "felix": felix,
            },
            "manifests": objects,
            "timeline": author.timeline(is_dual, mode),
            "promises": {
                // It is not: of a case that is not as expected dumps are kept.
                "nobody-is-there": { "has-rule": { "table": "filter", "chain": "INPUT", "jump": "nobody" } },
            },
            "variants": { "it": { "expect": "healthy" } },
        }))
    }

    /// The same with a Felix of another release.
    pub(crate) fn with_version(mut self, version: &str) -> Self {
        self.0["cluster"]["calico"]["version"] = version.into();
        self
    }

    /// Whether a real Felix loads eBPF programs in it.
    pub(crate) fn takes_programs(&self) -> bool {
        self.0["cluster"]["felix"]["bpfEnabled"] == true
    }

    /// The programs of its families.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &'static str> {
        let families = self.0["cluster"]["ip-families"].as_array();
        let count = families.map_or(0, Vec::len);
        ["iptables", "ip6tables"].into_iter().take(count)
    }

    pub(crate) fn name(&self) -> String {
        self.0["name"].as_str().unwrap().to_owned()
    }

    /// What is in it, whatever its names and numbers are.
    pub(crate) fn shows(&self) -> BTreeSet<String> {
        let settings = self.0["cluster"]["felix"].as_object().into_iter().flatten();
        let settings = settings.map(|(name, value)| format!("{name}: {value}"));
        let pools = self.0["manifests"].as_array().into_iter().flatten();
        let pools = pools.filter(|it| it["kind"] == "IPPool");
        let pools = pools.map(|it| it["spec"].to_string());
        let stage = ["/cluster/ip-families", "/cluster/kube-proxy/iptables"];
        let stage = stage.map(|place| self.0.pointer(place).map(Value::to_string));
        let steps = self.0["timeline"].as_array().into_iter().flatten();
        let steps = steps.map(|step| match step.get("apply") {
            Some(_) => "apply".to_owned(),
            None => step.to_string(),
        });
        let all = settings.chain(pools).chain(steps);
        all.chain(stage.into_iter().flatten()).collect()
    }

    /// As a scenario file.
    pub(crate) fn text(&self) -> String {
        // YAML is a superset of it.
        serde_json::to_string_pretty(&self.0).unwrap()
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = ["name", "cluster", "timeline"].map(|it| format!("{it}: {}", self.0[it]));
        f.write_str(&shown.join("\n"))
    }
}

struct Author(ChaCha8Rng);

impl Author {
    /// Once in so many times.
    fn chance(&mut self, of: u32) -> bool {
        self.0.random_range(0..of) == 0
    }

    /// Sets each of what Felix's rules go by, once in so many times. Not `iptablesFilterDenyAction: Reject`: the kernel refuses that in the raw
    /// table, and both end again and again, v3.32.1 and its model.
    fn configure(&mut self, felix: &mut Value, of: u32, mode: Mode) {
        let masks = match mode {
            Mode::Iptables => vec![json!(0xff00), json!(0xff_0000)],
            // Programs have bits of their own.
            Mode::Bpf => vec![json!(0x3fff_f000)],
        };
        for (name, values) in [
            ("chainInsertMode", vec![json!("Append")]),
            ("iptablesMarkMask", masks),
            (
                "defaultEndpointToHostAction",
                vec![json!("Accept"), json!("Return"), json!("Drop")],
            ),
            ("iptablesFilterAllowAction", vec![json!("Return")]),
            ("iptablesMangleAllowAction", vec![json!("Return")]),
            ("disableConntrackInvalidCheck", vec![json!(true)]),
            ("allowVXLANPacketsFromWorkloads", vec![json!(true)]),
            ("allowIPIPPacketsFromWorkloads", vec![json!(true)]),
            ("vxlanPort", vec![json!(4790)]),
        ] {
            if self.chance(of) {
                felix[name] = values.choose(&mut self.0).cloned().unwrap();
            }
        }
    }

    /// The pool of pods' addresses, in half of the worlds: the lab has none of IPv6.
    fn pool(&mut self) -> Option<Value> {
        if self.chance(2) {
            return None;
        }
        let mode = if self.chance(2) { "Always" } else { "Never" };
        let spec = json!({
            "cidr": "10.20.0.0/16", "vxlanMode": mode, "ipipMode": "Never", "natOutgoing": self.chance(2), "nodeSelector": "all()",
        });
        Some(json!({
            "apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": { "name": "pods" }, "spec": spec,
        }))
    }

    fn timeline(&mut self, is_dual: bool, mode: Mode) -> Vec<Value> {
        let settled = match mode {
            Mode::Iptables => SETTLED,
            Mode::Bpf => SETTLED_WITH_PROGRAMS,
        };
        let mut steps = vec![json!({ "settle": "3s" })];
        for round in 0..ROUNDS {
            steps.push(self.step(round, is_dual, mode));
            steps.push(json!({ "settle": settled }));
        }
        steps
    }

    fn step(&mut self, round: usize, is_dual: bool, mode: Mode) -> Value {
        match self.0.random_range(0..8) {
            0 => json!({ "apply": [pod("test", &format!("late-{round}"))] }),
            1 if round == 0 => {
                json!({ "delete": { "kind": "Pod", "namespace": "default", "name": "web-1" } })
            }
            2 => {
                let mut change = json!({});
                while change == json!({}) {
                    self.configure(&mut change, 6, mode);
                }
                json!({ "felix": change })
            }
            3 => json!({ "restart": { "agent": "felix" } }),
            _ => {
                let mut harms = HARMS.to_vec();
                if mode == Mode::Iptables {
                    harms.extend(HARMS_OF_IPTABLES_MODE);
                }
                let harm = harms.choose(&mut self.0).unwrap();
                let families = if is_dual {
                    "iptables ip6tables"
                } else {
                    "iptables"
                };
                json!({ "run": { "command": format!("for f in {families}; do {harm} || exit; done") } })
            }
        }
    }
}

fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "client", "image": "busybox:1.36", "command": ["sleep", "infinity"] }],
        },
    })
}
