//! `--shard`, `matrix` and `merge`: a run shared by the jobs of a CI, and made one again.

use std::{fs, os::unix::fs::symlink};

use crate::ground::{Ground, exits, text, validates};

#[test]
fn the_shards_of_a_run_merge_into_the_reports_of_the_whole() {
    let ground = Ground::new();
    for (shard, out) in [("1/2", "one"), ("2/2", "two")] {
        let args = [
            "run",
            "short.yaml",
            "--variant",
            "calm",
            "--variant",
            "fight-nobody-expects",
        ];
        let output = ground.chainbreak(&[&args[..], &["--shard", shard, "--out", out]].concat());
        assert!([0, 10].contains(&output.status.code().unwrap()), "{shard}");
    }
    let merged = ground.chainbreak(&["merge", "one/latest", "two/latest", "--out", "out"]);
    exits(&merged, 10);
    let said = text(&merged.stdout);
    assert!(
        said.contains("2 cases: 1 as expected, 1 not as expected"),
        "{said}"
    );
    validates(&ground.newest("junit.xml"));
    let junit = fs::read_to_string(ground.newest("junit.xml")).unwrap();
    assert_eq!(junit.matches("<testsuite ").count(), 2);
    // What was kept for the case that was not as expected came along.
    let run = fs::read_to_string(ground.newest("run.jsonl")).unwrap();
    let kept = run
        .lines()
        .filter(|line| line.starts_with(r#"{"artifact""#));
    let kept: Vec<serde_json::Value> = kept.map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(!kept.is_empty());
    for line in kept {
        let path = line["artifact"]["path"].as_str().unwrap();
        assert!(ground.newest(path).exists(), "{path}");
    }
}

/// The parts come from other machines, and may be made to do harm.
#[test]
fn merge_follows_no_link_and_writes_no_file_twice() {
    let ground = Ground::new();
    exits(&ground.run("fight-nobody-expects", &[]), 10);
    let run = ground.newest("run.jsonl");
    let recorded = fs::read_to_string(&run).unwrap();
    let kept = recorded
        .lines()
        .find(|line| line.starts_with(r#"{"artifact""#))
        .unwrap();
    let line: serde_json::Value = serde_json::from_str(kept).unwrap();
    let path = line["artifact"]["path"].as_str().unwrap();
    let merge = || ground.chainbreak(&["merge", "out/latest", "--out", "merged"]);
    fs::write(
        &run,
        recorded.replace(kept, &kept.replace(path, "run.jsonl")),
    )
    .unwrap();
    let output = merge();
    exits(&output, 1);
    let said = text(&output.stderr);
    assert!(said.contains("/run.jsonl: File exists"), "{said}");
    fs::write(&run, &recorded).unwrap();
    fs::remove_file(ground.newest(path)).unwrap();
    symlink("/etc/passwd", ground.newest(path)).unwrap();
    let output = merge();
    exits(&output, 2);
    let said = text(&output.stderr);
    assert!(said.contains(&format!("{path}: it is a link")), "{said}");
}

#[test]
fn a_case_of_two_runs_is_not_merged_and_its_run_is_named() {
    let ground = Ground::new();
    exits(&ground.run("calm", &[]), 0);
    let output = ground.chainbreak(&["merge", "out/latest", "out/latest"]);
    exits(&output, 2);
    let said = text(&output.stderr);
    assert!(
        said.contains("out/latest/run.jsonl: case short/calm"),
        "{said}"
    );
}

#[test]
fn a_matrix_is_what_fans_out_and_what_is_excluded_is_said_with_its_reason() {
    let ground = Ground::new();
    let args = [
        "matrix",
        "short.yaml",
        "--matrix",
        "kube-proxy=1.31..1.33",
        "iptables=legacy,nft",
    ];
    let exclude = [
        "--exclude",
        "kube-proxy=1.32 iptables=nft: the image has no nft",
    ];
    let output = ground.chainbreak(&[&args[..], &exclude, &["--shards", "2", "--github"]].concat());
    exits(&output, 0);
    let said = text(&output.stderr);
    assert!(
        said.contains("kube-proxy=1.32 iptables=nft: no job, "),
        "{said}"
    );
    assert!(said.contains("the image has no nft"), "{said}");
    let said = text(&output.stdout);
    let json = said.trim().strip_prefix("matrix=").unwrap();
    let matrix: serde_json::Value = serde_json::from_str(json).unwrap();
    let jobs = matrix["include"].as_array().unwrap();
    assert_eq!(jobs.len(), 2 * 5);
    assert_eq!(jobs[0]["name"], "kube-proxy=1.31 iptables=legacy 1/2");
    // Each job's cases are those that its arguments choose.
    for job in jobs {
        let args = job["args"].as_str().unwrap();
        let plan = format!(
            "plan short.yaml {}",
            args.split(" --exclude").next().unwrap()
        );
        let plan = ground.chainbreak(&plan.split(' ').collect::<Vec<_>>());
        let said = text(&plan.stdout);
        assert!(
            said.contains(&format!("\n{} to run", job["cases"])),
            "{args}: {said}"
        );
    }
}

/// What two jobs ran, `merge` refuses.
#[test]
fn a_case_that_is_the_same_with_another_value_is_one_jobs() {
    let ground = Ground::new();
    let short = fs::read_to_string(ground.path().join("short.yaml")).unwrap();
    let alone = "  alone: { kube-proxy: none, expect: healthy }\n";
    ground.write("short.yaml", (short + alone).as_str());
    let matrix = "--matrix kube-proxy=1.31,1.32 calico=v3.28,v3.31";
    let said = |args: &str| {
        let output = ground.chainbreak(&args.split(' ').collect::<Vec<_>>());
        exits(&output, 0);
        text(&output.stdout)
    };
    let cases = |args: &str| {
        let plan: serde_json::Value =
            serde_json::from_str(&said(&format!("plan short.yaml {args} --format json"))).unwrap();
        let runs = plan["run"].as_array().unwrap().iter();
        let ids = runs.map(|it| it["case"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    let jobs = said(&format!("matrix short.yaml {matrix}"));
    let args = jobs.lines().map(|job| job.split_once("cases  ").unwrap().1);
    let mut of_jobs: Vec<String> = args.flat_map(cases).collect();
    let mut all = cases(matrix);
    of_jobs.sort_unstable();
    all.sort_unstable();
    assert_eq!(of_jobs, all);
    assert!(all.contains(&"short/alone[calico=v3.31]".to_owned()));
}

#[test]
fn what_is_known_of_every_job_of_a_matrix_is_said_once() {
    let ground = Ground::new();
    let args = "matrix short.yaml --matrix kube-proxy=1.99 iptables=legacy,nft";
    let output = ground.chainbreak(&args.split(' ').collect::<Vec<_>>());
    exits(&output, 0);
    assert_eq!(text(&output.stdout).lines().count(), 2);
    let said = text(&output.stderr);
    assert!(
        said.starts_with("no kube-proxy 1.99 is known here"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_wrong_shard_or_exclusion_is_one_clear_line() {
    let ground = Ground::new();
    let cases = [
        (
            ["list", "short.yaml", "--exclude", "kube-proxy>=1.31"],
            "the reason is missing",
        ),
        (
            ["list", "short.yaml", "--matrix", "kube-proxy=1.33..1.31"],
            "the older one first",
        ),
        (
            ["matrix", "short.yaml", "--shard", "1/2"],
            "--shards says how many parts there are",
        ),
        (
            ["plan", "short.yaml", "--shard", "3/2"],
            "write 2/5 for the second of five parts",
        ),
        (
            ["merge", "short.yaml", "--out", "out"],
            "could not read short.yaml",
        ),
    ];
    for (args, words) in cases {
        let output = ground.chainbreak(&args);
        exits(&output, 2);
        let said = text(&output.stderr);
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn the_jobs_of_a_matrix_have_the_seed_and_the_variants_that_it_was_given() {
    let ground = Ground::new();
    let args = ["matrix", "short.yaml", "--variant", "calm", "--seed", "7"];
    let output = ground.chainbreak(&args);
    exits(&output, 0);
    assert_eq!(
        text(&output.stdout),
        "   1 cases  --variant 'calm' --seed 7\n"
    );
}

#[test]
fn the_jobs_of_a_matrix_choose_their_cases_as_it_was_told_to() {
    let ground = Ground::new();
    let output = ground.chainbreak(&["matrix", "short.yaml", "-k", "/calm$"]);
    exits(&output, 0);
    assert_eq!(text(&output.stdout), "   1 cases  -k '/calm$'\n");
}

#[test]
fn a_part_without_any_case_is_no_failure() {
    let ground = Ground::new();
    let output = ground.chainbreak(&["run", "short.yaml", "--shard", "99/99", "--out", "out"]);
    exits(&output, 0);
    assert!(text(&output.stderr).contains("part 99/99 of the cases is empty"));
}
