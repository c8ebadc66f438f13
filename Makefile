# Each target does its own set-up; the second time it costs nothing until requirements.lock changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-model bench-stats check format clean

help:
	@echo "make demo        score a bundled change against main and show the verdict"
	@echo "make test        run the tests (no GPU, no model download)"
	@echo "make test-model  run the tests on the embedded model and the whole evaluations (minutes)"
	@echo "make bench-stats simulate the judge and hold it against its bars (ten minutes; docs/STATISTICS.md)"
	@echo "make check       formatting, lint, types, import directions"
	@echo "make setup       only the set-up: virtual environment and packages"

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is older than Python 3.11. Name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments: install its venv package" \
	       "(Debian and Ubuntu: apt-get install python3-venv), then run make again."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing pinned packages into $(VENV) (the first time takes a few minutes) ..."
	@$(PIP) install "$$(grep '^torch==' requirements.lock)"
	@$(PIP) install -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

demo: setup
	@$(BIN)/evalbot demo

test: setup
	@$(BIN)/python -m pytest

test-model: setup
	@$(BIN)/python -m engine fetch smollm2-135m >/dev/null
	@$(BIN)/python -m pytest -m "(model or slow) and not gpu"

bench-stats: setup
	@$(BIN)/python -m evalbot.bench_stats --out docs/STATISTICS.md

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: setup
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
