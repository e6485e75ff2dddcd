# Two commands set everything up: `make demo` and `make test`.
CARGO ?= cargo
REAL = clusters/lab/real
SCENARIO = scenarios/kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml

.PHONY: demo test test-real test-kind real bench mutate packages build check static

demo: build ## the outage of calico#10538 on this machine's kernel, and its fixes
	target/debug/chainbreak run $(SCENARIO)

# The cases of scenarios wait most of their time: more of them than cores run side by side, after the others.
test: packages ## every test
	$(CARGO) test --workspace --quiet -- --skip ::case_
	$(CARGO) test --workspace --quiet -- ::case_ --test-threads=6

# One after the other: they are about times, and fill a machine of two cores by themselves.
test-real: packages ## the tests with the real kube-proxy v1.20.2, made first if it is not there yet
	@kube_proxy=$$($(REAL)/build-kube-proxy) && \
	legacy=$$($(REAL)/build-root legacy) && nft=$$($(REAL)/build-root nft) && \
	CHAINBREAK_REAL_KUBE_PROXY=$$kube_proxy \
	CHAINBREAK_REAL_ROOT_LEGACY=$$legacy CHAINBREAK_REAL_ROOT_NFT=$$nft \
	$(CARGO) test --workspace --test differential --test real --quiet \
		-- --ignored --test-threads=1

# About ten minutes the first time, and about one and a half later.
test-kind: packages ## what needs a kind cluster: one of Kubernetes v1.20.2, made from Debian's packages first
	@.ci/offline-kind/up >/dev/null
	@.ci/offline-kind/smoke
	$(CARGO) test --workspace --test kind --no-run
	@.ci/offline-kind/enter $(CARGO) test --offline --workspace --test kind --quiet -- --ignored --test-threads=1

mutate: build packages ## that every scenario notices when its fault is missing or a promise comes out otherwise
	target/debug/chainbreak mutate scenarios

real: ## the path of the real kube-proxy v1.20.2, made first if it is not there yet
	@$(REAL)/build-kube-proxy

check: packages ## what CI checks beside the tests
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

# In the profile of `make demo` and `make test`: the figures are those of what people run.
bench: packages ## the figures of docs/performance.md
	$(CARGO) bench --workspace --profile dev --bench '*'

build: packages
	$(CARGO) build --bin chainbreak

static: packages ## a program that runs in any node image, for --backend kind
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release --target x86_64-unknown-linux-gnu --bin chainbreak

packages: ## install what clusters/lab/packages.txt lists and this machine lacks
	@clusters/lab/install-packages
