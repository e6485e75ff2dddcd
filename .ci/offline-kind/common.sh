# shellcheck shell=bash disable=SC2034,SC2154
# What the scripts here share: places, words, and the daemon's life. Read after `here` is set.
#
# Docker runs in namespaces of its own: its bridges, its rules and kind's networks are in a network
# namespace that only it and the nodes are in, its mounts and its /run are its own, and its processes are
# in a PID namespace that ends with the one process whose id is in `$state/daemon`.

real=$here/../../clusters/lab/real
# shellcheck source-path=SCRIPTDIR source=../../clusters/lab/real/debian.sh
. "$real/debian.sh"

# Which Kubernetes the nodes are made of: a minor version. Its patch is the newest that clusters/versions.yaml
# pins, of which Go's proxy has every module; 1.20 is made of Debian's source.
export KUBERNETES=${KUBERNETES:-1.34}
version=$(sed -n "s/^  - \(v${KUBERNETES//./\\.}\.[0-9]*\)\( .*\)\?$/\1/p" "$here/../../clusters/versions.yaml" | head -n 1)
[ "$KUBERNETES" != 1.20 ] || version=v1.20.2
[ -n "$version" ] || die "KUBERNETES=$KUBERNETES: a minor version of which clusters/versions.yaml pins a kube-proxy, such as 1.34, or 1.20"

state=${XDG_CACHE_HOME:-$HOME/.cache}/chainbreak/offline-kind
# A socket's path is 107 bytes at most; inside $state the longest is this one.
export DOCKER_HOST=unix://$state/docker.sock
[ ${#DOCKER_HOST} -lt 110 ] || die "$state is too long a path for a socket: set XDG_CACHE_HOME to a shorter one"
image_name=chainbreak/node
# The nodes' control groups, below no one else's.
cgroup=chainbreak-offline-kind-$(sha256sum <<<"$state" | cut -c1-8)
# What the kernel's settings were before the first daemon since it booted.
sysctls=$state/sysctl-$(cut -c1-8 /proc/sys/kernel/random/boot_id).conf

# call_themselves VERSION PROGRAM…: fails unless the programs in `$part/bin` say that they are of it.
call_themselves() {
    local version=$1 program how said
    shift
    for program in "$@"; do
        case $program in
        kubectl) how='version --client' ;;
        kubeadm) how=version ;;
        *) how=--version ;;
        esac
        # shellcheck disable=SC2086 # a list of words
        said=$("$part/bin/$program" $how 2>&1) || true
        case $said in *"$version"*) ;; *) die "what was built as $program calls itself '$said'" ;; esac
    done
}

# tools_path TOOLS: what PATH begins with.
tools_path() { echo "$1/usr/bin:$1/usr/sbin"; }

# started PID: when it was started, in ticks since the machine was: an id can come back, with its time it
# cannot. Nothing for a process that has ended, be it waited for or not.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'; }

# daemon: prints the process id of the running daemon's namespaces, or fails.
daemon() {
    local pid start
    read -r pid start 2>/dev/null <"$state/daemon" || return 1
    [ -n "$pid" ] && [ "$(started "$pid")" = "$start" ] && echo "$pid"
}

# until_true SECONDS WHAT COMMAND…: waits for the command to succeed; false after so many seconds.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}

as_root() { [ "$(id -u)" = 0 ] || die "${0##*/} needs root: it makes namespaces and runs Docker"; }
