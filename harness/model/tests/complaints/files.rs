//! Whole files: what is no scenario, what is wrong throughout, and what is made to do harm.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::good::{GOOD, OBJECTS, reads, said, said_of};

#[test]
fn files_that_are_no_scenario() {
    let mut invalid = GOOD.as_bytes().to_vec();
    invalid[20] = 0xff;
    insta::assert_snapshot!("empty", said(""));
    insta::assert_snapshot!("only_a_comment", said("# nothing\n---\n"));
    insta::assert_snapshot!("a_list", said("- a\n- b\n"));
    insta::assert_snapshot!("prose", said("Dear reader: this is: not YAML\n"));
    insta::assert_snapshot!("binary", said(b"\x7fELF\x01\x00\x00\x02"));
    insta::assert_snapshot!("tab", said_of("  nodes: 2", "\tnodes: 2"));
    insta::assert_snapshot!("unclosed", said_of("[objects.yaml]", "[objects.yaml"));
    insta::assert_snapshot!("invalid_utf8", said(invalid));
    insta::assert_snapshot!("two_documents", said(format!("{GOOD}---\nname: second\n")));
    insta::assert_snapshot!("tag", said_of("name: good", "name: !!binary good"));
    insta::assert_snapshot!(
        "duplicate_key",
        said_of("about: nothing", "name: again\nabout: nothing")
    );
}

#[test]
fn every_mistake_of_a_file_is_said_at_once() {
    let bad = GOOD
        .replace("about:", "abuot:")
        .replace("pod/client", "pod/clinet")
        .replace("99.9%", "999%")
        .replace("settle: 1s", "settle: never")
        .replace("[answers]", "[answer]")
        .replace("version: '1.32'", "version: latest");
    let objects = OBJECTS
        .replace("ports:", "port:")
        .replace("image: busybox", "imag: busybox");
    let diagnostics = reads(bad.as_bytes(), &objects).expect_err("it is bad");
    insta::assert_snapshot!(diagnostics.plain());
    let mut fancy = String::new();
    miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor())
        .with_width(100)
        .render_report(&mut fancy, &diagnostics)
        .unwrap();
    insta::assert_snapshot!("for_terminals", fancy);
}

/// No file takes longer than this to refuse, on any machine we test on: each is read in time linear
/// in its bounded size.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn huge_deep_and_exploding_files_are_refused_in_bounded_time() {
    let bomb: String = (0..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, i| {
        let next = i + 1;
        text + &format!("a{next}: &a{next} [*a{i}, *a{i}, *a{i}]\n")
    });
    let keys = |count: usize| {
        (0..count).fold(String::new(), |text, i| {
            text + &format!(
                "k{i}: 1
"
            )
        })
    };
    let garbage: Vec<u8> = (0..10_000_000_u64)
        .map(|i| i.wrapping_mul(0x9e37_79b9).to_be_bytes()[5])
        .collect();
    let files: Vec<Vec<u8>> = vec![
        garbage.clone(),
        garbage
            .iter()
            .take(2_000_000)
            .map(|byte| byte % 94 + 32)
            .collect(),
        vec![b'a'; 10_000_000],
        vec![b'a'; 2_000_000],
        vec![b'['; 2_000_000],
        b"- ".repeat(1_000_000),
        b"a: {".repeat(500_000),
        b"a:\n".repeat(600_000),
        b"? ".repeat(1_000_000),
        b"'".repeat(2_000_000),
        b"\n".repeat(2_000_000),
        b"# \n".repeat(600_000),
        b"--- \n".repeat(400_000),
        keys(150_000).into_bytes(),
        format!("{GOOD}{}", keys(150_000)).into_bytes(),
        format!(
            "{GOOD}{}",
            (0..60_000).fold(String::new(), |text, i| text
                + &format!("  v{i}: {{ expect: healthy }}\n"))
        )
        .into_bytes(),
        bomb.into_bytes(),
        b"a: &a [*a]\n".to_vec(),
        b"*a\n".to_vec(),
    ];
    for file in files {
        let start = Instant::now();
        let said = said(&file);
        let head = String::from_utf8_lossy(&file[..file.len().min(12)]).into_owned();
        assert!(
            start.elapsed() < PATIENCE,
            "{head:?} took {:?}",
            start.elapsed()
        );
        assert!(said.len() < 50_000, "{head:?} says {} bytes", said.len());
    }
}

/// A scenario with some of its bytes, lines or words changed.
fn mutated() -> impl Strategy<Value = String> {
    let words = prop_oneof![
        Just(String::new()),
        Just("&a *a".to_owned()),
        Just("none".to_owned()),
        Just("null".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
        Just("{ broken: [x] }".to_owned()),
        Just("<<: *a".to_owned()),
        Just("é\u{feff}🦀\u{85}".to_owned()),
        "[ -~\t\n]{0,8}",
    ];
    proptest::collection::vec((any::<prop::sample::Index>(), 0..24_usize, words), 1..4).prop_map(
        |edits| {
            let mut text: Vec<char> = GOOD.chars().collect();
            for (at, length, word) in edits {
                let at = at.index(text.len());
                let end = (at + length).min(text.len());
                text.splice(at..end, word.chars());
            }
            text.into_iter().collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Rendering is exercised as well: spans must lie within their files.
    #[test]
    fn mutated_scenarios_never_panic(scenario in mutated(), objects in mutated()) {
        for (scenario, objects) in [(scenario.as_str(), OBJECTS), (GOOD, objects.as_str())] {
            if let Err(diagnostics) = reads(scenario.as_bytes(), objects) {
                let fancy = format!("{:?}", miette::Report::new(diagnostics.clone()));
                prop_assert!(diagnostics.iter().count() > 0);
                prop_assert!(!diagnostics.plain().is_empty() && !fancy.is_empty());
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Err(diagnostics) = reads(&bytes, OBJECTS) {
            prop_assert!(!diagnostics.plain().is_empty());
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Err(diagnostics) = reads(GOOD.as_bytes(), &text) {
            prop_assert!(!diagnostics.plain().is_empty());
        }
    }
}
