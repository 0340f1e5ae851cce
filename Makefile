# `make run` and `make test` install their dependencies (.ci/venv.sh) into .venv beside the code.

VENV_PYTHON := .venv/bin/python
# Not what a reader of the README saves beside it.
CODE := .ci benchmarks examples experiments fedmx layers setup.py tests tools
# All tests together run on all cores, one file at a time per process. A subset starts
# sooner in one process; ARGS="-n 2 tests/logic" uses several.
SPREAD := $(if $(ARGS),,-n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder --max-worker-restart 0)
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv run test lint types check docs generate simulate fuzz format bench clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

venv: # up to date or made anew; PYTHON=/path/to/python3.10 chooses the interpreter
	@PYTHON='$(PYTHON)' sh .ci/venv.sh

run: venv ## the quickstart: simulate, deploy over TLS, and compare the two final models
	@$(VENV_PYTHON) examples/quickstart.py

test: lint types check ## everything that must pass: lint, types, tests

lint: venv ## ruff: rules and format
	@$(VENV_PYTHON) -m ruff check --quiet $(CODE)
	@$(VENV_PYTHON) -m ruff format --check $(CODE)

types: venv ## mypy
	@$(VENV_PYTHON) -m mypy --no-error-summary

check: venv ## only the tests, on all cores; ARGS="-k shards" selects some
	@env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(VENV_PYTHON) -m pytest -q $(SPREAD) $(ARGS)

docs: venv ## build the documentation as a site, build/docs/index.html; broken links and names are errors
	@mkdir -p build # with --quiet, mkdocs does not count warnings as errors
	@env NO_MKDOCS_2_WARNING=1 $(VENV_PYTHON) -W ignore -m mkdocs build --strict --config-file .ci/site/mkdocs.yml \
		> build/docs.log 2>&1 || { cat build/docs.log; exit 1; }
	@echo "build/docs/index.html"

generate: venv ## write the generated files anew: the catalogue, types of arguments, tables of the pages
	@$(VENV_PYTHON) -m tools.generate

simulate: venv ## a deployment under faults, in virtual time; SEEDS=0:10000 selects, SEEDS=7 ARGS=--trace shows one
	@env OMP_NUM_THREADS=1 $(VENV_PYTHON) -m tests.network_simulation --seeds $(or $(SEEDS),0:300) $(ARGS)

format: venv ## ruff: format the code
	@$(VENV_PYTHON) -m ruff check --fix --quiet $(CODE) ; $(VENV_PYTHON) -m ruff format $(CODE)

bench: ## list the benchmarks and their commands
	@for file in $(sort $(wildcard benchmarks/*.py)); do printf '  %-44s %s\n' "$(VENV_PYTHON) $$file" "$$(sed -n '1s/^"""\([^"]*\).*/\1/p' $$file)"; done

fuzz: venv ## coverage-guided fuzzing (tests/fuzz); ARGS="--runs 1000000 messages records" selects targets
	@$(VENV_PYTHON) -c "import atheris" 2>/dev/null || $(VENV_PYTHON) -m pip install -q -c constraints.txt atheris
	@$(VENV_PYTHON) -m tests.fuzz $(ARGS)

clean: ## remove .venv, caches and build leftovers (runs/ stays)
	@rm -rf .venv fuzzing build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
