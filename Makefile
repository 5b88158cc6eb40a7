# `make demo` and `make test` do everything on a fresh machine with Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TOOLS  := $(VENV)/.tools
SCRIPTS := "src/**/*.{js,css}" "studies/*.js" "docs/site/*.js"
# Processes that cannot keep bytecode compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-faults mutants fuzz audit test-extras test-pythons coverage test-flower test-flower-slow docs lint format bench bench-full bench-peers bench-flower bench-growth clean help

demo: $(READY) ## train four methods on embedded data; write demo/index.html
	$(BIN)/fedbb demo --out demo

test: $(TOOLS) ## run the tests (a few minutes on two cores)
	$(BIN)/python -m pytest

test-slow: $(TOOLS) ## run the slow tests as well, and laws with twice as many examples
	$(BIN)/python -m pytest -m "not flower" --hypothesis-profile=thorough --timeout=900

test-faults: $(TOOLS) ## count faults survived and invariants that hold; ALL=1 adds slow tests and real nodes
	$(BIN)/python tests/faults.py $(if $(ALL),--all) $(if $(KEEP),--keep $(KEEP)) --workers $(if $(ALL),0,3)

mutants: $(TOOLS) ## break chosen lines one at a time and see the closest tests fail (half an hour)
	$(BIN)/python tests/mutants/run.py --jobs 2

fuzz: $(TOOLS) ## feed damaged bytes to every reader of outside bytes, SECONDS each (20)
	PYTHONPATH=tests $(BIN)/python tests/fuzz.py --seconds $(or $(SECONDS),20)

audit: $(TOOLS) ## ask the live databases for known holes in the pinned versions (needs a network)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	$(BIN)/pip-audit --no-deps --disable-pip -r constraints.txt

test-extras: $(READY) ## build the wheel and run a recipe with each extra installed alone (some minutes)
	$(PYTHON) tests/extras.py $(EXTRAS)

test-pythons: ## run the fast tests on Python 3.12 and 3.13 where installed, or on PYTHONS with a torch of their own
	$(PYTHON) tests/pythons.py $(VERSIONS) $(PYTHONS)

coverage: $(TOOLS) ## run the tests and print the lines of the package that none of them reaches
	$(BIN)/python -m pytest --cov=fedbb --cov-report=term:skip-covered

test-flower: $(TOOLS) ## run the tests on a real Flower server and three nodes (some minutes)
	timeout 900 $(BIN)/python -m pytest -m "flower and not slow" -n 0 --durations=0 tests/flower tests/secagg/flower tests/cli/test_flower.py $(SELECT)

test-flower-slow: $(TOOLS) ## those with slow and deaf lines, wrong clocks and stragglers on real nodes
	timeout 1800 $(BIN)/python -m pytest -m "flower and slow" -n 0 --durations=0 tests/flower tests/secagg/flower tests/cli/test_flower.py

docs: $(TOOLS) demo/index.html ## build the documentation site; warnings and broken links fail
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src:. $(BIN)/python -m mkdocs build --strict

demo/index.html: | $(READY)
	$(BIN)/fedbb demo --out demo

lint: $(TOOLS) ## check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/mypy
	@if command -v prettier >/dev/null; then prettier --check $(SCRIPTS); \
	else echo "Format of scripts and styles not checked: prettier is not installed."; fi

format: $(TOOLS) ## write the format and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	@if command -v prettier >/dev/null; then prettier --write $(SCRIPTS); fi

bench: $(READY) ## rounds beside a bare PyTorch loop, PNB's cost, start of a run (some minutes)
	$(BIN)/python -m benchmarks.rounds --quick
	$(BIN)/python -m benchmarks.steps
	$(BIN)/python -m benchmarks.precision
	$(BIN)/python -m benchmarks.scoring
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.page

bench-full: $(READY) ## the same with all images for ResNet-56 (half an hour)
	$(BIN)/python -m benchmarks.rounds
	$(BIN)/python -m benchmarks.steps
	$(BIN)/python -m benchmarks.precision
	$(BIN)/python -m benchmarks.scoring
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.page

bench-peers: $(READY) ## the same work in other frameworks, each in an environment made for it
	$(BIN)/python -m benchmarks.frameworks
	$(BIN)/python -m benchmarks.page

bench-flower: $(TOOLS) ## rounds on real Flower nodes beside the pool, and what secure sums cost
	$(BIN)/python -m benchmarks.flower_rounds
	$(BIN)/python -m benchmarks.secure
	$(BIN)/python -m benchmarks.secure --sparse 1000 --repeats 1
	$(BIN)/python -m benchmarks.page
	$(BIN)/python -m benchmarks.secure --page docs/privacy.md

bench-growth: $(READY) ## time and memory by clients and by samples
	$(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.many
	$(BIN)/python -m benchmarks.page

clean: ## remove the environment, caches and the demo's output
	rm -rf $(VENV) .bench-envs .pythons demo site tuning .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

# torch first and alone: the pinned version keeps pip from looking for a newer, larger build.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(TOOLS): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY) $@
