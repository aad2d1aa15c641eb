# The two commands: `make up` runs the whole memory on this machine, `make test` proves it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv
UV_VERSION := 0.13.9

# Certificates of the system, so that installing works behind a company's own.
export UV_SYSTEM_CERTS := true

# Without .pyc files every run of Dagster imports three seconds longer.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up test check format lock bench help
.DEFAULT_GOAL := help

help:
	@echo "make up      start the store, Dagster and the API; Ctrl-C stops them"
	@echo "make test    install what the tests need, run the checks and all tests"
	@echo "make check   lint, types and layers only"
	@echo "make bench   the benchmarks (some minutes, on a quiet machine)"
	@echo "make lock    resolve the dependencies anew"

up: $(VENV)/.runtime
	@exec $(BIN)/rivet up

# Two at a time: most tests wait for Postgres, Dagster or a browser.
WORKERS ?= 2

test: check
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.import_rate
	$(BIN)/python -m benchmarks.capture_rate
	$(BIN)/python -m benchmarks.search_latency
	$(BIN)/python -m benchmarks.embedding_rate
	$(BIN)/python -m benchmarks.tags_latency
	$(BIN)/python -m benchmarks.wiki_latency

lock: $(UV)
	$(UV) pip compile -q --universal --generate-hashes --no-header --group build pyproject.toml -o requirements.lock
	$(UV) pip compile -q --universal --generate-hashes --no-header --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.12 ...")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 has no venv module; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "Installing into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"

$(VENV)/.runtime: requirements.lock pyproject.toml | $(UV)
	@$(UV) pip install -q --python $(BIN)/python --compile-bytecode --require-hashes -r requirements.lock
	@$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(UV)
	@$(UV) pip install -q --python $(BIN)/python --compile-bytecode --require-hashes -r requirements-dev.lock
	@$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.runtime
