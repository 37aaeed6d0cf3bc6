# Two commands for a fresh machine with Python, pip and make: `make report` and `make test`.

PYTHON ?= python3
VENV   ?= .venv
REPORT ?= build/report.html
RECORDS ?= build/records
DOCS    ?= build/docs
JOBS   ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))
# Tests wait for the processes that they start; one worker more than there are cores keeps the cores busy meanwhile.
TESTERS ?= $(shell echo $$(($(JOBS) + 1)))

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Where the interpreter already has a torch that sees a GPU, that torch and its triton are the ones to test: the
# environment then looks through to them. Elsewhere a CPU build of torch is enough (2.13.0 is the version tested).
HAS_GPU_TORCH := $(shell $(PYTHON) -c "import torch, triton; print(int(torch.cuda.is_available()))" 2>/dev/null)
ifeq ($(HAS_GPU_TORCH),1)
VENV_FLAGS := --system-site-packages
TORCH ?=
TARGETS ?=
BACKENDS ?= auto
else
VENV_FLAGS :=
TORCH ?= torch==2.13.0
# The report's targets without a GPU: one a generation. `make report TARGETS=` runs all that the installed Triton serves.
TARGETS ?= sm_80 sm_90a sm_100a
# Its machine code too takes a third to a half more time, as measured once: `make report BACKENDS=auto`.
BACKENDS ?= emulator assembler
endif

.DEFAULT_GOAL := help
.PHONY: help report baseline test check lint types imports unit slow docs test-triton-3.6 tlx clean

help:
	@echo "make report   run every case; without a GPU on three targets (TARGETS= for all) and without machine code"
	@echo "              (BACKENDS=auto for all); write $(REPORT)"
	@echo "make baseline run every case on every target, and accept what it gives as baseline/ (look at git diff)"
	@echo "make test     all checks and tests"
	@echo "make docs     build the documentation in $(DOCS)"
	@echo "make slow     the slow tests, as the nightly run does"
	@echo "make tlx      set up the Triton build with TLX beside the other one (250 MB)"
	@echo "make clean    remove what these made"

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV_FLAGS) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(TORCH) -e ".[dev]"
	touch $@

report: $(STAMP)
	$(BIN)/python -m ptxdiff run $(TARGETS:%=--target=%) $(BACKENDS:%=--backend=%) --records $(RECORDS) --report $(REPORT) -- -n $(JOBS)

# What pull requests are compared with. All targets, nothing reused; a run with a failure is not accepted.
baseline: $(STAMP)
	$(BIN)/python -m ptxdiff run cases --backend emulator --backend assembler --fresh --records $(RECORDS)/baseline.jsonl -- -n $(JOBS)
	$(BIN)/python -m ptxdiff gate $(RECORDS)/baseline.jsonl --baseline baseline --accept --digests

# Tests wait now and then, so the checks run beside them. Their output comes last, where nobody misses it.
test: $(STAMP)
	@mkdir -p build
	@$(MAKE) --no-print-directory check >build/checks.txt 2>&1 & checks=$$!; failed=0; \
	$(MAKE) --no-print-directory unit || failed=1; \
	wait $$checks || failed=1; cat build/checks.txt; exit $$failed

check: lint types imports

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	MYPY_NUM_WORKERS=$(JOBS) $(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

# A worker begins with a stretch of neighbouring files, so that what a file's tests share is made once. Tests start a
# hundred Python processes: with bytecode kept, each is spared seconds of compiling our modules. The longest tests are
# listed, as this is what every change waits for.
unit: $(STAMP)
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(TESTERS) --dist worksteal --durations=40 tests

# What is too long for every change: whole tables of which `unit` takes samples, and long random campaigns. Hours.
slow: $(STAMP)
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m slow tests

# Warnings are errors: a link that leads nowhere is one.
docs: $(STAMP)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs $(DOCS)
	@echo $(DOCS)/index.html

# torch 2.11's CUDA builds pin triton 3.6, so that is the oldest one supported; its own environment, kept beside.
test-triton-3.6:
	$(MAKE) unit VENV=.venv-triton-3.6 TORCH="$(TORCH) triton==3.6.0"

# The Triton build that variants with compiler="tlx" are compiled by: fbtriton takes the place of triton, so it has an
# environment of its own. Case files are loaded there too, and need torch and numpy.
TLX := .venv-tlx
tlx: $(TLX)/.installed

$(TLX)/.installed:
	test -x $(TLX)/bin/python || $(PYTHON) -m venv $(TLX)
	$(TLX)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy fbtriton==3.7.4
	$(TLX)/bin/python -c "import triton.language.extra.tlx"
	touch $@

clean:
	rm -rf .venv .venv-triton-3.6 $(TLX) build
