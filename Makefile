# `make demo` and `make test` each work on a fresh machine: they make .venv, install, and go.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Python must be free to cache byte code: recompiling Ray and torch costs seconds at each process start.
unexport PYTHONDONTWRITEBYTECODE
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: demo test setup lint types contracts unit docs clean

demo: setup ## the main job, end to end, on this machine
	$(BIN)/python -m examples.demo $(ARGS)

test: setup lint types contracts unit ## the whole gate

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib || true
	touch $(STAMP)

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

contracts:
	$(BIN)/lint-imports

unit:
	$(BIN)/pytest $(ARGS)

docs: setup ## write the generated pages of docs/ anew
	$(BIN)/python -m scripts.gen_docs

clean:
	rm -rf $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
