# `make demo` and `make test` are all that a newcomer needs: each makes .venv and installs into it on first use.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What builds the documentation; no other target needs it
DOCS_STAMP := $(VENV)/.installed-docs
# Set PYTHON to choose another interpreter, ARGS to pass arguments on: make test ARGS="-k humanoid -x"
PYTHON ?=
ARGS ?=
# Test processes; each takes up to five gigabytes, or a quarter of the memory
JOBS ?= 2
MINUTES ?= 10
# Each process gets a run of files, for tests of a file share programs; one that is done takes over half of what is left.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --max-worker-restart 0

.DEFAULT_GOAL := help
.PHONY: help demo test test-all fuzz smoke bench docs lint clean

help:
	@echo "make demo       simulate a robot and write a replay that opens in a browser"
	@echo "make test       run the tests (test-all: the slow ones too)"
	@echo "make fuzz       look for wrong derivatives and raw errors at random, for MINUTES=10"
	@echo "make smoke      build a wheel and try it in an environment of its own"
	@echo "make bench      time Ukemi against MuJoCo"
	@echo "make docs       build the documentation into out/site"
	@echo "make lint       ruff and pyright"
	@echo "make clean      remove .venv and outputs"

$(STAMP): pyproject.toml
	@set -e; \
	if [ ! -x $(BIN)/python ]; then \
	  for candidate in $(PYTHON) python3.12 python3.13 python3.11 python3.14 python3; do \
	    if $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	      python=$$candidate; break; \
	    fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "Ukemi needs Python 3.11 or newer with its venv module; none was found on PATH." >&2; \
	    echo "Install one (Debian, Ubuntu: apt install python3 python3-venv) or name it: make PYTHON=/path/to/python" >&2; \
	    exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$($$python --version)"; \
	  $$python -m venv $(VENV); \
	fi; \
	echo "Installing Ukemi and its development tools into $(VENV) (a few minutes, once)"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' || { \
	  echo "Installation failed: see pip's message above. A network connection is needed this first time." >&2; \
	  exit 1; \
	}; \
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/ukemi simulate humanoid --seconds 5 --out out/demo.npz --replay out/demo.html $(ARGS)

test: $(STAMP)
	$(PYTEST) -m "not slow and not optimized" $(ARGS)
	UKEMI_TEST_OPTIMIZED=1 $(PYTEST) -m "not slow and optimized" $(ARGS)

test-all: $(STAMP)
	$(PYTEST) -m "not optimized" $(ARGS)
	UKEMI_TEST_OPTIMIZED=1 $(PYTEST) -m optimized $(ARGS)

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(ARGS)

# A wheel in an environment that has nothing else: what ships is complete, and needs no more than it says.
smoke: $(STAMP)
	rm -rf build/smoke
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/smoke .
	$(BIN)/python -m venv build/smoke/venv
	build/smoke/venv/bin/python -m pip install --quiet --disable-pip-version-check build/smoke/ukemi-*.whl
	cd build/smoke && UKEMI_CACHE=off venv/bin/ukemi simulate pendulum --seconds 0.1 --replay pendulum.html
	cd build/smoke && UKEMI_CACHE=off venv/bin/python -c "import ukemi as uk; m = uk.load('hopper'); \
	  print(uk.linearize(m, uk.initial_state(m)).A.shape, uk.__file__)"

bench: $(STAMP)
	$(BIN)/python bench/run.py $(ARGS)

$(DOCS_STAMP): $(STAMP)
	@echo "Installing what builds the documentation into $(VENV)"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]' || { \
	  echo "Installation failed: see pip's message above. A network connection is needed this first time." >&2; \
	  exit 1; \
	}; \
	touch $(DOCS_STAMP)

# Broken links, pages that no menu lists and names that are not found are errors.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	@echo "Open out/site/index.html"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/pyright

clean:
	rm -rf $(VENV) out build dist
