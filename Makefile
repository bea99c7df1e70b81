# Every target sets up .venv first (scripts/setup_env.py), which takes no time once that is done.
# PYTHON chooses the interpreter, SETUP_FLAGS the options of scripts/setup_env.py.
PYTHON ?= python3
SETUP_FLAGS ?=
FUZZ_FLAGS ?=
COUNTS_FLAGS ?=
MUTANTS_FLAGS ?=
VENV_PYTHON := .venv/bin/python
# One worker per core, where pytest-xdist could be installed; a worker takes about 1.5 GB.
MAX_WORKERS = 4
WORKERS = $$($(VENV_PYTHON) -c "import xdist" 2> /dev/null && \
	echo --numprocesses logical --maxprocesses $(MAX_WORKERS) --dist worksteal)
PYTEST = $(VENV_PYTHON) -m pytest $(WORKERS)
SETUP := $(PYTHON) scripts/setup_env.py $(SETUP_FLAGS)

# Threads that wait for each other sleep: spinning, they are up to twenty times slower beside another busy program.
export OMP_WAIT_POLICY ?= PASSIVE

# Pages with generated blocks (scripts/pages/blocks.py); copies of them, in docs/studies, are the site's.
PAGES = $(shell grep -rl --include='*.md' '\[\[\[cog' examples)
# The checkers of Gymnasium and PettingZoo, and markets of known answers on each engine; none needs more than the core.
LOWEST_TESTS = tests/test_single_env.py tests/test_parallel_env.py tests/test_own_environment.py tests/test_known_answers.py
COG = $(VENV_PYTHON) -m cogapp -I . --verbosity=1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-all test-gpu kernels sanitize fuzz mutants counts wheel lowest lint pages notebooks docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo:  ## train a market maker for 3 minutes, on the GPU if there is one, and print how it compares
	@$(SETUP) demo
	$(VENV_PYTHON) examples/ppo_market_maker.py --time-limit-minutes 3

test:  ## run the test suite but for its slowest part; tests that need a GPU are skipped where there is none
	@$(SETUP) test
	$(PYTEST) -m "not slow" tests

test-all:  ## run all of the test suite, with more random examples, as CI does
	@$(SETUP) test-all
	KINETICSIM_THOROUGH=1 $(PYTEST) tests

test-gpu: MAX_WORKERS = 11  # for each of the two builders
test-gpu:  ## run the GPU tests and write docs/gpu_report.json; fails without a GPU
	@$(SETUP) test-gpu
	KINETICSIM_THOROUGH=2 $(VENV_PYTHON) -m scripts.gpu_report -- $(WORKERS)

kernels:  ## compile every variant of the kernels for every architecture, with nvcc and with NVRTC; needs no GPU
	@$(SETUP) test-all
	$(PYTEST) tests/test_kernel_build.py tests/test_cuda_baselines.py

sanitize:  ## watch every kernel variant and hostile calls with compute-sanitizer (memcheck and racecheck) on a GPU
	@$(SETUP) test-gpu
	compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 $(VENV_PYTHON) -m scripts.sanitizer
	compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 $(VENV_PYTHON) -m pytest -q -m gpu tests/test_hostile_gpu.py
	compute-sanitizer --tool racecheck --error-exitcode 1 $(VENV_PYTHON) -m scripts.sanitizer

fuzz:  ## throw 110,000 hostile cases at the package under sanitizers, about an hour (FUZZ_FLAGS: see docs/robustness.md)
	@$(SETUP) test
	$(VENV_PYTHON) -m scripts.fuzz $(FUZZ_FLAGS)

mutants:  ## run the tests of 150 drawn mutants, about an hour (MUTANTS_FLAGS=--again: those on record only)
	@$(SETUP) mutants
	test -e .coverage || nice $(PYTEST) -m "not slow" --cov=kineticsim_env --cov-context=test --cov-report= \
		-o junit_duration_report=total --junitxml=junit.xml tests
	$(VENV_PYTHON) -m scripts.mutants $(MUTANTS_FLAGS)

counts:  ## compare the instructions of the C++ engine and of the kernel with those on record (COUNTS_FLAGS=--write: record)
	@$(SETUP) counts
	$(VENV_PYTHON) -m scripts.benchmarks.instruction_counts $(COUNTS_FLAGS)

wheel:  ## build the wheel and the sdist in dist, check and install each in an empty environment, and run a market there
	rm -rf build dist
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet -c constraints.txt build twine ziglang
	build/tools/bin/python -m scripts.prebuilt --output build/prebuilt
	KINETICSIM_PREBUILT=build/prebuilt build/tools/bin/python -m build --wheel --outdir dist .
	build/tools/bin/python -m build --sdist --outdir dist .
	build/tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet -c constraints.txt dist/*.whl
	cd build && if [ "$$(uname)" = Linux ]; then export CXX=none; fi && \
		wheel/bin/kineticsim simulate --engine cpu --markets 4 --auctions 100
	build/wheel/bin/python -m pip install --quiet --no-deps --force-reinstall dist/*.tar.gz
	cd build && wheel/bin/kineticsim simulate --markets 4 --auctions 100

lowest:  ## install the lower bounds of pyproject.toml on Python 3.11, apart, and run the checkers and all engines there
	rm -rf build/lowest
	$(PYTHON) -m venv build/lowest
	$(PYTHON) -m scripts.lower_bounds > build/lowest/requirements.txt
	build/lowest/bin/python -m pip install --quiet -r build/lowest/requirements.txt
	build/lowest/bin/python -m pytest -m "not slow" $(LOWEST_TESTS)

lint:  ## check style (ruff), format (ruff), types (ty), and whether the pages' blocks are those of their results
	@$(SETUP) lint
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m ty check
	$(COG) --check --diff $(PAGES)

pages:  ## fill the generated blocks of the studies' pages from the committed results
	@$(SETUP) lint
	$(COG) -r $(PAGES)

notebooks:  ## run the tutorials, and write them to notebooks with what they print and draw, about a minute
	@$(SETUP) notebooks
	$(VENV_PYTHON) -m scripts.pages.notebooks

docs:  ## build the site into docs/_build/html; its tutorials run, and a warning is an error
	@$(SETUP) docs
	$(VENV_PYTHON) -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

clean:  ## remove .venv and what tools left here; results of training runs stay
	rm -rf .venv build dist docs/_build docs/gallery docs/studies *.egg-info .pytest_cache .hypothesis .ruff_cache
	rm -f .coverage junit.xml
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
