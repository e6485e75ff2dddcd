//! What is nobody else's business leaves a bundle. Whoever sends one looks into it all the same: no program knows every secret.

use std::{collections::BTreeSet, sync::LazyLock};

use indexmap::IndexMap;
use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};

/// In place of a secret.
const GONE: &str = "REDACTED";
/// The same where base64 is read.
const GONE_BASE64: &str = "UkVEQUNURUQ=";
/// Holds all of an object in one text.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Fields whose values choose objects: one that is called a token is none.
const LABELS: [&str; 4] = ["labels", "matchLabels", "selector", "nodeSelector"];
/// A value that was taken out is looked for elsewhere if it is as long; others are words.
const TELLING: usize = 6;

/// A name whose value is a secret.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)^ (.*[-_.])? (?i: token|password|passwd|passphrase|pwd|secret|(api|access|private)[-_]?key|credentials?|authorization
            |client-key-data) $
        | ^ .* (Token|Password|Passphrase|Secret|ApiKey|PrivateKey) $
        | ^ [A-Z0-9_]* (_KEY|PASSWORD|PASS|PWD|TOKEN|SECRET) $",
    )
});
/// An argument after which a secret stands.
static OPTION: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^--?(?i:token|password|passwd|pass|secret|api-key)$"));
/// Secrets in the midst of a text: in a header, behind a name with `=`, with a colon and a blank or a quote, behind an option, in an
/// address, and keys. `ns/my-token:https` is the port of a Service.
static TEXTS: LazyLock<[Regex; 7]> = LazyLock::new(|| {
    [
        r#"(?i)(?<before>authorization\\?["']?\s*[:=]\s*\\?["']?(bearer|basic|token)\s+)(?<secret>[^\s"'\\]+)"#,
        r"(?i)(?<before>\bbearer\s+)(?<secret>[a-z0-9._~+/=-]{16,})",
        r#"(?xi)(?<before>(token|password|passwd|passphrase|pwd|secret|(api|access|private)[-_]?key|client-key-data)
            (=\\?["']?|\s+[:=]\s+|:\s+\\?["']?|\\?["']\s*[:=]\s*\\?["']?))(?<secret>[^\s"'\\]+)"#,
        r#"(?i)(?<before>--?(token|password|passwd|pass|secret|api-key)\s+)(?<secret>[^\s"'\\-][^\s"'\\]*)"#,
        r#"(?<before>://[^/\s:@"']+:)(?<secret>[^@/\s"']+)(?<after>@)"#,
        r#"(?<before>\s-u\s+[^\s:"']+:)(?<secret>[^\s"'\\]+)"#,
        r"(?s)(?<before>-----BEGIN [A-Z ]*PRIVATE KEY-----)(?<secret>.*?)(?<after>-----END|$)",
    ]
    .map(regex)
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("it is valid")
}

/// JSON whose objects keep their order, which is part of what a case is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Json {
    Null(()),
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Json>),
    Fields(IndexMap<String, Json>),
}

impl Json {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn fields_mut(&mut self) -> Option<&mut IndexMap<String, Json>> {
        match self {
            Self::Fields(fields) => Some(fields),
            _ => None,
        }
    }
}

/// Takes the secrets out, and counts them.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    pub(super) secrets: usize,
    /// What was taken out of objects, which texts may have, too.
    known: BTreeSet<String>,
}

impl Redactor {
    /// Out of a text.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for known in &self.known {
            let found = text.matches(known.as_str()).count();
            if found > 0 {
                self.secrets += found;
                text = text.replace(known.as_str(), GONE);
            }
        }
        for regex in TEXTS.iter() {
            let replaced = regex.replace_all(&text, |found: &Captures<'_>| {
                let [before, secret, after] = ["before", "secret", "after"]
                    .map(|name| found.name(name).map_or("", |it| it.as_str()));
                self.secrets += usize::from(secret != GONE);
                format!("{before}{GONE}{after}")
            });
            text = replaced.into_owned();
        }
        text
    }

    /// Out of all texts of a value: of an object those of a Secret, and what is named for a secret.
    pub(super) fn value(&mut self, value: &mut Json) {
        match value {
            Json::Text(text) => *text = self.text(text),
            Json::List(values) => self.list(values),
            Json::Fields(fields) => self.fields(fields),
            Json::Null(()) | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    fn list(&mut self, values: &mut [Json]) {
        let mut is_secret = false;
        for value in values {
            let after = value.text().is_some_and(|text| OPTION.is_match(text));
            match value {
                Json::Text(text) if is_secret => self.gone(text, GONE),
                value => self.value(value),
            }
            is_secret = after;
        }
    }

    fn fields(&mut self, fields: &mut IndexMap<String, Json>) {
        if fields.get("kind").and_then(Json::text) == Some("Secret") {
            self.secret(fields);
        }
        fields.shift_remove(LAST_APPLIED);
        // An environment variable has its name in a field.
        let named = fields.get("name").and_then(Json::text);
        let is_secret = named.is_some_and(|name| NAME.is_match(name));
        for (name, value) in fields {
            match value {
                _ if LABELS.contains(&name.as_str()) => {}
                Json::Text(text) if NAME.is_match(name) || (is_secret && name == "value") => {
                    self.gone(text, GONE);
                }
                _ => self.value(value),
            }
        }
    }

    fn secret(&mut self, fields: &mut IndexMap<String, Json>) {
        for (field, gone) in [("data", GONE_BASE64), ("stringData", GONE)] {
            let values = fields.get_mut(field).and_then(Json::fields_mut);
            for value in values.into_iter().flat_map(IndexMap::values_mut) {
                if let Json::Text(text) = value {
                    self.gone(text, gone);
                }
            }
        }
    }

    fn gone(&mut self, text: &mut String, gone: &str) {
        if text == GONE || text == GONE_BASE64 || text.is_empty() {
            return;
        }
        let secret = std::mem::replace(text, gone.to_owned());
        if secret.len() >= TELLING {
            self.known.insert(secret);
        }
        self.secrets += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_a_secret_holds_is_gone_and_its_names_stay() {
        let mut redactor = Redactor::default();
        let mut value = json(
            r#"[{
                "kind": "Secret",
                "metadata": { "name": "s", "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}" } },
                "data": { "a": "aHVudGVyMg==" },
                "stringData": { "b": "hunter2" }
            }, {
                "kind": "Deployment",
                "spec": {
                    "env": [{ "name": "DB_PASSWORD", "value": "swordfish" }, { "name": "MODE", "value": "fast" }],
                    "secretName": "s",
                    "selector": { "token": "one" },
                    "automountServiceAccountToken": false,
                    "replicas": 2,
                    "none": null,
                    "command": ["login", "--password", "hunter2", "--mode", "open"],
                    "args": ["echo hunter2"]
                }
            }]"#,
        );
        redactor.value(&mut value);
        let gone = json(
            r#"[{
                "kind": "Secret",
                "metadata": { "name": "s", "annotations": {} },
                "data": { "a": "UkVEQUNURUQ=" },
                "stringData": { "b": "REDACTED" }
            }, {
                "kind": "Deployment",
                "spec": {
                    "env": [{ "name": "DB_PASSWORD", "value": "REDACTED" }, { "name": "MODE", "value": "fast" }],
                    "secretName": "s",
                    "selector": { "token": "one" },
                    "automountServiceAccountToken": false,
                    "replicas": 2,
                    "none": null,
                    "command": ["login", "--password", "REDACTED", "--mode", "open"],
                    "args": ["echo REDACTED"]
                }
            }]"#,
        );
        assert_eq!(value, gone);
        let secrets = redactor.secrets;
        redactor.value(&mut value);
        assert_eq!(redactor.secrets, secrets, "a second time finds nothing");
        let elsewhere = redactor.text("it was swordfish, in base64 aHVudGVyMg==");
        assert_eq!(elsewhere, "it was REDACTED, in base64 REDACTED");
    }

    #[test]
    fn the_order_of_fields_stays_and_so_do_numbers() {
        let text = r#"{"b":1,"a":[-2,0.5,18446744073709551615,null],"A":{"z":"x","y":true}}"#;
        let mut value = json(text);
        Redactor::default().value(&mut value);
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
    }

    #[test]
    fn secrets_in_the_midst_of_a_text_are_gone_and_the_rest_stays() {
        for (text, redacted) in [
            (
                "GET /x Authorization: Bearer abc.def-ghi, 200",
                "GET /x Authorization: Bearer REDACTED 200",
            ),
            (
                "mysql --password=ab;cdef -h db",
                "mysql --password=REDACTED -h db",
            ),
            ("login --token abcd -v", "login --token REDACTED -v"),
            (
                r#"{"token": "abcdefgh"} and more"#,
                r#"{"token": "REDACTED"} and more"#,
            ),
            (r#"{\"token\":\"abc\"}"#, r#"{\"token\":\"REDACTED\"}"#),
            ("password: hunter2", "password: REDACTED"),
            ("curl https://u:p@host/x", "curl https://u:REDACTED@host/x"),
            ("curl -u me:pass http://x", "curl -u me:REDACTED http://x"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n",
                "-----BEGIN RSA PRIVATE KEY-----REDACTED-----END RSA PRIVATE KEY-----\n",
            ),
        ] {
            let mut redactor = Redactor::default();
            assert_eq!(redactor.text(text), redacted);
            assert_eq!(redactor.secrets, 1, "{text}");
            assert_eq!(redactor.text(redacted), redacted);
            assert_eq!(redactor.secrets, 1, "{text}: once");
        }
        for harmless in [
            r#"-A KUBE-SVC-X -m comment --comment "test/my-token:https-web" -j MARK --set-xmark 0x4000/0x4000"#,
            "Basic connectivity of pods, and a secret of its own",
            "listen tcp 0.0.0.0:10256: bind: address already in use",
        ] {
            assert_eq!(Redactor::default().text(harmless), harmless);
        }
    }
}
