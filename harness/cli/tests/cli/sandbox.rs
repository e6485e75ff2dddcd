//! What runs in a world has no way to whoever started it: not by what the worker says, not by the terminal, not by what was open.

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::ground::{Ground, exits};

/// A world in which the pod attempts something while traffic flows. The attempt has to fail, or the step has not ended well.
fn attempt(script: &str) -> Ground {
    let ground = Ground::new();
    let text = fs::read_to_string(ground.path().join("short.yaml")).unwrap();
    let script = serde_json::to_string(&format!("! {{ {script}\n}}")).unwrap();
    let step =
        format!("  - settle: 300ms\n  - run: {{ at: pod/client, as: evil, command: {script} }}\n");
    ground.write("short.yaml", text.replace("  - settle: 300ms\n", &step));
    ground
}

/// A file of the worker's choice, and an event that would change the verdict, through any descriptor of any process.
#[test]
fn what_a_pod_says_in_the_workers_name_is_not_heard() {
    let ground = attempt(
        "for file in /proc/[0-9]*/fd/*; do
            case $file in /proc/$$/*) continue ;; esac
            printf '%s\\n' '{\"artifact\":{\"name\":\"../../../forged\",\"text\":\"\"}}' \
                '{\"event\":{\"at-us\":1,\"what\":{\"trouble\":{\"text\":\"forged\"}}}}' > $file
        done 2> /dev/null; false",
    );
    exits(&ground.run("calm", &[]), 0);
    assert!(
        !ground.history().contains("\"trouble\""),
        "{}",
        ground.history()
    );
    assert!(!ground.path().join("forged").exists());
}

#[test]
fn what_the_caller_left_open_is_closed_in_a_world() {
    let ground = attempt("ls -l /proc/self/fd | grep ' 7 -> '");
    let program = env!("CARGO_BIN_EXE_chainbreak");
    let mut shell = Command::new("sh");
    shell.current_dir(ground.path());
    shell.args(["-c", "exec 7< /; exec \"$@\"", "sh", program]);
    shell.args(["run", "short.yaml", "--variant", "calm", "--out", "out"]);
    exits(&shell.output().unwrap(), 0);
}

/// `script` gives the run a terminal, as a person has one.
#[test]
fn nothing_in_a_world_types_into_the_terminal_of_its_run() {
    let ground = attempt(
        "perl -e 'open(my $tty, \"+<\", \"/dev/tty\") and exit 0;
            for my $fd (0 .. 9) {
                open(my $file, \"+<&=\", $fd) or next;
                ioctl($file, 0x5412, my $typed = \"x\") and exit 0;
            }
            open(my $stat, \"<\", \"/proc/self/stat\");
            exit((split(\" \", (split(/\\) /, <$stat>))[1]))[4] == 0)'",
    );
    let program = env!("CARGO_BIN_EXE_chainbreak");
    let run = format!("{program} run short.yaml --variant calm --out out");
    let mut script = Command::new("script");
    script.current_dir(ground.path()).stdin(Stdio::null());
    script.args(["-qec", &run, "/dev/null"]);
    exits(&script.output().unwrap(), 0);
}
