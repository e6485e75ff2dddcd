use super::*;

const TEAM: &str = r#"
[profile.default]
jobs = 4
agents = "real"
paths = ["scenarios/kube-proxy"]

[profile.ci]
jobs = 2
matrix = ["kube-proxy=1.28,1.34", "iptables=nft"]
keep-failed = true
fail-fast = false
"#;

/// The arguments, with what is added to them.
fn passed(folder: &Path, args: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
    let matches = Cli::command().try_get_matches_from(&args)?;
    let more = added(folder, &matches, args.clone())?;
    Ok(more.unwrap_or(args))
}

fn with(text: &str, args: &str) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join(FILE), text)?;
    let args = args.split(' ').map(OsString::from).collect();
    let args = passed(folder.path(), args)?;
    Ok(args.join(" ".as_ref()).display().to_string())
}

fn refused(text: &str, args: &str) -> String {
    with(text, args).expect_err(text).to_string()
}

#[test]
fn a_team_passes_what_its_default_profile_has_and_beside_it_what_the_named_one_has() {
    assert_eq!(
        with(TEAM, "chainbreak run").unwrap(),
        "chainbreak run --jobs=4 --agents=real scenarios/kube-proxy"
    );
    assert_eq!(
        with(TEAM, "chainbreak run --profile ci").unwrap(),
        "chainbreak run --jobs=2 --agents=real scenarios/kube-proxy --matrix=kube-proxy=1.28,1.34 \
         --matrix=iptables=nft --keep-failed --profile ci"
    );
}

#[test]
fn what_is_given_on_the_command_line_takes_the_place_of_the_profiles() {
    assert_eq!(
        with(TEAM, "chainbreak run src -j 9 --agents model").unwrap(),
        "chainbreak run src -j 9 --agents model"
    );
    // A case is looked for where scenarios are.
    assert_eq!(
        with(TEAM, "chainbreak run silent/bpf-off -j 9 --agents model").unwrap(),
        "chainbreak run scenarios/kube-proxy silent/bpf-off -j 9 --agents model"
    );
    // Both cannot be.
    assert_eq!(
        with(
            "profile.default.keep-failed = true",
            "chainbreak run --keep"
        )
        .unwrap(),
        "chainbreak run --keep"
    );
}

#[test]
fn a_profile_that_is_named_takes_the_place_of_what_it_contradicts() {
    let team =
        |keep: bool| format!("profile.default.keep-failed = true\nprofile.look.keep = {keep}\n");
    let of = |keep| with(&team(keep), "chainbreak run --profile look").unwrap();
    assert_eq!(of(true), "chainbreak run --keep --profile look");
    assert_eq!(of(false), "chainbreak run --keep-failed --profile look");
}

#[test]
fn a_command_takes_what_it_has_and_others_nothing() {
    assert_eq!(
        with(TEAM, "chainbreak list").unwrap(),
        "chainbreak list --agents=real scenarios/kube-proxy"
    );
    assert_eq!(with(TEAM, "chainbreak drops").unwrap(), "chainbreak drops");
    let folder = tempfile::tempdir().unwrap();
    let args = vec!["chainbreak".into(), "run".into()];
    let same = passed(folder.path(), args.clone()).unwrap();
    assert_eq!(same, args);
}

#[test]
fn mistakes_have_their_line_and_a_hint() {
    for (text, said) in [
        (
            "[profile.default]\njob = 4\n",
            "chainbreak.toml:2: job is no option of run; did you mean \"jobs\"?",
        ),
        (
            "[profile.default]\n\njobs = true\n",
            "chainbreak.toml:3: jobs takes a text or a number, or a list of them",
        ),
        (
            "[profile.default]\nquiet = 1\n",
            "chainbreak.toml:2: quiet is true or false",
        ),
        (
            "[profile.default]\nallow-ebpf = true\n",
            "chainbreak.toml:2: allow-ebpf is given on the command line alone, each time",
        ),
        (
            "[profiles.default]\njobs = 1\n",
            "chainbreak.toml:1: unknown field `profiles`, expected `profile`",
        ),
        ("[profile.default]\njobs 1\n", "chainbreak.toml:2: "),
    ] {
        let refused = refused(text, "chainbreak run");
        assert!(refused.starts_with(said), "{refused}");
    }
    for key in ["backend", "out", "allow-host-changes"] {
        let refused = refused(&format!("profile.default.{key} = \"x\""), "chainbreak run");
        assert!(
            refused.ends_with("on the command line alone, each time"),
            "{refused}"
        );
    }
    let smuggled = "profile.default.paths = [\"--allow-host-changes\"]";
    let refused_of = refused(smuggled, "chainbreak run");
    assert_eq!(
        refused_of,
        "chainbreak.toml:1: \"--allow-host-changes\" is no path"
    );
    let itself = refused("profile.default.profile = \"ci\"", "chainbreak run");
    assert!(itself.contains("profile is no option of run"), "{itself}");
    assert_eq!(
        refused(TEAM, "chainbreak run --profile co"),
        "--profile co: chainbreak.toml has no such profile; did you mean \"ci\"?"
    );
}

#[test]
fn a_profile_that_is_named_and_not_there_is_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["chainbreak", "run", "--profile=ci"].map(OsString::from);
    let refused = passed(folder.path(), args.to_vec()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "--profile ci: there is no chainbreak.toml here"
    );
}
