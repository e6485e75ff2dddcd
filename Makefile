# Two commands set everything up: `make demo` and `make test`.
CARGO ?= cargo
MADE_BY = clusters/lab/real
MODE ?= iptables
# How many random worlds the tests with a real kube-proxy take, where they do not decide it.
IN_WORLDS = $(if $(WORLDS),CHAINBREAK_WORLDS=$(WORLDS))
SCENARIO = scenarios/kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml

.PHONY: demo test test-demo test-real test-built test-program test-browser test-kubectl test-editor test-causes test-likeness test-walk test-escape test-felix fuzz record test-kind test-kind-cases test-kind-all test-kind-upgrade real bench mutate packages build check check-demo check-fuzz archive image static test-aarch64

# Without what the lab and its models never use (README): nearly all of the wait is compiling. `make build` puts the whole program in its place.
SMALL = --package chainbreak-cli --no-default-features

# With one backend of iptables, the one of the reports; the other with BACKEND=nft. More cases at once are too many for a program that is not
# optimised: with five, of four runs on two slow cores none had every case judged.
BACKEND ?= legacy
demo: packages ## the outage of calico#10538 on this machine's kernel, and its fixes
	$(CARGO) build $(SMALL) --config .cargo/demo.toml --bin chainbreak
	target/debug/chainbreak run $(SCENARIO) --matrix iptables=$(BACKEND) --jobs 3

test-demo: packages ## what the program says of which `make demo` builds it without
	$(CARGO) test $(SMALL) --config .cargo/demo.toml --lib --quiet

# What is tested with worlds waits most of its time: more of that than cores runs side by side, the cases of scenarios after the others.
test: packages ## every test
	$(CARGO) test --workspace --quiet -- --skip ::case_ --test-threads=4
	$(CARGO) test --workspace --quiet -- ::case_ --test-threads=6

# A minute on two cores after the build. CHAINBREAK_SEED=2 draws others.
test-causes: packages ## that the report names what was done, of a hundred faults drawn by chance
	$(IN_WORLDS) $(CARGO) test --workspace --test cli -- --ignored --nocapture causes::

# A quarter of an hour on two cores. CHAINBREAK_MATRIX=kube-proxy=1.28 plays it with another version, CHAINBREAK_RUN=reports/out/latest takes a run that was played.
test-likeness: packages ## that a node is named after the incident that was recorded of it, of all that the catalogue has
	$(CARGO) test --workspace --test cli -- --ignored --nocapture likeness::

# Ten minutes on two cores. CHAINBREAK_SEED=20000 draws others, WORLDS=1 with it the world of that number.
test-walk: packages ## that packets fare in the kernel as the walk says, in random rules and in those of real kube-proxies: WORLDS=10000
	CHAINBREAK_WORLDS=$(or $(WORLDS),2000) $(CARGO) test --workspace --test kernel_walk -- --nocapture
	CHAINBREAK_WORLDS=$(or $(WORLDS),270) $(CARGO) test --workspace --test walk kernel:: -- --nocapture

# As root both users are tried: root, and nobody. Under a minute.
test-escape: packages ## that nothing gets out of a world
	$(CARGO) test --workspace --test escape --test real_agents --quiet -- --ignored

# One after the other: they are about times, and fill a machine of two cores by themselves. Other releases than 1.20.2 are
# built when they are not there yet, and held to their models alone: KUBE_PROXIES="1.28.15 1.36.4".
test-real: packages ## the tests with the real kube-proxy v1.20.2, made first if it is not there yet, and with KUBE_PROXIES
	@kube_proxy=$$($(MADE_BY)/build-kube-proxy) && \
	legacy=$$($(MADE_BY)/build-root legacy) && nft=$$($(MADE_BY)/build-root nft) && \
	CHAINBREAK_REAL_KUBE_PROXY=$$kube_proxy $(IN_WORLDS) \
	CHAINBREAK_REAL_ROOT_LEGACY=$$legacy CHAINBREAK_REAL_ROOT_NFT=$$nft \
	$(CARGO) test --workspace --test differential --test real --test sources --quiet \
		-- --ignored --skip is_recorded --test-threads=1
	@for version in $(KUBE_PROXIES); do $(MAKE) --no-print-directory test-built KUBE_PROXY=$$version || exit; done

# FELIX is a program or a root, as `--agent felix=` takes it; nobody can build one from here. Four seconds a world, of which six live at a time; MODE=bpf takes root.
# CHAINBREAK_SEED=100 draws others; CHAINBREAK_RECORD=1 keeps what the real one left for `make test`.
test-felix: packages ## that a real Felix and its model leave the same rules in random worlds: FELIX=path/to/calico-node FELIX_VERSION=v3.32.1 WORLDS=60
	@test -n "$(FELIX)" -a -n "$(FELIX_VERSION)" || { echo "which one? make test-felix FELIX=path/to/calico-node FELIX_VERSION=v3.32.1" >&2; exit 2; }
	CHAINBREAK_REAL_FELIX=$(abspath $(FELIX)) CHAINBREAK_FELIX_VERSION=$(FELIX_VERSION) CHAINBREAK_MODE=$(MODE) $(IN_WORLDS) \
		$(CARGO) test --workspace --test real_felix -- --ignored --nocapture

# Worlds in each mode that the release has (nftables mode is its own from 1.31 on); flows, times and the rest in iptables mode.
test-built: test-program
	@kube_proxy=$$(target/debug/chainbreak agents build kube-proxy $(KUBE_PROXY)) && \
	case $(KUBE_PROXY) in 1.28* | 1.29* | 1.30*) modes=iptables ;; *) modes="iptables nftables" ;; esac && \
	export CHAINBREAK_REAL_KUBE_PROXY=$$kube_proxy CHAINBREAK_REAL_VERSION=$(KUBE_PROXY) $(IN_WORLDS) && \
	for mode in $$modes; do \
		CHAINBREAK_MODE=$$mode CHAINBREAK_IP_FAMILY=dual \
		$(CARGO) test --workspace --test differential --quiet \
			-- --ignored --test-threads=1 a_real_kube_proxy_and_its_model || exit; \
	done && \
	$(CARGO) test --workspace --test differential --quiet \
		-- --ignored --test-threads=1 --skip is_recorded --skip end_every_world

# About five minutes on two cores. Without REAL, the path of a binary, the release is built when it is not there yet.
record: test-program ## what a real kube-proxy does in random worlds, for `make test`: KUBE_PROXY=1.34.2 MODE=nftables WORLDS=90 REAL=path
	@test -n "$(KUBE_PROXY)" || { echo "which one? make record KUBE_PROXY=1.34.2" >&2; exit 2; }
	@real=$(if $(REAL),$(abspath $(REAL)),$$(target/debug/chainbreak agents build kube-proxy $(KUBE_PROXY))) && \
	CHAINBREAK_RECORD_TO=$(CURDIR)/harness/recordings/corpus $(IN_WORLDS) CHAINBREAK_MODE=$(MODE) \
	CHAINBREAK_REAL_KUBE_PROXY=$$real CHAINBREAK_REAL_VERSION=$(KUBE_PROXY) \
	$(CARGO) test --workspace --test differential -- --ignored --exact record::a_real_kube_proxy_is_recorded --nocapture

# The first cluster takes about seven minutes the first time, and under one later; all of it less than twenty minutes on two cores then.
test-kind: build ## what needs a kind cluster, and twenty cases of the catalogue: one of Kubernetes 1.34, or KUBERNETES=1.33, or 1.20, made of Go's modules and Debian's packages first
	@.ci/offline-kind/up >/dev/null
	@.ci/offline-kind/smoke 1
	@.ci/offline-kind/smoke 3
	$(CARGO) test --workspace --test kind --no-run
	@.ci/offline-kind/enter $(CARGO) test --offline --workspace --test kind -- --ignored --test-threads=1 --skip long::
	@[ "$(KUBERNETES)" = 1.20 ] || $(MAKE) --no-print-directory test-kind-cases

# About ten minutes on two cores.
test-kind-cases: build ## that twenty cases of the catalogue come out on kind as in the lab
	@.ci/offline-kind/up >/dev/null
	@grep -v '^#' .ci/offline-kind/cases.txt | xargs .ci/offline-kind/catalogue run
	@.ci/offline-kind/enter target/debug/chainbreak clean

# More than an hour on two cores (docs/parity.md).
test-kind-all: build ## what takes long on a kind cluster, and that whatever it can express has the lab's verdicts there
	@.ci/offline-kind/up >/dev/null
	$(CARGO) test --workspace --test kind --no-run
	@.ci/offline-kind/enter $(CARGO) test --offline --workspace --test kind -- --ignored --test-threads=1 --skip upgrades:: long::
	@.ci/offline-kind/catalogue parity scenarios
	@.ci/offline-kind/enter target/debug/chainbreak clean

# Beside what `make test-kind` makes, a node image of the version before; a quarter of an hour more on two cores the first time.
test-kind-upgrade: packages ## that kubeadm upgrades a kind cluster node by node under traffic, from 1.33 to 1.34
	@KUBERNETES=1.33 .ci/offline-kind/up >/dev/null
	@.ci/offline-kind/up >/dev/null
	$(CARGO) test --workspace --test kind --no-run
	@CHAINBREAK_KIND_IMAGE_BEFORE=$$(KUBERNETES=1.33 .ci/offline-kind/enter printenv CHAINBREAK_KIND_IMAGE) \
		.ci/offline-kind/enter $(CARGO) test --offline --workspace --test kind --quiet -- --ignored upgrades::

# Needs Node (18 and later) and npm, which brings the server, about 20 MB. Under a minute.
test-editor: ## that editors find nothing wrong with a scenario, and its mistakes, by the YAML language server that they use
	@command -v npm >/dev/null || { echo "npm is needed, and node: apt-get install nodejs npm" >&2; exit 2; }
	@cd .ci/editor && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && npm test

# Installs Debian's Chromium where there is none, and Node. Half a minute.
test-browser: test-program ## the page of a real run in a headless browser: it fits, prints, asks for nothing and opens at once
	@clusters/lab/install-packages .ci/browser/packages.txt
	@node --test --test-reporter=spec .ci/browser/

# Needs Go, and the first time some minutes for building kubectl; a quarter of one later.
test-kubectl: test-program ## what an operator does with kubectl in a kept world, with a kubectl of its Go modules
	@CHAINBREAK=$(CURDIR)/target/debug/chainbreak .ci/kubectl/test

# Needs a C++ compiler. A minute for all nine on two cores and, the first time, five for compiling; with a finding it exits with 1.
fuzz: packages ## what reads what others wrote, on inputs that a fuzzer makes up: SECONDS_EACH=600 TARGETS="scenario worker"
	@SECONDS_EACH="$(SECONDS_EACH)" TARGETS="$(TARGETS)" CARGO="$(CARGO)" .ci/fuzz

mutate: build packages ## that every scenario notices when its fault is missing or a promise comes out otherwise
	target/debug/chainbreak mutate scenarios

real: ## the path of the real kube-proxy v1.20.2, made first if it is not there yet
	@$(MADE_BY)/build-kube-proxy

check: packages ## what CI checks beside the tests
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	@.ci/lengths
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

check-demo: packages ## the lints of the demo's smaller program
	$(CARGO) clippy $(SMALL) --lib --bins --quiet -- -D warnings

check-fuzz: packages ## the fuzzer's own lints, which compile everything once more
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml --quiet -- -D warnings

# In the profile of `make demo` and `make test`: the figures are those of what people run.
bench: packages ## the figures of docs/performance.md
	$(CARGO) bench --workspace --profile dev --no-fail-fast --bench '*'

# The program as the tests have it: `build`, without what only tests need, would compile nearly everything once more.
test-program: packages
	@$(CARGO) test --workspace --test cli --test differential --no-run --quiet

build: packages ## the whole program, target/debug/chainbreak
	$(CARGO) build --bin chainbreak

# target/ARCH-unknown-linux-musl/release/chainbreak. ARCH is x86_64 or aarch64, this machine's when it is not said.
static: ## a program that runs on any Linux, and in any node image for --backend kind
	@CARGO="$(CARGO)" ARCH="$(ARCH)" .ci/release/cargo build --release --bin chainbreak

archive: ## dist/chainbreak-VERSION-ARCH-linux.tar.gz: a static program, the catalogue and the docs
	@CARGO="$(CARGO)" ARCH="$(ARCH)" .ci/release/archive

image: ## a container image of it, where Docker or Podman answers
	@CARGO="$(CARGO)" .ci/release/image

# In qemu, which has a program's system calls done by this machine's kernel: what makes worlds or measures times is left out. So is
# what a test itself starts in a namespace, where nothing would run it in qemu, and what opens a file below a folder: many a qemu has no openat2.
NOT_IN_QEMU = netlink:: the_walk_says_of_every_packet input:: a_case_is_judged_from_its_own_file a_case_whose_file_is_gone a_run_from_before_queries_had_ids
test-aarch64: ## the tests of a program for aarch64 that need no world
	@CARGO="$(CARGO)" ARCH=aarch64 .ci/release/cargo test --quiet $(addprefix --package chainbreak-,model netfilter agents recordings report) \
		-- $(addprefix --skip ,$(NOT_IN_QEMU))

packages: ## install what clusters/lab/packages.txt lists and this machine lacks
	@clusters/lab/install-packages
