# Every command of this project. `make` alone lists them.
#
# Each target sets up what it needs: a virtual environment made from the lock files, with uv where it is installed and
# plain pip otherwise, checked against the hashes in both cases. Nothing is installed outside of .venv.

PYTHON ?= python3
VENV ?= .venv
# The tests are processes and waiting as much as Python: more than four workers gain nothing.
WORKERS ?= 4
# `make chaos MINUTES=10` runs a sample: it begins no test after that time. A printed seed decides the order.
MINUTES ?=
# Only `make lock` uses it; pinned because its releases differ in how they write a lock file.
UV_VERSION := 0.13.8
# Only `make audit` uses it.
PIP_AUDIT_VERSION := 2.10.1

UV := $(shell command -v uv 2>/dev/null)
BIN := $(VENV)/bin

# Stamps, written when a step is complete. They lie inside of the environment, so that they vanish with it.
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
PROJECT := $(VENV)/.project-installed

ifdef UV
INSTALL = $(UV) pip install --quiet --compile-bytecode --python $(BIN)/python
else
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

# Runs a command under a lock, so that two makes at once don't build one environment together. The lock goes with the
# process that holds it, however that ends.
LOCKED = $(PYTHON) -c 'import fcntl, os, sys; f = os.open("$(VENV).lock", os.O_CREAT | os.O_RDWR); \
	os.set_inheritable(f, True); fcntl.flock(f, fcntl.LOCK_EX); os.execvp(sys.argv[1], sys.argv[1:])'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-outage dev test check format lint types audit chaos soak cluster bench venv venv-dev lock clean python

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: venv ## The main job on a simulated portal, from nothing to an analyst's query
	@$(BIN)/leads-pipeline demo

demo-outage: venv ## The portal fails, windows turn red, the sensors take up what is missing: three minutes
	@$(BIN)/leads-pipeline demo-outage

dev: venv ## The Dagster UI on http://127.0.0.1:3000, with its daemon
	@$(BIN)/leads-pipeline dev

test: venv-dev ## The whole test suite
	@$(BIN)/pytest -m 'not chaos' --numprocesses auto --maxprocesses $(WORKERS) --dist worksteal

check: lint types audit test ## What to run before a commit: format, lint, types, locked packages, tests

format: venv-dev ## Format the code
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix --select I

lint: venv-dev ## Check the format and the lint rules
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check

types: venv-dev ## Check the types
	@$(BIN)/mypy

chaos: venv-dev ## The slow and destructive tests: killed processes, full disks, races
	@$(BIN)/pytest -m chaos $(if $(MINUTES),--minutes=$(MINUTES)) --numprocesses auto --maxprocesses $(WORKERS)

soak: venv-dev ## An hour of `serve` with a portal that fails, and real sinks for what it tells: SOAK=FOLDER, a new one
	@$(BIN)/python -m leads_pipeline_tests.chaos.soak $(if $(HALF),--half $(HALF)) $(or $(SOAK),$(error SOAK=FOLDER is missing, where it works))

cluster: venv-dev ## Stores that machines land in, runs in containers, some of them killed: what this machine has the programs for
	@$(BIN)/python -m leads_pipeline_tests.chaos.cluster

bench: venv-dev ## The benchmarks, side by side
	@$(BIN)/python -m benchmarks

venv: python ## The virtual environment to run with
	@$(LOCKED) $(MAKE) --silent --no-print-directory $(PROJECT)

venv-dev: python ## The virtual environment with the tools for tests and checks
	@$(LOCKED) $(MAKE) --silent --no-print-directory $(PROJECT) $(DEV)

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo 'Python 3.11 or newer is needed, and $(PYTHON) is not: '"$$($(PYTHON) --version 2>&1)" >&2; \
		echo 'Name one that is: make PYTHON=/path/to/python3.11 ...' >&2; exit 1; }

# A new lock gets a new environment: what the old one held beyond the new lock would stay otherwise.
$(RUNTIME): requirements.lock
	@echo 'Making $(VENV) from requirements.lock (once: seconds with uv, a minute or two with pip) ...'
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { echo 'On Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	@$(INSTALL) --require-hashes -r requirements.lock
	@touch $@

$(DEV): requirements-dev.lock $(RUNTIME)
	@echo 'Adding the tools for tests and checks from requirements-dev.lock ...'
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

$(PROJECT): pyproject.toml $(RUNTIME)
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

# Extras are kept because plain pip wants them pinned in so many words. Versions that still fit stay as they are:
# `make lock UPGRADE=--upgrade` takes the newest ones.
define LOCK
compile() { "$$tools/bin/uv" pip compile pyproject.toml --quiet --no-config --universal --python-version 3.11 \
	--fork-strategy fewest --no-strip-extras --generate-hashes --custom-compile-command 'make lock' $(UPGRADE) "$$@"; } && \
compile --group build --output-file requirements.lock && \
compile --group build --extra postgres --constraints requirements.lock --output-file requirements-postgres.lock && \
compile --group build --extra delta --constraints requirements.lock --output-file requirements-delta.lock && \
compile --group build --extra s3 --constraints requirements.lock --output-file requirements-s3.lock && \
compile --group build --extra postgres --extra s3 --extra delta --constraints requirements.lock --output-file requirements-containers.lock && \
compile --group build --group dev --constraints requirements.lock --output-file requirements-dev.lock
endef

lock: python ## Write the lock files anew from pyproject.toml
	@tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT INT TERM && \
	$(PYTHON) -m venv "$$tools" && "$$tools/bin/pip" install --quiet uv==$(UV_VERSION) && $(LOCK)

# Both need the network: the tools, the index, the list of vulnerabilities. Without it they say so and hold nobody up;
# what they find fails. The dev lock holds the runtime's packages too.
audit: python ## Whether the lock files are fresh and free of known vulnerabilities, where the network allows it
	@tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT INT TERM && cp pyproject.toml README.md *.lock "$$tools" && \
	{ $(PYTHON) -m venv "$$tools" && "$$tools/bin/pip" install --quiet uv==$(UV_VERSION) pip-audit==$(PIP_AUDIT_VERSION); } \
		>"$$tools/said" 2>&1 || { echo "Not audited: the tools can't be installed. $$(tail -n 1 "$$tools/said")"; exit 0; }; \
	if (cd "$$tools" && $(LOCK)) 2>"$$tools/said"; then \
		for lock in *.lock; do cmp -s "$$lock" "$$tools/$$lock" || { echo "$$lock is stale: run make lock" >&2; exit 1; }; done; \
		echo 'The lock files are fresh.'; \
	else echo "Freshness not checked: $$(tail -n 1 "$$tools/said")"; fi; \
	if "$$tools/bin/pip-audit" --strict --disable-pip --require-hashes --requirement requirements-dev.lock \
		--progress-spinner off --format json --output "$$tools/found" >"$$tools/said" 2>&1; then \
		echo 'No known vulnerability in what is locked.'; \
	elif [ -s "$$tools/found" ]; then cat "$$tools/said" "$$tools/found" >&2; exit 1; \
	else echo "Not audited: $$(tail -n 1 "$$tools/said")"; fi

clean: ## Remove what was generated, but never data/
	rm -rf $(VENV) .venv.lock .venv-bench .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -not -path './data/*' -prune -exec rm -rf {} +
