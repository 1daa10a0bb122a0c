# Every command of this project. `make` alone lists them.
#
# Each target installs what it needs into .venv from requirements.lock, and nothing outside of it.

PYTHON ?= python3
VENV ?= .venv
# One process a core. A third one on two cores costs more than the waits for disks that it fills, and more than four gain
# nothing.
WORKERS ?= auto
# `make chaos MINUTES=10` runs a sample: it begins no test after that time. A printed seed decides the order.
MINUTES ?=
# `make test VERSIONS=lowest` runs the quick tests on the lowest versions that pyproject.toml allows. `VERSIONS=newest` takes
# the newest of the index, also of the packages that pyproject.toml holds to one version of Dagster.
VERSIONS ?=
# Dagster 1.12 uses what pydantic has deprecated.
OLD = -W 'ignore:Support for class-based:DeprecationWarning'
QUICK = $(addprefix leads_pipeline_tests/,domain portal warehouse orchestration promises)

BIN := $(VENV)/bin
PYTEST = $(if $(VERSIONS),.venv-$(VERSIONS),$(VENV))/bin/pytest --numprocesses $(WORKERS) --maxprocesses 4 --dist worksteal
# uv reads neither pip.conf nor, by default, the certificates of the system. Networks of companies need both.
INDEX = UV_DEFAULT_INDEX="$${PIP_INDEX_URL:-$$($(BIN)/pip config get global.index-url 2>/dev/null)}"
UV = $(INDEX) .ci/patiently $(BIN)/uv
INSTALL = $(UV) pip install --system-certs --python $(BIN)/python \
	--constraints requirements.lock --build-constraints requirements.lock

# Without compiled modules, each process would compile Dagster: 3 seconds of CPU. For tests, which start many processes,
# all is compiled at once.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo dev test check lint chaos bench docs pages wheel sbom venv lock clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: venv ## Pull 7 days from a simulated portal, up to a first query
	@$(BIN)/leads-pipeline demo

dev: venv ## Start the Dagster UI and its daemon on http://127.0.0.1:3000
	@$(BIN)/leads-pipeline dev

test: $(if $(VERSIONS),.venv-$(VERSIONS),$(VENV))/dev ## Run the tests
	@$(PYTEST) -m 'not chaos and not slow' $(if $(VERSIONS),$(QUICK) $(OLD))

check: lint test ## Check format, lint rules and types, then run the tests

lint: $(VENV)/dev ## Check format, lint rules and types
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/zizmor --offline --quiet --no-progress .github

chaos: $(VENV)/dev ## Run the slow and destructive tests: killed processes, full disks, races
	@$(PYTEST) --verbose -m 'chaos or slow' $(if $(MINUTES),--minutes=$(MINUTES))

bench: $(VENV)/dev ## Run the benchmarks, side by side
	@$(BIN)/python -m benchmarks

docs: $(VENV)/dev ## Build the documentation site into site/
	@$(BIN)/zensical build --clean --strict

pages: $(VENV)/dev ## Write what is made from code: reference pages, findings, .env.example
	@$(BIN)/python -m docs.makers

wheel: $(VENV)/dev ## Build the wheel into dist/, check it, and try it outside of the checkout
	@rm -rf dist
	@$(BIN)/python -m hatchling build -t wheel
	@$(BIN)/twine check --strict dist/*.whl
	@$(BIN)/check-wheel-contents dist/*.whl
	@$(INDEX) .ci/try_wheel $(BIN) dist/*.whl

sbom: $(VENV)/dev ## Write what the wheel installs with all extras to dist/, as CycloneDX
	@mkdir -p dist
	@$(INSTALL) --group release
	@$(UV) pip compile pyproject.toml --no-config --system-certs --universal --python-version 3.11 --all-extras \
		--constraints requirements.lock --generate-hashes --no-annotate --output-file $(VENV)/installed.txt
	@$(BIN)/cyclonedx-py requirements $(VENV)/installed.txt --pyproject pyproject.toml --mc-type application \
		--output-reproducible --output-file dist/leads-pipeline.cdx.json

venv: $(VENV)/runtime ## Install the pipeline into .venv

# The files below are written when their step is complete. They go with the folder.
$(VENV)/uv.lock: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo 'This needs Python 3.11 or newer, and $(PYTHON) is: '"$$($(PYTHON) --version 2>&1)" >&2; \
		echo 'Name a newer one: make PYTHON=/path/to/python3.11 ...' >&2; exit 1; }
	@echo 'Installing the locked packages into $(VENV), once. A slow network takes minutes ...'
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { echo 'On Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock >$(VENV)/uv.txt
	@.ci/patiently $(BIN)/pip install --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.txt
	@mv $(VENV)/uv.txt $@

$(VENV)/runtime: $(VENV)/uv.lock pyproject.toml
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/dev: $(VENV)/runtime
	@echo 'Adding the packages for tests and checks ...'
	@$(INSTALL) --compile-bytecode --editable '.[delta,postgres,s3]' --group build --group dev --group dg
	@touch $@

# The project's own dependencies are in other versions there. The tools of the tests are as new as those allow.
.venv-lowest/dev: RESOLUTION = --resolution lowest-direct
.venv-lowest/dev .venv-newest/dev: pyproject.toml | venv
	@echo 'Installing the $(VERSIONS) versions into $(@D) ...'
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	@$(UV) pip compile pyproject.toml --no-config --system-certs --python $(@D)/bin/python --all-extras \
		$(RESOLUTION) --output-file $(@D)/versions.txt
	@$(UV) pip install --system-certs --python $(@D)/bin/python --constraints $(@D)/versions.txt \
		--editable '.[delta,postgres,s3]' --group build --group dev
	@touch $@

# Locked versions that still fit stay. `make lock UPGRADE=--upgrade` takes the newest ones.
lock: $(VENV)/uv.lock ## Write requirements.lock anew from pyproject.toml
	@.ci/patiently $(BIN)/uv pip compile pyproject.toml --no-config --system-certs --universal --python-version 3.11 --fork-strategy fewest \
		--all-extras --group build --group dev --group dg --group release --generate-hashes --custom-compile-command 'make lock' $(UPGRADE) \
		--output-file requirements.lock

clean: ## Remove everything that was generated, except data/
	rm -rf $(VENV) .venv-bench .venv-lowest .venv-newest .mypy_cache .pytest_cache .ruff_cache .hypothesis dist site .cache
	find . -name __pycache__ -type d -not -path './data/*' -prune -exec rm -rf {} +
