//! FelixConfiguration and `FELIX_…` variables, read as Felix reads them (`config_params.go` and
//! `param_types.go`): a variable wins over the API, an invalid value falls back to the default, and an
//! invalid value of a parameter that Felix needs keeps it from starting.
//!
//! A field that the model does not act on is kept as text: a change of it restarts Felix all the same.

use std::{collections::BTreeMap, time::Duration};

use chainbreak_netfilter::felix_programs::DATA_INTERFACES;
use regex::Regex;
use serde_json::{Map, Value as Json};

use super::{
    Config,
    log::{Line, go_duration},
    value::{Kind, Value, from_api},
};

/// Parameters whose change Felix takes without a restart (daemon.go, `handledConfigChanges`).
const TAKEN_LIVE: [&str; 4] = [
    "CalicoVersion",
    "ClusterGUID",
    "ClusterType",
    "HealthTimeoutOverrides",
];

/// A parameter that the model acts on.
#[derive(Clone, Copy)]
struct Param {
    name: &'static str,
    /// The field of FelixConfiguration, where it is not the name in camel case.
    field: Option<&'static str>,
    kind: Kind,
    /// Felix does not start with an invalid value.
    required: bool,
}

const fn param(name: &'static str, kind: Kind) -> Param {
    Param {
        name,
        field: None,
        kind,
        required: false,
    }
}

const fn required(name: &'static str, kind: Kind) -> Param {
    Param {
        required: true,
        ..param(name, kind)
    }
}

const fn field(field: &'static str, param: Param) -> Param {
    Param {
        field: Some(field),
        ..param
    }
}

const PARAMS: &[Param] = &[
    param("BPFEnabled", Kind::Bool),
    param("BPFKubeProxyIptablesCleanupEnabled", Kind::Bool),
    param("BPFHostConntrackBypass", Kind::Bool),
    param("BPFConnectTimeLoadBalancingEnabled", Kind::Bool),
    required(
        "BPFConnectTimeLoadBalancing",
        Kind::OneOf(&["TCP", "Enabled", "Disabled"]),
    ),
    required(
        "BPFHostNetworkedNATWithoutCTLB",
        Kind::OneOf(&["Enabled", "Disabled"]),
    ),
    param("BPFKubeProxyMinSyncPeriod", Kind::Seconds),
    param("BPFForceTrackPacketsFromIfaces", Kind::List),
    param("BPFDataIfacePattern", Kind::Pattern),
    required("ChainInsertMode", Kind::OneOf(&["insert", "append"])),
    required(
        "DefaultEndpointToHostAction",
        Kind::OneOf(&["DROP", "RETURN", "ACCEPT"]),
    ),
    param("DisableConntrackInvalidCheck", Kind::Bool),
    required("InterfacePrefix", Kind::List),
    param("IptablesBackend", Kind::OneOf(&["legacy", "nft", "auto"])),
    required(
        "IptablesFilterAllowAction",
        Kind::OneOf(&["ACCEPT", "RETURN"]),
    ),
    required("IptablesFilterDenyAction", Kind::OneOf(&["DROP", "REJECT"])),
    required(
        "IptablesMangleAllowAction",
        Kind::OneOf(&["ACCEPT", "RETURN"]),
    ),
    param("IptablesRefreshInterval", Kind::Seconds),
    field(
        "iptablesPostWriteCheckInterval",
        param("IptablesPostWriteCheckIntervalSecs", Kind::Seconds),
    ),
    field(
        "iptablesLockTimeout",
        param("IptablesLockTimeoutSecs", Kind::Seconds),
    ),
    field(
        "iptablesLockProbeInterval",
        param("IptablesLockProbeIntervalMillis", Kind::Millis),
    ),
    required("IptablesMarkMask", Kind::Mask),
    param(
        "LogSeverityScreen",
        Kind::OneOf(&["DEBUG", "INFO", "WARNING", "ERROR", "FATAL", "TRACE"]),
    ),
    param("Ipv6Support", Kind::Bool),
    param("AllowVXLANPacketsFromWorkloads", Kind::Bool),
    param("AllowIPIPPacketsFromWorkloads", Kind::Bool),
    param("VXLANPort", Kind::Number),
    param(
        "NFTablesMode",
        Kind::OneOf(&["Enabled", "Disabled", "Auto"]),
    ),
    param("NftablesRefreshInterval", Kind::Seconds),
];

/// The value Felix takes when nobody sets one.
fn default_of(name: &str, config: &Config) -> Value {
    let version = config.version;
    let word = |word: &str| Value::Word(word.to_owned());
    match name {
        "LogSeverityScreen" => word("INFO"),
        "BPFKubeProxyIptablesCleanupEnabled" => Value::Bool(true),
        "BPFConnectTimeLoadBalancing" => word("TCP"),
        "BPFHostNetworkedNATWithoutCTLB" if version.balances_tcp_alone() => word("Enabled"),
        "BPFKubeProxyMinSyncPeriod" => Value::Time(Duration::from_secs(1)),
        "BPFHostConntrackBypass" => Value::Bool(version.bypasses_conntrack()),
        "BPFDataIfacePattern" => word(DATA_INTERFACES),
        "BPFForceTrackPacketsFromIfaces" => Value::List(vec!["docker+".to_owned()]),
        "ChainInsertMode" => word("insert"),
        "InterfacePrefix" => Value::List(vec!["cali".to_owned()]),
        "IptablesBackend" => word("auto"),
        "IptablesFilterAllowAction" | "IptablesMangleAllowAction" => word("ACCEPT"),
        "DefaultEndpointToHostAction" | "IptablesFilterDenyAction" => word("DROP"),
        "IptablesRefreshInterval" => Value::Time(version.refresh_interval()),
        "IptablesPostWriteCheckIntervalSecs" => Value::Time(version.post_write_interval()),
        "IptablesLockTimeoutSecs" => Value::Time(Duration::ZERO),
        "IptablesLockProbeIntervalMillis" => Value::Time(Duration::from_millis(50)),
        "IptablesMarkMask" => Value::Number(0xffff_0000),
        "Ipv6Support" => Value::Bool(config.ipv6),
        "VXLANPort" => Value::Number(4789),
        "NFTablesMode" if version.follows_kube_proxys_mode() => word("Auto"),
        "BPFHostNetworkedNATWithoutCTLB" | "NFTablesMode" => word("Disabled"),
        "NftablesRefreshInterval" => Value::Time(Duration::from_secs(180)),
        _ => Value::Bool(false),
    }
}

/// The parameters in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Params {
    values: BTreeMap<&'static str, Value>,
    /// What the model does not act on, as text, by lower-case name.
    others: BTreeMap<String, String>,
    /// How each parameter was written, for the log.
    raw: BTreeMap<&'static str, String>,
}

/// A parameter without which Felix does not start has an invalid value; said in the log already.
#[derive(Debug)]
pub(super) struct Unusable;

impl Params {
    /// Reads the `spec` of FelixConfiguration and the environment.
    pub(super) fn resolve(
        spec: &Map<String, Json>,
        config: &Config,
        log: &mut Vec<Line>,
    ) -> Result<Self, Unusable> {
        let mut params = Self {
            values: BTreeMap::new(),
            others: BTreeMap::new(),
            raw: BTreeMap::new(),
        };
        let mut sources = Sources::new(spec, config);
        for param in PARAMS {
            let default = default_of(param.name, config);
            let value = match sources.take(param) {
                Some((raw, source)) => {
                    let value = parse(param, &raw, source, &default, log)?;
                    params.raw.insert(param.name, raw);
                    value
                }
                None => default,
            };
            params.values.insert(param.name, value);
        }
        params.others = sources.rest();
        Ok(params)
    }

    /// The lines that say what changed, and whether a restart is needed.
    pub(super) fn changes(&self, new: &Self) -> (Vec<Line>, bool) {
        let mut lines = Vec::new();
        let mut restart = false;
        let mut changed = |key: &str, old: Option<&String>, new: Option<&String>| {
            let live = TAKEN_LIVE.iter().any(|name| name.eq_ignore_ascii_case(key));
            restart |= !live;
            let verdict = if live { "DOES NOT" } else { "DOES" };
            let message =
                format!("Configuration value changed; change {verdict} require Felix to restart.");
            let text = |value: Option<&String>| value.map_or("", String::as_str).to_owned();
            let line = Line::info("felix/daemon.go 1345", message)
                .text("key", key)
                .text("newValue", &text(new))
                .text("oldValue", &text(old));
            lines.push(line);
        };
        for (&key, value) in &self.values {
            if new.values.get(key) != Some(value) {
                changed(key, self.raw.get(key), new.raw.get(key));
            }
        }
        let keys = self.others.keys().chain(
            new.others
                .keys()
                .filter(|key| !self.others.contains_key(*key)),
        );
        for key in keys {
            let (old, new) = (self.others.get(key), new.others.get(key));
            if old != new {
                changed(key, old, new);
            }
        }
        (lines, restart)
    }

    fn value(&self, name: &str) -> &Value {
        self.values
            .get(name)
            .expect("every parameter of the list has a value")
    }

    /// A parameter of kind [`Kind::Bool`].
    pub(super) fn is(&self, name: &str) -> bool {
        matches!(self.value(name), Value::Bool(true))
    }

    /// A parameter that is true or false, where somebody sets it.
    pub(super) fn given(&self, name: &str) -> Option<bool> {
        self.raw.contains_key(name).then(|| self.is(name))
    }

    /// Whether a parameter of kind [`Kind::Pattern`] matches a text.
    pub(super) fn matches(&self, name: &str, text: &str) -> bool {
        Regex::new(self.word(name)).is_ok_and(|pattern| pattern.is_match(text))
    }

    /// A parameter that is one of several words, or a pattern.
    pub(super) fn word(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Word(word) => word,
            other => panic!("{name} is not a word: {other:?}"),
        }
    }

    /// A parameter that is a time.
    pub(super) fn time(&self, name: &str) -> Duration {
        match self.value(name) {
            Value::Time(time) => *time,
            other => panic!("{name} is not a time: {other:?}"),
        }
    }

    /// A parameter that is a number or a mask.
    pub(super) fn number(&self, name: &str) -> u32 {
        match self.value(name) {
            Value::Number(number) => *number,
            other => panic!("{name} is not a number: {other:?}"),
        }
    }

    /// A parameter that is a list.
    pub(super) fn list(&self, name: &str) -> &[String] {
        match self.value(name) {
            Value::List(list) => list,
            other => panic!("{name} is not a list: {other:?}"),
        }
    }
}

fn parse(
    param: &Param,
    raw: &str,
    source: &str,
    default: &Value,
    log: &mut Vec<Line>,
) -> Result<Value, Unusable> {
    let site = "felix/config_params.go 671";
    let name = param.name;
    let Some(value) = param.kind.parse(raw) else {
        let error = format!(
            "Failed to parse config parameter {name}; value {raw:?}: {}",
            param.kind.complaint()
        );
        if param.required {
            let line = Line::new(
                crate::step::Severity::Error,
                "felix/config_params.go 659",
                "Invalid (required) config value.",
            );
            log.push(line.with("error", error).with("source", source));
            return Err(Unusable);
        }
        let line = Line::warning(
            "felix/config_params.go 664",
            "Replacing invalid value with default",
        );
        let line = line.with("default", show(default)).with("error", error);
        log.push(line.with("source", source));
        return Ok(default.clone());
    };
    log.push(Line::info(
        site,
        format!("Parsed value for {name}: {} (from {source})", show(&value)),
    ));
    Ok(value)
}

fn show(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Word(word) => word.clone(),
        Value::Time(time) => go_duration(*time),
        Value::Number(number) => number.to_string(),
        Value::List(list) => format!("[{}]", list.join(" ")),
    }
}

/// What the environment and the API say, by lower-case name.
struct Sources {
    env: BTreeMap<String, String>,
    api: BTreeMap<String, String>,
}

impl Sources {
    fn new(spec: &Map<String, Json>, config: &Config) -> Self {
        let variable = |(name, value): (&String, &String)| {
            let name = name.to_ascii_lowercase();
            Some((name.strip_prefix("felix_")?.to_owned(), value.clone()))
        };
        let field = |(name, value): (&String, &Json)| {
            let param = PARAMS.iter().find(|param| param.field == Some(name));
            let name = param.map_or(name.as_str(), |param| param.name);
            let millis = param.is_some_and(|param| param.kind == Kind::Millis);
            Some((name.to_ascii_lowercase(), from_api(value, millis)?))
        };
        Self {
            env: config.env.iter().filter_map(variable).collect(),
            api: spec.iter().filter_map(field).collect(),
        }
    }

    fn take(&mut self, param: &Param) -> Option<(String, &'static str)> {
        let key = param.name.to_ascii_lowercase();
        let api = self.api.remove(&key);
        if let Some(raw) = self.env.remove(&key) {
            return Some((raw, "environment variable"));
        }
        Some((api?, "datastore (global)"))
    }

    fn rest(mut self) -> BTreeMap<String, String> {
        self.api.append(&mut self.env);
        self.api
    }
}

#[cfg(test)]
#[path = "params_tests.rs"]
mod tests;
