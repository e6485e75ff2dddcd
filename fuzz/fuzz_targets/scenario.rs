//! A scenario: its mistakes lie inside its file, and each case that it comes to arrives at its worker as it was planned.
#![no_main]

use chainbreak_fuzz::{cases, read_scenario};
use chainbreak_model::{case::Case, judge};
use libfuzzer_sys::fuzz_target;

const MANIFEST: &[u8] = b"
apiVersion: v1
kind: Pod
metadata: { name: client, namespace: test }
spec: { containers: [{ name: c, image: nginx }] }
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: test }
spec: { selector: { app: web }, ports: [{ port: 80 }] }
";

fuzz_target!(|bytes: &[u8]| {
    let Some(scenario) = read_scenario(bytes, MANIFEST) else {
        return;
    };
    for case in cases(&scenario) {
        let told = serde_json::to_string(&case).expect("a case can be told");
        let heard: Case = serde_json::from_str(&told).expect("what was told is understood");
        assert_eq!(heard, case);
        // Nothing was seen of it, so it is nothing that can be judged.
        assert_eq!(judge(&case, []), judge(&heard, []));
    }
});
