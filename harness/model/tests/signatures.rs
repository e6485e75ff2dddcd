//! The signs by which shipped scenarios know their incident, held to what real agents say.

mod shipped;

use chainbreak_model::{
    case::Sign,
    load,
    names::AgentName::{self, Felix, KubeProxy},
};
use regex::Regex;
use shipped::shipped;

/// Entries of logs, as they stood in runs of the lab.
const SAID: [(AgentName, &str); 3] = [
    (Felix, TURNED),
    // 1.36.4.
    (
        KubeProxy,
        r#"I1129 21:44:38.531884      27 server_linux.go:254] "Using nftables Proxier""#,
    ),
    (
        KubeProxy,
        r#"E1129 21:47:46.588531      30 proxier.go:1723] "nftables sync failed" err=<"#,
    ),
];

/// v3.32.1, when it is told to be in eBPF mode. No real one was seen on its way back: in a world it may not list its programs.
const TURNED: &str = r#"2026-11-29 22:24:56.547 [INFO][39] felix/daemon.go 1550: Configuration value changed; change DOES require Felix to restart. key="BPFEnabled" newValue="true" oldValue="false""#;
/// What changes in that line on the way back.
const BACK: [&str; 2] = [
    r#"newValue="true" oldValue="false""#,
    r#"newValue="false" oldValue="true""#,
];

/// What each Felix says when it begins, whatever it is told: no sign of anything (v3.32.1).
const ALWAYS: &str = "2026-11-29 22:22:40.513 [INFO][39] felix/config_params.go 797: Parsing value for BPFEnabled: false (from datastore (global))";

/// The expressions of a sign for entries of logs.
fn expressions(sign: &Sign) -> Vec<(AgentName, &str)> {
    match sign {
        Sign::Logged { agent, matches } => vec![(*agent, matches)],
        Sign::Any(signs) => signs.iter().flat_map(expressions).collect(),
        Sign::Not(sign) => expressions(sign),
        Sign::Found(_) | Sign::Rule { .. } | Sign::Object(_) | Sign::Felix(_) => Vec::new(),
    }
}

#[test]
fn each_expression_for_an_agents_log_matches_what_a_real_one_has_said_and_not_what_each_says() {
    let back = TURNED.replace(BACK[0], BACK[1]);
    let mut held = 0;
    for (file, _) in shipped() {
        let scenario = load(&file).unwrap_or_else(|error| panic!("{}", error.plain()));
        for (agent, matches) in scenario.signature.iter().flat_map(expressions) {
            let sought = Regex::new(matches).expect("it was read");
            let is_said =
                |(who, entry): &(AgentName, &str)| *who == agent && sought.is_match(entry);
            let is_held = SAID.iter().chain([&(Felix, back.as_str())]).any(is_said);
            assert!(is_held, "{}: {matches}", file.display());
            assert!(!sought.is_match(ALWAYS), "{}: {matches}", file.display());
            held += 1;
        }
    }
    assert!(held >= 8, "{held}");
}
