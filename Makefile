# ofa-triton. Every target is a thin call; `make help` lists them.
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3,$(shell $(p) -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] < (3,13))' 2>/dev/null && echo $(p))))
VENV := .venv
ORACLE := .venv-oracle
BIN := $(VENV)/bin
OFA := $(BIN)/ofa-triton
CHECKPOINT ?= demo/checkpoint
TARGET ?= cpu
PIP_FLAGS := --quiet --disable-pip-version-check --no-input
ONNX := build/out/onnx/manifest.json

.DEFAULT_GOAL := help
.PHONY: help setup setup-oracle demo test test-fast test-slow lint format export engines repository serve train-demo evaluate-demo clean

help: ## show this help
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo; echo "  CHECKPOINT=$(CHECKPOINT)  TARGET=$(TARGET)  (set on the command line: make export CHECKPOINT=DIR)"

setup: $(VENV)/.complete ## make .venv with everything the demo, the tests and the checks need
setup-oracle: $(ORACLE)/.complete ## make .venv-oracle with ModelScope's own code, the judge of the parity tests

$(VENV)/.complete: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed and none was found; name one: make setup PYTHON=/path/to/python3.11"; exit 1; }
	@echo "setting up $(VENV) (a few minutes)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/pip install $(PIP_FLAGS) -c constraints.txt -e '.[serve,export,dev]'
	@touch $@

$(ORACLE)/.complete: tests/parity/oracle/requirements.txt tests/parity/oracle/constraints.txt
	@echo "setting up $(ORACLE) (a few minutes)"
	@$(PYTHON) -m venv --clear $(ORACLE)
	@$(ORACLE)/bin/pip install $(PIP_FLAGS) -c tests/parity/oracle/constraints.txt -r tests/parity/oracle/requirements.txt
	@touch $@

demo: setup ## start the real server on this machine and ask it about real pictures
	@$(OFA) export demo/checkpoint && $(OFA) engines --target cpu && $(OFA) repository
	@$(BIN)/python -m demo

test: setup setup-oracle ## run all tests but the slow ones
	@$(BIN)/pytest -m 'not slow'

test-fast: setup ## run the tests that need neither server nor oracle
	@$(BIN)/pytest -m 'not slow and not parity and not server'

test-slow: setup setup-oracle ## run the tests at true model sizes
	@$(BIN)/pytest -m slow

lint: setup ## check style and types
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: setup ## format the code and sort imports
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

export: setup ## one ONNX file per stage from CHECKPOINT, compared with PyTorch
	@$(OFA) export $(CHECKPOINT)

engines: setup ## what runs on TARGET, from the exported stages
	@$(OFA) engines --target $(TARGET)

repository: setup ## a Triton model repository from the engines
	@$(OFA) repository --target $(TARGET)

serve: setup ## serve the repository with the embedded Triton
	@$(OFA) serve

train-demo: setup ## train demo/checkpoint again (under an hour on two cores)
	@$(BIN)/python -m demo.recipe.train --out demo/checkpoint

evaluate-demo: setup ## print the demo checkpoint's held-out figures again
	@$(BIN)/python -m demo.recipe.evaluate

clean: ## remove what was built; the environments stay
	@rm -rf build/out dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
