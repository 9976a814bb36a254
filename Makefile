PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What the examples need, and what tests, checks and benchmarks need besides.
LIGHT := $(VENV)/.light
FULL := $(VENV)/.full

.PHONY: demo test quick pythons lint bench soak gpu-test array-api clean

$(LIGHT): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[train]'
	touch $@

$(FULL): $(LIGHT)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[test,bench,plot]'
	touch $@

demo: $(LIGHT)  ## solve an inverse problem, fit a curve, teach a diffusion model a word; draws pictures
	$(BIN)/python examples/inverse_heat.py inverse_heat.png
	$(BIN)/python examples/curve_fit.py curve_fit.png
	rm -rf flux_lora
	$(BIN)/python examples/flux_lora.py flux_lora

test: lint  ## all tests, on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Some tests of every folder: rows, random programs and graphs, what compiled programs are built on.
QUICK := $(addprefix tests/, amp/test_autocast.py arrays/test_at.py arrays/test_assignment.py \
  backend/numpy/test_numpy_kernels.py core graph io/test_io_directory.py io/test_io_round_trip.py \
  nn/test_compiled.py nn/test_module.py ops/test_structural.py optim/test_state.py \
  optim/test_optimizer.py optimize/test_bridge.py train/test_trainer_resume.py \
  train/test_trainer_step.py) \
  $(addprefix tests/transform/, custom/test_custom.py $(addprefix modes/test_, backward.py \
    functional.py random_batches.py) $(addprefix jacobian/test_, planned_programs.py random_jacobians.py)) \
  $(addprefix tests/compiler/, test_jit.py test_jit_programs.py test_jit_rows.py test_jit_training.py \
    test_loops.py test_seam.py builder cache/test_stored.py cpu/test_random_kernels.py \
    cpu/test_runtime.py dynamic emit/test_rows.py explain frontend fusion/test_random_graphs.py passes)

quick: $(FULL)  ## some tests of every folder, in about a minute
	$(BIN)/python -m pytest $(QUICK) --one-in 30 -n 2 --dist worksteal

# Those of 3.11 to 3.14 that are there, each in an environment of its own with what is needed.
VENVS := .
PYENV := $(shell ls $(HOME)/.pyenv/versions 2> /dev/null | paste -sd:)
PYTHONS := $(foreach v,3.11 3.12 3.13 3.14,$(if $(shell PYENV_VERSION=$(PYENV) python$(v) -c 'print(1)' 2> /dev/null),$(v)))

pythons: $(PYTHONS:%=python-%)  ## the quick tests by every Python that there is, without other libraries

python-%: $(VENVS)/.venv-%/.light
	$(VENVS)/.venv-$*/bin/python -m pytest $(QUICK) --one-in 30 --light

.SECONDARY: $(PYTHONS:%=$(VENVS)/.venv-%/.light)
$(VENVS)/.venv-%/.light: pyproject.toml
	PYENV_VERSION=$(PYENV) python$* -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade pip
	$(@D)/bin/python -m pip install --quiet --editable . pytest
	touch $@

lint: $(FULL)
	$(BIN)/ruff check src tests examples bench tools
	$(BIN)/ruff format --check src tests examples bench tools
	$(BIN)/python tools/blocks.py build/blocks
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/mypy

bench: $(FULL)  ## the scoreboard beside the peers (bench/RESULTS.md), then operations, Jacobians, steps
	$(BIN)/python -m bench.scoreboard
	$(BIN)/python bench/eager.py
	$(BIN)/python bench/overheads.py
	$(BIN)/python bench/profiler.py
	$(BIN)/python bench/interrupts.py
	$(BIN)/python bench/jacobian.py
	$(BIN)/python bench/optim.py
	$(BIN)/python bench/cnn.py
	$(BIN)/python bench/gpt.py
	$(BIN)/python -m bench.memory_budget
	$(BIN)/python bench/kernels.py
	$(BIN)/python bench/linear.py
	for what in mlp gpt overlap compression; do PYTHONPATH=.:bench $(BIN)/python bench/dist.py $$what; done
	PYTHONPATH=. $(BIN)/python bench/dist_simulate.py

SOAKS := tests/test_fuzz.py tests/test_growth.py tests/io tests/train tests/dist tests/diffusion/data tests/diffusion/training \
  tests/examples/test_flux_lora.py tests/arrays/test_every_function.py \
  tests/arrays/views/test_view_writes.py tests/compiler tests/transform/modes/test_masked_compositions.py \
  tests/transform/jacobian/test_random_jacobians.py tests/table/test_layouts.py tests/nn/test_layouts.py \
  tests/optim/test_layouts.py tests/optim/test_paths.py

soak: $(FULL)  ## twenty thousand random programs beside PyTorch, as many compiled; two hundred kills of each writer
	WEFT_SOAK=1 $(BIN)/python -m pytest $(SOAKS) -n 2 --dist worksteal

# By the Python at hand, since PyTorch with CUDA is the machine's; nothing is installed.
gpu-test:  ## everything that needs a GPU, and one summary line; GPU_TEST holds options
	$(PYTHON) tools/gpu_test.py $(GPU_TEST)

array-api: $(FULL)  ## the public conformance suite; ARRAY_API_TESTS is its checkout
	$(BIN)/python -m pip install --quiet pytest-json-report 'ndindex>=1.8' 'hypothesis>=6.151'
	cd $(ARRAY_API_TESTS) && ARRAY_API_TESTS_MODULE=weft ARRAY_API_TESTS_VERSION=2025.12 \
	  $(CURDIR)/$(BIN)/python -m pytest array_api_tests -p no:cacheprovider -n 2 \
	  --skips-file $(CURDIR)/tests/array_api_skips.txt --disable-deadline -rs

clean:
	rm -rf $(VENV) .venv-* build .pytest_cache .ruff_cache
