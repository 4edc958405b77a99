# One command for each thing. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BUILD := build
JOBS ?= $(shell nproc)
PYTHON := /usr/bin/python3
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 600
SOAK_SECONDS ?= 1800
SCRIPTS ?= 1000000
PYTEST := $(PYTHON) -B -m pytest -p no:cacheprovider

PROGRAMS := sandbox sandbox-supervisor sandbox-gateway sandbox-recorder sandbox-files sandbox-launcher sandbox-sentry

.PHONY: help setup build all demo test unit integration acceptance acceptance-list long soak clients bench lint format fuzz differential asan install clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: ## install every package this needs (apt; with sudo when not root)
	@tools/setup

$(BUILD)/build.ninja:
	@cmake --preset release >/dev/null

build: setup $(BUILD)/build.ninja ## programs in build/bin
	@cmake --build $(BUILD) -j $(JOBS) --target $(PROGRAMS)

all: setup $(BUILD)/build.ninja ## programs, tests and benchmarks
	@cmake --build $(BUILD) -j $(JOBS)

demo: build ## set everything up and watch the main job
	@tools/demo

test: all ## set everything up and run all tests: unit, integration, acceptance on real VMs
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(JOBS)

unit: all ## unit tests and fuzz seed corpora only
	@ctest --test-dir $(BUILD) --output-on-failure -L unit -j $(JOBS)

integration: all ## processes against real peers, without VMs
	@ctest --test-dir $(BUILD) --output-on-failure -L integration

acceptance: all ## the contract's rows on real VMs
	@ctest --test-dir $(BUILD) --output-on-failure -L acceptance

long: all ## the integration tests that take minutes of real time
	@SANDBOX_LONG_TESTS=1 SANDBOX_BIN=$(CURDIR)/$(BUILD)/bin tests/integration/run_in_namespace tests/integration/gateway -k idle_minutes

acceptance-list: ## a line for each case: ROW name
	@$(PYTHON) tests/acceptance/list_cases.py

clients: all ## try every client in a sandbox; writes docs/clients.md
	@$(PYTHON) -B tests/clients/make_table.py

soak: all ## half an hour of rough traffic through the gateway; nothing may be left of it
	@SOAK_SECONDS=$(SOAK_SECONDS) SANDBOX_BIN=$(CURDIR)/$(BUILD)/bin tests/integration/run_in_namespace -s tests/integration/gateway/test_soak.py

bench: all ## figures beside peers; a table, and build/bench/*.json
	@$(PYTHON) -B bench/run.py --build $(BUILD)

lint: all ## clang-format and clang-tidy, no changes made
	@tools/lint

format: ## clang-format in place
	@git ls-files 'src/*.h' 'src/*.cc' 'tests/*.h' 'tests/*.cc' 'bench/*.cc' | xargs clang-format -i

fuzz: setup differential ## make differential, then each fuzz target for FUZZ_SECONDS (600)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/fuzz

differential: all ## SCRIPTS (1000000) random segment scripts to our TCP and the kernel's; SEED repeats a run
	@$(BUILD)/bin/tcp_differential --scripts $(SCRIPTS) $(if $(SEED),--seed $(SEED)) || [ $$? -eq 77 ]

asan: setup ## unit and TAP tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@cmake --preset asan >/dev/null
	@cmake --build build-asan -j $(JOBS)
	@ctest --test-dir build-asan --output-on-failure -L 'unit|integration' -E 'machine|image'

install: $(BUILD)/build.ninja ## into PREFIX (/usr/local)
	@cmake --build $(BUILD) -j $(JOBS) --target $(PROGRAMS)
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove what builds made
	@rm -rf build build-dev build-asan build-fuzz
