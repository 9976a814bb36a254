PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench soak array-api clean

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[test,bench,plot]'
	touch $@

demo: $(STAMP)  ## solve an inverse problem and fit a curve by gradients, and draw both
	$(BIN)/python examples/inverse_heat.py inverse_heat.png
	$(BIN)/python examples/curve_fit.py curve_fit.png

test: lint  ## all tests, on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check src tests examples bench tools
	$(BIN)/ruff format --check src tests examples bench tools
	$(BIN)/python tools/blocks.py build/blocks
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/mypy

bench: $(STAMP)  ## the scoreboard beside the peers (bench/RESULTS.md), then operations, Jacobians, steps
	$(BIN)/python -m bench.scoreboard
	$(BIN)/python bench/eager.py
	$(BIN)/python bench/overheads.py
	$(BIN)/python bench/interrupts.py
	$(BIN)/python bench/jacobian.py
	$(BIN)/python bench/optim.py
	$(BIN)/python bench/cnn.py
	$(BIN)/python bench/gpt.py
	$(BIN)/python bench/kernels.py
	$(BIN)/python bench/linear.py

SOAKS := tests/test_fuzz.py tests/test_growth.py tests/io tests/train tests/arrays/test_every_function.py \
  tests/arrays/views/test_view_writes.py $(addprefix tests/transform/test_, masked_compositions.py random_jacobians.py) \
  $(addprefix tests/compiler/, test_jit_programs.py cpu/test_interrupts.py dynamic/test_dynamic.py \
    emit/test_line_values.py emit/test_values.py frontend/test_changed_between_steps.py \
    frontend/test_stale.py fusion/test_random_graphs.py)

soak: $(STAMP)  ## twenty thousand random programs beside PyTorch, as many compiled; two hundred kills of each writer
	WEFT_SOAK=1 $(BIN)/python -m pytest $(SOAKS) -n 2 --dist worksteal

array-api: $(STAMP)  ## the public conformance suite; ARRAY_API_TESTS is its checkout
	$(BIN)/python -m pip install --quiet pytest-json-report 'ndindex>=1.8' 'hypothesis>=6.151'
	cd $(ARRAY_API_TESTS) && ARRAY_API_TESTS_MODULE=weft ARRAY_API_TESTS_VERSION=2025.12 \
	  $(CURDIR)/$(BIN)/python -m pytest array_api_tests -p no:cacheprovider -n 2 \
	  --skips-file $(CURDIR)/tests/array_api_skips.txt --disable-deadline -rs

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache
