# Every word does its own set-up first, on a fresh machine too: a virtual environment with the
# pinned packages, and Debian packages when root. CI calls the same words (.ci/run).

PYTHON ?= python3
SEEDS ?= 100
# Two files of tests at a time; the long ones first (tests/durations.json, which `make durations`
# records anew), where xdist by itself would take those first that have many tests.
ABREAST := --numprocesses 2 --dist loadfile --no-loadscope-reorder
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# One thing at a time: the tests and the demo time what they see.
.NOTPARALLEL:
.PHONY: help setup check format test test-unit test-system durations coverage demo bench matrix build soak pictures clean

help:
	@echo 'make setup          virtual environment in $(VENV), Debian packages when root'
	@echo 'make check          formatting, lint, types, imports, spelling'
	@echo 'make format         apply formatting and the mechanical lint fixes'
	@echo 'make test           make test-unit, then make test-system'
	@echo 'make test-unit      the unit tests against the wheel, from an empty folder'
	@echo 'make test-system    integration and end-to-end tests'
	@echo 'make durations      all tests, and how long each file takes, into tests/durations.json'
	@echo 'make coverage       the unit tests again, with what they cover, file by file'
	@echo 'make demo           four ranks survive a kill, a freeze and a lost node'
	@echo 'make bench          every benchmark, into bench/results/'
	@echo 'make matrix         the short set with each torch and Python promised, into docs/matrix.md'
	@echo 'make build          wheel and source archive, into dist/'
	@echo 'make soak SEEDS=n   the long seeded runs'
	@echo 'make pictures       dashboards of a made-up run, into docs/images (npm, prometheus, chromium)'

setup: $(READY)

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON='$(PYTHON)' scripts/setup.sh $(VENV)
	@touch $@

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: test-unit test-system

test-unit: build
	scripts/test_wheel.sh $(VENV)

test-system: $(READY)
	$(BIN)/python -m pytest $(ABREAST) -m 'not soak' --durations 10 --durations-min 3 tests/end_to_end tests/integration

# How long each file takes, for the order in which they run.
durations: $(READY)
	$(BIN)/python -m pytest -q $(ABREAST) -m 'not soak' --record-durations tests

# Not in CI: tracing doubles the time of the unit tests, and sees nothing of what the others start.
coverage: $(READY)
	$(BIN)/python -m pytest -q -m 'not soak' --numprocesses 2 --dist loadfile --cov --cov-report=term-missing:skip-covered tests/unit

demo: $(READY)
	$(BIN)/holdfast demo

bench: $(READY)
	$(BIN)/python -m bench all

# Not in CI: each torch is several gigabytes.
matrix:
	'$(PYTHON)' scripts/matrix.py

build: $(READY)
	rm -rf dist
	PIP_CONSTRAINT='$(CURDIR)/constraints.txt' $(BIN)/python -m build --outdir dist . >/dev/null
	@ls dist

soak: $(READY)
	HOLDFAST_SOAK_SEEDS=$(SEEDS) $(BIN)/python -m pytest -m soak --timeout 0 tests

# Not in CI: half a gigabyte of npm packages, for pictures alone.
pictures:
	scripts/pictures/draw.sh

clean:
	rm -rf $(VENV) dist build htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
