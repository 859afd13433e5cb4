# From a fresh machine: `make demo` and `make test`, nothing else to do. `make help` lists the rest.
#
# PYTHON              the interpreter that .venv is made from (3.11 or later)
# SHARDMIX_BUILD_C    unset: build the C extension if that works; yes: fail when it does not; no: leave it out
# PYTEST_ARGS         e.g. `make test PYTEST_ARGS="-x -k resume"`
# SECONDS             of `make fuzz`
# SIZE, BENCH_ARGS    of `make bench`: scales its corpora (1 is about 2 GB); e.g. BENCH_ARGS="--corpora small,ctr"

PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist worksteal
BIN := .venv/bin
READY := .venv/.ready
SECONDS ?= 600
SIZE ?= 1
BENCH_BIN := .venv-bench/bin
BENCH_READY := .venv-bench/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test check docs dist bench fuzz sanitize clean
help:
	@echo "make demo      train on a label-sorted corpus, with a plain DataLoader and with shardmix"
	@echo "make test      the whole suite, once with each backend"
	@echo "make check     lint, types, layering"
	@echo "make docs      the site, in build/docs/"
	@echo "make dist      the sdist and a wheel, in dist/"
	@echo "make bench     beside tf.data, tfrecord, webdataset and DALI, in an environment of its own (SIZE=0.1: a tenth)"
	@echo "make fuzz      the C core under libFuzzer and the sanitizers, for SECONDS=600; needs clang"
	@echo "make sanitize  the tests of the C core under AddressSanitizer and UndefinedBehaviorSanitizer; needs gcc"
	@echo "make clean     remove the environments and everything built"

$(READY): setup.cfg pyproject.toml constraints.txt $(wildcard setup.py shardmix/format/csrc/*)
	@echo "setting up .venv (the first time this downloads torch and takes some minutes)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt setuptools wheel
	$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/python examples/demo.py

# A forced "c" fails where the extension is missing; without a compiler and without SHARDMIX_BUILD_C=yes one backend is all there is.
test: $(READY)
	@set -eu; \
	live=$$($(BIN)/python -c "import shardmix; print(shardmix.backend)"); \
	if [ "$$live" = c ] || [ "$${SHARDMIX_BUILD_C:-}" = yes ]; then \
		echo "the suite with the Python backend, then with the C backend"; \
		SHARDMIX_BACKEND=python $(BIN)/python -m pytest $(PYTEST_ARGS) -m "not once"; \
		SHARDMIX_BACKEND=c $(BIN)/python -m pytest $(PYTEST_ARGS); \
	else \
		echo "no C extension was built: the suite with the Python backend only"; \
		SHARDMIX_BACKEND=python $(BIN)/python -m pytest $(PYTEST_ARGS); \
	fi

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet tests/test_layering.py

docs: $(READY)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

# Peers are installed one by one: one that cannot be is a line of the table, not a failure.
$(BENCH_READY): setup.cfg $(wildcard setup.py shardmix/format/csrc/*)
	@echo "setting up .venv-bench (the first time this downloads torch, tensorflow and more)"
	test -x $(BENCH_BIN)/python || $(PYTHON) -m venv .venv-bench
	$(BENCH_BIN)/pip install --quiet --constraint constraints.txt setuptools wheel
	$(BENCH_BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[plot]"
	for peer in tfrecord webdataset tensorflow-cpu nvidia-dali-cuda120; do \
		$(BENCH_BIN)/pip install --quiet "$$peer" || echo "$$peer cannot be installed here; the table will say so"; \
	done
	touch $(BENCH_READY)

bench: $(BENCH_READY)
	$(BENCH_BIN)/python benchmarks/bench.py --size $(SIZE) $(BENCH_ARGS)

fuzz: $(READY)
	PYTHON=$(BIN)/python sh fuzz/run.sh $(SECONDS)

sanitize: $(READY)
	PYTHON=$(BIN)/python sh tests/sanitize.sh

clean:
	rm -rf .venv .venv-bench build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find shardmix -name "*.so" -delete
