# shellcheck shell=bash disable=SC2154
# Programs of Go's modules, by the machine's Go. Read after common.sh, between `begin` and `finish`.
# What decides about modules is the caller's (GOPROXY, GOSUMDB), and so is whether another Go may be
# fetched (GOTOOLCHAIN); what decides about the programs is ours. Modules are held to Go's checksum
# database.

go_is_there() { command -v go >/dev/null || die "$name takes Go 1.24 or newer: install it from https://go.dev/dl"; }

# with_modules FOLDER COMMAND…: in FOLDER, the module around what is built.
with_modules() (
    cd "$1" || exit
    shift
    export CGO_ENABLED=0 GO111MODULE=on GOFLAGS="-mod=mod -buildvcs=false" GOWORK=off \
        GOTOOLCHAIN="${GOTOOLCHAIN:-local}"
    unset GOOS GOARCH GOEXPERIMENT
    "$@"
)

# module_part MODULE VERSION PART: has all of the module, and prints where its `GoMod` or its `Dir` is.
module_part() {
    with_modules "$part" go mod download -json "$1@$2" | sed -n "s/.*\"$3\": \"\(.*\)\",*\$/\1/p"
}

# module_program MODULE VERSION NAME [FLAG…]: the module's own command, to `$part/bin/NAME`.
module_program() {
    local module=$1 version=$2 program=$3
    shift 3
    say "  $program $version"
    mkdir -p "$part/bin" "$part/$program.module"
    with_modules "$part/$program.module" go mod init "chainbreak.invalid/$program" 2>/dev/null
    with_modules "$part/$program.module" go mod edit -require "$module@$version"
    with_modules "$part/$program.module" go build -trimpath -ldflags '-s -w' -o "$part/bin/$program" "$@" "$module" \
        >"$part/log" 2>&1 || die "$program $version did not build: $(tail -n 5 "$part/log")"
}
