# `make run` and `make test` set up all that they need (.ci/venv.sh) in .venv beside the code.

VENV_PYTHON := .venv/bin/python
# All tests together run on all cores, a file of them at a time in one process. A choice of them begins
# sooner without: ARGS="-n 2 tests/logic" has it nevertheless.
SPREAD := $(if $(ARGS),,-n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder --max-worker-restart 0)
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv run test lint types check docs simulate fuzz format bench clean

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

venv: # up to date or made anew; PYTHON=/path/to/python3.10 chooses the interpreter
	@PYTHON='$(PYTHON)' sh .ci/venv.sh

run: venv ## the quickstart: simulated, then over TLS sockets, and the two final models compared
	@$(VENV_PYTHON) examples/quickstart.py

test: lint types check ## everything that must pass: lint, types, tests

lint: venv ## ruff: rules and format
	@$(VENV_PYTHON) -m ruff check --quiet .
	@$(VENV_PYTHON) -m ruff format --check .

types: venv ## mypy
	@$(VENV_PYTHON) -m mypy --no-error-summary

check: venv ## the tests alone, on all cores; ARGS="-k shards" chooses among them
	@env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(VENV_PYTHON) -m pytest -q $(SPREAD) $(ARGS)

docs: venv ## the documentation as a site, build/docs/index.html; a broken link or name stops it
	@env NO_MKDOCS_2_WARNING=1 $(VENV_PYTHON) -W ignore -m mkdocs build --quiet --strict --config-file .ci/site/mkdocs.yml
	@echo "build/docs/index.html"

simulate: venv ## a deployment under faults, in virtual time; SEEDS=0:10000 chooses, SEEDS=7 ARGS=--trace shows one
	@env OMP_NUM_THREADS=1 $(VENV_PYTHON) -m tests.network_simulation --seeds $(or $(SEEDS),0:300) $(ARGS)

format: venv ## ruff: put the code in order
	@$(VENV_PYTHON) -m ruff check --fix --quiet . ; $(VENV_PYTHON) -m ruff format .

bench: ## the benchmarks, and how to run one
	@for file in $(sort $(wildcard benchmarks/*.py)); do printf '  %-44s %s\n' "$(VENV_PYTHON) $$file" "$$(sed -n '1s/^"""\([^"]*\).*/\1/p' $$file)"; done

fuzz: venv ## coverage-guided fuzzing (tests/fuzz); ARGS="--runs 1000000 messages records" chooses
	@$(VENV_PYTHON) -c "import atheris" 2>/dev/null || $(VENV_PYTHON) -m pip install -q -c constraints.txt atheris
	@$(VENV_PYTHON) -m tests.fuzz $(ARGS)

clean: ## remove .venv, caches and build leftovers (runs/ stays)
	@rm -rf .venv fuzzing build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
