# `make demo` and `make test` each work on a fresh machine: they create .venv, install Tradewind, and run. After the
# installation, neither needs a network. To use another interpreter: make test PYTHON=python3.12. To pass options to
# pytest: make unit ARGS='-k store'.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Python must be free to cache byte code: recompiling Ray and torch costs seconds at each process start.
unexport PYTHONDONTWRITEBYTECODE
export RAY_USAGE_STATS_ENABLED := 0
export PIP_NO_INPUT := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test setup packages lint types contracts unit site infra docs benchmarks clean

demo: setup ## the main job, end to end, on this machine
	$(BIN)/python -m examples.demo $(ARGS)

# Tests on real Ray nodes and of Terraform wait most of the time, and the type check takes one core, so they run beside
# the unit tests; their output is shown afterwards. Collecting the tests first compiles all modules once: otherwise each
# test process would compile them.
test: setup packages lint contracts ## the whole gate
	@$(MAKE) types > $(VENV)/types.log 2>&1 & types=$$!; \
	$(BIN)/pytest --collect-only -q > /dev/null 2>&1; \
	$(MAKE) site > $(VENV)/site.log 2>&1 & site=$$!; \
	$(MAKE) infra > $(VENV)/infra.log 2>&1 & infra=$$!; \
	$(MAKE) unit; unit=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types.log; \
	wait $$infra; infra=$$?; cat $(VENV)/infra.log; \
	wait $$site; site=$$?; cat $(VENV)/site.log; exit $$((unit | types | site | infra))

setup: $(STAMP)

# Python compiles each module at its first import, and most of the 20,000 installed modules are never imported. The pip
# that comes with Python 3.11 takes twice as long as a newer one to choose versions.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tradewind needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --no-compile --upgrade pip
	$(BIN)/pip install --no-compile -c constraints.txt -e '.[dev]'
	touch $(STAMP)

packages: setup ## install what the tests need besides Python packages
	$(BIN)/python -m scripts.packages

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

unit: setup ## all tests without Ray and Terraform; in two processes, because the tests on Ray run beside them
	$(BIN)/pytest -n 2 --dist loadfile -m "not ray" --ignore tests/infra $(ARGS)

site: setup ## tests on real Ray nodes, one after the other, because each starts many processes
	$(BIN)/pytest -m ray --timeout 600 tests/e2e $(ARGS)

infra: setup ## tests of infra/; they apply and destroy the Terraform module on a loopback AWS
	$(BIN)/pytest tests/infra $(ARGS)

docs: setup ## regenerate the generated pages of docs/
	$(BIN)/python -m scripts.gen_docs

benchmarks: setup ## measure every claim of the documents
	for script in benchmarks/[a-z]*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
