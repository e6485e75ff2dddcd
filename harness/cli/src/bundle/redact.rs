//! What is nobody else's business leaves a bundle. Whoever sends one looks into it all the same: no program knows every secret.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

/// In place of a secret.
const GONE: &str = "REDACTED";
/// The same where base64 is read.
const GONE_BASE64: &str = "UkVEQUNURUQ=";
/// Holds all of an object in one text.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A name whose value is a secret.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)^ (.*[-_.])? (?i: token|password|passwd|secret|api[-_]?key|private[-_]?key|credentials?|authorization) $
        | .* (Token|Password|Secret|ApiKey|PrivateKey) $",
    )
});
/// A secret in the midst of a text: behind a name, in a header, or a key.
static TEXT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?xis) (?<before> \b(?:bearer|basic)\s+ | (?:token|password|passwd|secret|api[-_]?key)["']?\s*[=:]\s*["']? )
        (?<secret> [^\s"',;]{6,})
        | (?<begin> -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY----- ) .*? (?<end> -----END | $ )"#,
    )
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("it is valid")
}

/// Takes the secrets out, and counts them.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    pub(super) secrets: usize,
}

impl Redactor {
    /// Out of a text.
    pub(super) fn text(&mut self, text: &str) -> String {
        let replaced = TEXT.replace_all(text, |found: &Captures<'_>| {
            let [before, secret, begin, end] = ["before", "secret", "begin", "end"]
                .map(|name| found.name(name).map_or("", |it| it.as_str()));
            if secret != GONE {
                self.secrets += 1;
            }
            format!("{before}{begin}{GONE}{end}")
        });
        replaced.into_owned()
    }

    /// Out of all texts of a value: of an object those of a Secret, and what is named for a secret.
    pub(super) fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) if TEXT.is_match(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|it| self.value(it)),
            Value::Object(fields) => self.fields(fields),
            _ => {}
        }
    }

    fn fields(&mut self, fields: &mut Map<String, Value>) {
        if fields.get("kind").is_some_and(|kind| kind == "Secret") {
            self.secret(fields);
        }
        // An environment variable has its name in a field.
        let named = fields.get("name").and_then(Value::as_str);
        let is_secret = named.is_some_and(|name| NAME.is_match(name));
        for (name, value) in fields {
            match value {
                Value::String(text) if NAME.is_match(name) || (is_secret && name == "value") => {
                    self.gone(text, GONE);
                }
                _ => self.value(value),
            }
        }
    }

    fn secret(&mut self, fields: &mut Map<String, Value>) {
        for (field, gone) in [("data", GONE_BASE64), ("stringData", GONE)] {
            let values = fields.get_mut(field).and_then(Value::as_object_mut);
            for value in values.into_iter().flat_map(Map::values_mut) {
                if let Value::String(text) = value {
                    self.gone(text, gone);
                }
            }
        }
        let annotations = fields
            .get_mut("metadata")
            .and_then(|it| it.get_mut("annotations"));
        if let Some(Value::Object(annotations)) = annotations {
            annotations.remove(LAST_APPLIED);
        }
    }

    fn gone(&mut self, text: &mut String, gone: &str) {
        if text != gone && !text.is_empty() {
            gone.clone_into(text);
            self.secrets += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_secret_holds_is_gone_and_its_names_stay() {
        let mut redactor = Redactor::default();
        let mut value = json!([{
            "kind": "Secret",
            "metadata": { "name": "s", "annotations": { LAST_APPLIED: "{\"data\":{\"a\":\"aHVudGVyMg==\"}}" } },
            "data": { "a": "aHVudGVyMg==" },
            "stringData": { "b": "hunter2" },
        }, {
            "kind": "Deployment",
            "spec": {
                "env": [{ "name": "DB_PASSWORD", "value": "hunter2" }, { "name": "MODE", "value": "fast" }],
                "secretName": "s",
                "automountServiceAccountToken": false,
                "bearerToken": "hunter2",
            },
        }]);
        redactor.value(&mut value);
        assert_eq!(redactor.secrets, 4);
        assert_eq!(
            value,
            json!([{
                "kind": "Secret",
                "metadata": { "name": "s", "annotations": {} },
                "data": { "a": GONE_BASE64 },
                "stringData": { "b": GONE },
            }, {
                "kind": "Deployment",
                "spec": {
                    "env": [{ "name": "DB_PASSWORD", "value": GONE }, { "name": "MODE", "value": "fast" }],
                    "secretName": "s",
                    "automountServiceAccountToken": false,
                    "bearerToken": GONE,
                },
            }])
        );
        redactor.value(&mut value);
        assert_eq!(redactor.secrets, 4, "a second time finds nothing");
    }

    #[test]
    fn secrets_in_the_midst_of_a_text_are_gone_and_the_rest_stays() {
        let mut redactor = Redactor::default();
        for (text, redacted) in [
            (
                "GET /x Authorization: Bearer abc.def-ghi, 200",
                "GET /x Authorization: Bearer REDACTED, 200",
            ),
            (
                "mysql --password=hunter2222 -h db",
                "mysql --password=REDACTED -h db",
            ),
            (
                r#"{"token": "abcdefgh"} and more"#,
                r#"{"token": "REDACTED"} and more"#,
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n",
                "-----BEGIN RSA PRIVATE KEY-----REDACTED-----END RSA PRIVATE KEY-----\n",
            ),
        ] {
            assert_eq!(redactor.text(text), redacted);
            assert_eq!(redactor.text(redacted), redacted);
        }
        assert_eq!(
            redactor.secrets,
            4 + 1,
            "a key is told no second time apart"
        );
        let rule = "-A KUBE-SVC-X -m comment --comment \"test/web:http\" -j MARK --set-xmark 0x4000/0x4000";
        assert_eq!(redactor.text(rule), rule);
    }
}
