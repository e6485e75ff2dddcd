# Two commands set everything up: `make demo` and `make test`.
CARGO ?= cargo
SCENARIO = scenarios/kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml

.PHONY: demo test bench packages build check

demo: build ## the outage of calico#10538 on this machine's kernel, and its fixes
	target/debug/chainbreak run $(SCENARIO)

test: packages ## every test
	$(CARGO) test --workspace --quiet

check: packages ## what CI checks beside the tests
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

# In the profile of `make demo` and `make test`: the figures are those of what people run.
bench: packages ## the figures of docs/performance.md
	$(CARGO) bench --workspace --profile dev --bench '*'

build: packages
	$(CARGO) build --bin chainbreak

packages: ## install what clusters/lab/packages.txt lists and this machine lacks
	@clusters/lab/install-packages
