# shellcheck shell=sh
# Things made once from Debian's packages, in a cache folder. Read by the scripts beside it.
#
# A script calls `begin NAME FILES…`, which answers from the cache and ends the script when that is
# possible; then it fills `$part` and calls `finish`. Nothing is installed and no apt setting changed.
# Whatever is downloaded is held to the SHA-256 that the script names. Only the answer, a path, goes to
# the standard output.

PATH="$PATH:/usr/sbin:/sbin"
helper=/usr/lib/apt/apt-helper
# Where a release of Debian is, and where it goes when it is too old for the first.
mirrors=${CHAINBREAK_DEBIAN_MIRROR:-http://deb.debian.org/debian http://archive.debian.org/debian}

say() { echo "chainbreak: $*" >&2; }
die() {
    say "$@"
    exit 1
}

# begin NAME FILE…: prints the path and ends the script when NAME was made by just these files (the
# scripts that make it, and what they put in). Else returns with the lock held, `$made` the path to
# come and `$part` an empty folder on the same file system.
begin() {
    name=$1
    shift
    [ -n "${XDG_CACHE_HOME:-${HOME-}}" ] || die "set HOME or XDG_CACHE_HOME: $name is kept below it"
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/chainbreak
    key=$(cat "$@" | sha256sum | cut -c1-12) || die "could not read $*"
    made=$cache/$name-$key
    part=$cache/$name.part
    if [ -e "$made" ]; then answer; fi

    if [ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ] || [ ! -x "$helper" ]; then
        die "$name can be made only on a Debian of amd64, from its packages"
    fi
    mkdir -p "$cache" 2>/dev/null || true
    [ -w "$cache" ] || die "could not write to $cache: set XDG_CACHE_HOME to a folder of yours"
    # The lock ends with its holder, even one killed.
    exec 9>"$cache/$name.lock"
    flock -n 9 || {
        say "another process makes $name: waiting for it"
        flock 9
    }
    if [ -e "$made" ]; then answer; fi
    began=$(date +%s)
    # What a killed one left, and what this one leaves if it is killed.
    drop
    trap drop EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    mkdir "$part"
}

# Go's module folders are read-only, and so may be what is unpacked.
drop() {
    chmod -R u+w "$part" 2>/dev/null || true
    rm -rf "$part"
}

answer() {
    echo "$made"
    exit 0
}

# room MB: fails unless the cache folder's file system has so much to spare.
room() {
    free=$(($(df -Pk "$part" | awk 'NR == 2 { print $4 }') / 1024))
    [ "$free" -ge "$1" ] || die "$name needs $1 MB while it is made, and $cache has $free MB"
}

# download: each line of the standard input is a SHA-256 and a path below the mirror. Files land in
# `$part` under their own names.
download() {
    while read -r sum path; do
        file=$part/${path##*/}
        fetched=
        for mirror in $mirrors; do
            # Its own user for downloads is root's alone, and may not write here.
            if "$helper" -qq -o APT::Sandbox::User=root -o Acquire::Retries=2 \
                -o Acquire::http::Timeout=20 download-file "$mirror/$path" "$file" "SHA256:$sum" \
                >"$part/log" 2>&1; then
                fetched=yes
                break
            fi
        done
        [ -n "$fetched" ] || {
            cat "$part/log" >&2
            die "could not download ${path##*/} from $mirrors"
        }
    done
}

# finish FILE: what was made, a file or folder in `$part`, becomes the answer.
finish() {
    # With one rename: a thing in the cache is whole.
    mv "$1" "$made"
    say "made $name in $(($(date +%s) - began)) s: $made"
    answer
}
