//! What this machine can run, found out by really trying in a throwaway world, and for what it cannot,
//! the reason and the command that mends it.

use std::{
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

use chainbreak_model::case::Capabilities;
use nix::unistd::Uid;

use crate::{
    machine,
    worker::{self, WorldOptions, delegation, group},
};

/// A survey takes a tenth of a second; a machine that takes this long cannot run the lab either.
const DEADLINE: Duration = Duration::from_secs(20);

/// Matches and targets that the agents' rules need.
const RULES: &str = "*nat\n:CHAINBREAK - [0:0]\n\
    -A CHAINBREAK -m comment --comment \"a comment\" -m conntrack --ctstate NEW -j RETURN\n\
    -A CHAINBREAK -m statistic --mode random --probability 0.5 -j RETURN\n\
    -A CHAINBREAK -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.9:80\n\
    -A CHAINBREAK -j MARK --set-xmark 0x4000/0x4000\n\
    -A CHAINBREAK -j MASQUERADE --random-fully\nCOMMIT\n";

/// Those of IPv6: a kernel may have been built, or started, without it.
const RULES_V6: &str = "*nat\n:CHAINBREAK - [0:0]\n\
    -A CHAINBREAK -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00::9]:80\n\
    -A CHAINBREAK -j MASQUERADE --random-fully\nCOMMIT\n";

const NGINX: &str = "daemon off; master_process off; user root; pid /run/survey.pid;\n\
    error_log stderr crit;\nevents {}\nhttp { access_log off; client_body_temp_path /run/s1;\n\
    proxy_temp_path /run/s2; fastcgi_temp_path /run/s3; uwsgi_temp_path /run/s4;\n\
    scgi_temp_path /run/s5; server { listen 80; return 200; } }\n";

/// Something to try: capability, Debian package, program and arguments, standard input.
struct Trial {
    capability: &'static str,
    package: &'static str,
    argv: &'static [&'static str],
    input: &'static str,
}

const TRIALS: [Trial; 9] = [
    Trial {
        capability: "ip",
        package: "iproute2",
        argv: &["ip", "-batch", "-"],
        input: "link add v1 type veth peer name v2\nlink add b1 type bridge\nlink set v1 master b1\n",
    },
    Trial {
        capability: "iptables-legacy",
        package: "iptables",
        argv: &["xtables-legacy-multi", "iptables-restore"],
        input: RULES,
    },
    Trial {
        capability: "iptables-nft",
        package: "iptables",
        argv: &["xtables-nft-multi", "iptables-restore"],
        input: RULES,
    },
    Trial {
        capability: "ip6tables-legacy",
        package: "iptables",
        argv: &["xtables-legacy-multi", "ip6tables-restore"],
        input: RULES_V6,
    },
    Trial {
        capability: "ip6tables-nft",
        package: "iptables",
        argv: &["xtables-nft-multi", "ip6tables-restore"],
        input: RULES_V6,
    },
    Trial {
        capability: "nft",
        package: "nftables",
        argv: &["nft", "list", "ruleset"],
        input: "",
    },
    Trial {
        capability: "conntrack",
        package: "conntrack",
        argv: &["conntrack", "-L"],
        input: "",
    },
    Trial {
        capability: "ipset",
        package: "ipset",
        argv: &["ipset", "restore"],
        input: "create survey hash:net\nadd survey 10.0.0.0/8\n",
    },
    Trial {
        capability: "nginx",
        package: "nginx-light",
        argv: &[
            "sh",
            "-c",
            "cat > /run/survey.conf; exec nginx -t -q -c /run/survey.conf",
        ],
        input: NGINX,
    },
];

/// Settings of the machine itself may be changed.
const HOST_SYSCTL: &str = "host-sysctl";

/// Worlds may load eBPF programs.
const EBPF: &str = "ebpf";

/// Worlds may list eBPF programs.
const EBPF_LISTS: &str = "ebpf-lists";

/// A world's tasks are bounded.
const CGROUP: &str = "cgroup";

/// The order that makes a worker survey instead of running a case.
pub(crate) const ORDER: &str = "survey";

/// Surveys this machine with a worker of the running program.
pub(crate) async fn survey(host_changes: bool, ebpf: bool) -> Capabilities {
    let found = match tokio::time::timeout(DEADLINE, ask()).await {
        Ok(Ok(capabilities)) => capabilities,
        Ok(Err(reason)) => unable(&reason),
        Err(_elapsed) => unable(&format!("no answer within {} s", DEADLINE.as_secs())),
    };
    let mut found = as_seen_by(nix::unistd::geteuid().is_root(), found);
    let allowed = |allowed: bool, reason: &str| {
        if allowed {
            Ok(())
        } else {
            Err(reason.to_owned())
        }
    };
    let reason = "it would change this machine's own settings for a while\n\
                  chainbreak run --allow-host-changes";
    let may = machine::may_change().and(allowed(host_changes, reason));
    found.0.insert(HOST_SYSCTL.to_owned(), may);
    if let Some(possible @ Ok(())) = found.0.get_mut(EBPF) {
        let reason = "it would load programs into this machine's kernel\n\
                      chainbreak run --allow-ebpf";
        *possible = allowed(ebpf, reason);
    }
    let why = "a world may not list the machine's eBPF programs, by which a Felix that is switched back finds its own: they would stay attached";
    found.0.insert(EBPF_LISTS.to_owned(), Err(why.to_owned()));
    found.0.insert(CGROUP.to_owned(), group::missing());
    let why = "kube-proxy's model has no ipvs mode: --backend kind, where the kernel has ip_vs";
    found.0.insert("ipvs".to_owned(), Err(why.to_owned()));
    found
}

/// Who surveys is a capability too, and only an ordinary user needs `sudo`. In a world everybody is root.
fn as_seen_by(root: bool, mut found: Capabilities) -> Capabilities {
    let who = if root {
        for reason in found
            .0
            .values_mut()
            .filter_map(|found| found.as_mut().err())
        {
            *reason = reason.replace("\nsudo ", "\n");
        }
        Ok(())
    } else {
        Err(
            "you are an ordinary user, whose worlds have a user namespace; the lab needs no more"
                .to_owned(),
        )
    };
    found.0.insert("root".to_owned(), who);
    found
}

async fn ask() -> Result<Capabilities, String> {
    let options = WorldOptions {
        ebpf: true,
        ..WorldOptions::default()
    };
    let answer = worker::ask(&options, ORDER).await?;
    serde_json::from_str(&answer).map_err(|error| error.to_string())
}

/// Everything fails for the same reason.
fn unable(reason: &str) -> Capabilities {
    let reason = match mend_namespaces() {
        Some(command) => format!("{reason}\n{command}"),
        None if Uid::effective().is_root() => {
            format!(
                "{reason}\nin a container, it is to be privileged; else, a kernel with namespaces is needed"
            )
        }
        None => format!("{reason}\nrun as root, on a kernel with namespaces"),
    };
    let names = TRIALS.iter().map(|trial| trial.capability);
    let names = names.chain(["lab", "overlayfs", EBPF]);
    Capabilities(
        names
            .map(|name| (name.to_owned(), Err(reason.clone())))
            .collect(),
    )
}

/// The setting that keeps an ordinary user from making a world, as the command that changes it.
fn mend_namespaces() -> Option<&'static str> {
    let reads = |file: &str, value: &str| {
        std::fs::read_to_string(file).is_ok_and(|text| text.trim() == value)
    };
    if reads("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        return Some("sudo sysctl -w kernel.unprivileged_userns_clone=1");
    }
    if reads(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) {
        return Some("sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
    }
    if reads("/proc/sys/user/max_user_namespaces", "0") {
        return Some("sudo sysctl -w user.max_user_namespaces=15000");
    }
    None
}

/// Tries everything. To be called in a worker, whose world nobody needs afterwards.
pub(crate) fn try_all() -> Capabilities {
    let mut found = Capabilities::default();
    for trial in &TRIALS {
        found.0.insert(trial.capability.to_owned(), attempt(trial));
    }
    // A world was made, or this would not run; what is missing to a lab is only the wiring.
    let lab = found.0.get("ip").cloned().unwrap_or(Ok(()));
    found.0.insert("lab".to_owned(), lab);
    found.0.insert("overlayfs".to_owned(), overlayfs());
    found.0.insert(EBPF.to_owned(), delegation::attempt());
    found
}

/// What helps where a trial fails with those words.
fn mend(trial: &Trial, why: &str) -> String {
    if why.contains("not permitted") || why.contains("ermission denied") {
        return "what runs here may not do so: try it as root, a container privileged".to_owned();
    }
    // iptables has modprobe load ip_tables, which nobody may in a world; then the kernel loads the tables by itself.
    if why.contains("unable to initialize table") || why.contains("Table does not exist") {
        let family = trial.argv[1].split_once("tables").map_or("ip", |it| it.0);
        return format!("sudo modprobe {family}_tables");
    }
    format!("sudo apt-get install {}", trial.package)
}

fn attempt(trial: &Trial) -> Result<(), String> {
    let program = trial.argv[0];
    let failed = |why: String| format!("`{}`: {why}\n{}", trial.argv.join(" "), mend(trial, &why));
    let mut child = Command::new(program)
        .args(&trial.argv[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let fed = stdin.write_all(trial.input.as_bytes());
    drop(stdin);
    let output = child
        .wait_with_output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() && fed.is_ok() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failed(
        stderr
            .lines()
            .next()
            .unwrap_or("it failed without a word")
            .to_owned(),
    ))
}

fn overlayfs() -> Result<(), String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if mounts.lines().any(|line| line.starts_with("overlay ")) {
        return Ok(());
    }
    let reason = "the kernel gives this user no overlay file systems: worlds see files read-only\n\
                  sudo modprobe overlay";
    Err(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_fails_says_what_helps_there() {
        let mends = |capability: &str, why: &str| {
            let mut trials = TRIALS.iter();
            mend(trials.find(|it| it.capability == capability).unwrap(), why)
        };
        let no_module = "ip6tables-restore v1.8.11 (legacy): ip6tables-restore: unable to initialize table 'nat'";
        assert_eq!(
            mends("ip6tables-legacy", no_module),
            "sudo modprobe ip6_tables"
        );
        assert_eq!(
            mends("iptables-legacy", &no_module.replace("ip6", "ip")),
            "sudo modprobe ip_tables"
        );
        assert_eq!(
            mends("ipset", "No such file or directory"),
            "sudo apt-get install ipset"
        );
        let refused = "RTNETLINK answers: Operation not permitted";
        assert!(mends("ip", refused).contains("privileged"));
    }

    #[test]
    fn root_is_told_no_sudo_and_a_user_who_they_are() {
        let found = || {
            let reason = "`nginx -t`: not found\nsudo apt-get install nginx-light".to_owned();
            Capabilities([("nginx".to_owned(), Err(reason))].into())
        };
        let root = as_seen_by(true, found()).0;
        let bare = "`nginx -t`: not found\napt-get install nginx-light";
        assert_eq!(root["nginx"], Err(bare.to_owned()));
        assert_eq!(root["root"], Ok(()));
        let user = as_seen_by(false, found()).0;
        assert_eq!(user["nginx"], found().0["nginx"]);
        assert!(user["root"].is_err());
    }
}
