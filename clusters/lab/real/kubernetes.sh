# shellcheck shell=sh disable=SC2154
# Upstream's source of Kubernetes v1.20.2 and the compiler that upstream used for it, as Debian ships
# them (no patch of Debian's). Read after debian.sh by scripts that build programs of it.

version=v1.20.2

# kubernetes_unpack: into the `$part` of `begin`, 96 MB from the mirror. Source lands in `$source`.
kubernetes_unpack() {
    # The archive is `git archive` of upstream's tag: component-base/version/base.go has its commit.
    download <<'LIST'
b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc pool/main/k/kubernetes/kubernetes_1.20.5+really1.20.2.orig.tar.gz
33f6680406698b60370322aa5710be199006b3d66fbb0974b44da012de3aa82a pool/main/g/golang-1.15/golang-1.15-go_1.15.15-1~deb11u4_amd64.deb
e580f570f706d801191f9a17e55156736fc5979a6a878bab9304ca007ae29941 pool/main/g/golang-1.15/golang-1.15-src_1.15.15-1~deb11u4_amd64.deb
LIST

    source=$part/path/src/k8s.io/kubernetes
    mkdir -p "$part/go" "$source"
    # Half of it all is tests, documents and objects for other ways to build.
    for package in "$part"/golang-*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$part/go" --exclude='*_test.go' --exclude=testdata \
            --exclude='./usr/share/go-1.15/test' --exclude='./usr/lib/go-1.15/pkg/linux_amd64*'
    done
    tar -xzf "$part/kubernetes_1.20.5+really1.20.2.orig.tar.gz" -C "$source" --strip-components=1 \
        --exclude='*_test.go' --exclude=testdata --exclude='kubernetes-1.20.2/test'
}

# with_go COMMAND…: in the source, with nothing from outside but what is named here: no setting of the
# caller's reaches the compiler.
with_go() (
    cd "$source" || exit
    env -i PATH="$part/go/usr/lib/go-1.15/bin:/usr/bin:/bin" HOME="$part" GOENV=off \
        GOROOT="$part/go/usr/lib/go-1.15" GOPATH="$part/path" GOCACHE="$part/objects" TMPDIR="$part" \
        GO111MODULE=off CGO_ENABLED=0 "$@" >&2
)

# kubernetes_build NAME…: cmd/NAME of the source, each to `$part/bin/NAME`.
kubernetes_build() {
    # Without the stamps a program calls itself v0.0.0. The date is upstream's, so that it does not vary.
    stamps=
    for package in component-base/version client-go/pkg/version; do
        for stamp in gitVersion=$version gitMajor=1 gitMinor=20 gitTreeState=archive \
            buildDate=2021-01-13T13:20:00Z; do
            stamps="$stamps -X k8s.io/kubernetes/vendor/k8s.io/$package.$stamp"
        done
    done
    names=$*
    for program in $names; do
        shift
        set -- "$@" "./cmd/$program"
    done
    mkdir -p "$part/bin"
    with_go go build -trimpath -ldflags "-s -w -buildid=$stamps" -o "$part/bin/" "$@" ||
        die "$names $version did not build"
}
