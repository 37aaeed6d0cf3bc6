# Two commands for a fresh machine with Python, pip and make: `make report` and `make test`.

PYTHON ?= python3
VENV   ?= .venv
REPORT ?= build/report.html
RECORDS ?= build/records
JOBS   ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Where the interpreter already has a torch that sees a GPU, that torch and its triton are the ones to test: the
# environment then looks through to them. Elsewhere a CPU build of torch is enough (2.13.0 is the version tested).
HAS_GPU_TORCH := $(shell $(PYTHON) -c "import torch, triton; print(int(torch.cuda.is_available()))" 2>/dev/null)
ifeq ($(HAS_GPU_TORCH),1)
VENV_FLAGS := --system-site-packages
TORCH ?=
TARGETS ?=
else
VENV_FLAGS :=
TORCH ?= torch==2.13.0
# The report's targets without a GPU: one a generation. `make report TARGETS=` runs all that the installed Triton serves.
TARGETS ?= sm_80 sm_90a sm_100a
endif

.DEFAULT_GOAL := help
.PHONY: help report test check lint types imports unit test-triton-3.6 clean

help:
	@echo "make report   run every case, on three targets where there is no GPU (TARGETS= for all); write $(REPORT)"
	@echo "make test     all checks and tests"
	@echo "make clean    remove what these made"

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV_FLAGS) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) -e ".[dev]"
	touch $@

report: $(STAMP)
	$(BIN)/python -m harness.cli run $(TARGETS:%=--target=%) --output $(RECORDS) --report $(REPORT) -- -n $(JOBS)

test: check unit

check: lint types imports

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

# A worker begins with a stretch of neighbouring files, so that what a file's tests share is made once.
unit: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests

# torch 2.11's CUDA builds pin triton 3.6, so that is the oldest one supported; its own environment, kept beside.
test-triton-3.6:
	$(MAKE) unit VENV=.venv-triton-3.6 TORCH="$(TORCH) triton==3.6.0"

clean:
	rm -rf .venv .venv-triton-3.6 build
