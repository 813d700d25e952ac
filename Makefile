# make run    the demo on this machine; BACKENDS="http://host:8000 ..." stands in front of real engines instead
# make test   every test that needs neither a real engine nor minutes
# make help   the rest

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BACKENDS ?=
PORT ?= 8080
HOST ?= 127.0.0.1
BENCH ?=
SLO ?=
FAIRNESS ?=
CACHE ?=
SESSIONS ?=
FAULTS ?=
LOCK := -q --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header
COVERED := build/coverage
SOAK_SECONDS ?= 180
SOAK ?=
MUTATE ?=
MUTMUT := build/mutate/mutmut

.PHONY: help run test check format test-engine bench bench-slo bench-fairness bench-cache bench-sessions bench-faults bench-probes soak fuzz coverage mutate package lock clean

help:
	@echo "make run          demo on http://$(HOST):$(PORT); with BACKENDS=\"URL ...\" a gateway in front of these"
	@echo "make test         the test suite (under 5 minutes on 2 cores)"
	@echo "make check        format, ruff, mypy strict on source and tests, layer test"
	@echo "make format       rewrite the sources as the formatter wants them"
	@echo "make test-engine  against a real vLLM and a real SGLang, installed and started here (CPU, some 6 GB)"
	@echo "make bench        the benchmark table (BENCH=\"cpu --seconds 5 --rounds 3\" for a part)"
	@echo "make bench-slo    calls inside their target before, in and after a burst, 8 minutes (SLO=\"headrace haproxy\" for a part)"
	@echo "make bench-fairness  shares of tenants that compete, 90 seconds (FAIRNESS=\"weights\" for a part)"
	@echo "make bench-cache  whether requests go where their KV cache is, 9 minutes (CACHE=\"headrace --seconds 20\" for a part)"
	@echo "make bench-sessions  what sessions cost, and a Redis frozen under load, 80 seconds (SESSIONS=\"store\" for a part)"
	@echo "make bench-faults  what each fault of an engine costs, its time to be noticed and to recover (FAULTS=\"reset slow\" for a part)"
	@echo "make bench-probes  what probes and scrapes of 8 engines cost, 100 seconds"
	@echo "make soak         $(SOAK_SECONDS) s of mixed load and trouble of every kind, then slow clients (SOAK_SECONDS=14400 for hours)"
	@echo "make fuzz         two minutes of mutated bytes into every way in"
	@echo "make coverage     lines and branches reached: all of policies/ and routing/ by their own tests, 95 % of gateway/ by the suite (7 minutes)"
	@echo "make mutate       small changes of policies/ that their tests notice: 9 in 10, and why not the others, 15 minutes (MUTATE=--report: of the last run)"
	@echo "make package      the wheel, installed elsewhere, runs the demo"
	@echo "make lock         resolve deploy/locks/ anew"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Headrace needs Python 3.11 or newer; try: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: $(BIN)/python pyproject.toml deploy/locks/run.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r deploy/locks/run.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/develop.stamp: $(VENV)/run.stamp deploy/locks/develop.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r deploy/locks/develop.txt
	@touch $@

run: $(VENV)/run.stamp
	@$(BIN)/headrace $(if $(BACKENDS),serve --host $(HOST) --port $(PORT) $(foreach url,$(BACKENDS),--backend $(url)),demo --port $(PORT))

test: $(VENV)/develop.stamp
	$(BIN)/python -m pytest -q -n auto --dist loadfile -m "not engine"

check: $(VENV)/develop.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

format: $(VENV)/develop.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-engine: $(VENV)/develop.stamp
	$(BIN)/python -m pytest -q -m engine tests/engine

bench: $(VENV)/develop.stamp
	$(BIN)/python -m tests.bench $(BENCH)

bench-slo: $(VENV)/develop.stamp
	$(BIN)/python -m tests.bench.slo --with-overload $(SLO)

bench-fairness: $(VENV)/develop.stamp
	$(BIN)/python -m tests.bench.fairness $(FAIRNESS)

bench-cache: $(VENV)/develop.stamp
	$(BIN)/python -m tests.bench.cache $(CACHE)

bench-sessions: $(VENV)/develop.stamp
	$(BIN)/python -m tests.bench.sessions $(SESSIONS)

bench-faults: $(VENV)/develop.stamp
	$(BIN)/python -m tests.bench.faults $(FAULTS)

bench-probes: $(VENV)/develop.stamp
	$(BIN)/python -m tests.bench.probe_cost

soak: $(VENV)/develop.stamp
	$(BIN)/python -m tests.bench.soak --seconds $(SOAK_SECONDS) $(SOAK)

fuzz: $(VENV)/develop.stamp
	$(BIN)/python -m tests.fuzz --seconds 120

coverage: $(VENV)/develop.stamp
	@# Counted, Python takes several times as long: a test that is near its 60 seconds then is no hang.
	rm -rf $(COVERED) && mkdir -p $(COVERED)
	$(BIN)/python -m coverage run --data-file=$(COVERED)/core -m pytest -q --hypothesis-profile=repeatable tests/policies tests/routing
	$(BIN)/python -m coverage combine -q --data-file=$(COVERED)/core
	$(BIN)/python -m coverage report --data-file=$(COVERED)/core --include="policies/*,routing/*" --fail-under=100
	$(BIN)/python -m coverage run --data-file=$(COVERED)/suite -m pytest -q -n auto --dist loadfile -m "not engine" --timeout 300
	$(BIN)/python -m coverage combine -q --data-file=$(COVERED)/suite
	$(BIN)/python -m coverage json -q --data-file=$(COVERED)/suite --include="gateway/*" -o $(COVERED)/gateway.json
	$(BIN)/python -m tests.coverage_bars $(COVERED)/gateway.json

# One version, for a newer mutmut makes other mutants.
$(MUTMUT)/3.8.1.stamp: $(BIN)/python
	rm -rf $(MUTMUT)
	$(BIN)/python -m pip install -q --disable-pip-version-check --target $(MUTMUT) mutmut==3.8.1
	@touch $@

mutate: $(VENV)/develop.stamp $(MUTMUT)/3.8.1.stamp
	$(BIN)/python -m tests.mutation $(MUTATE)

package: $(VENV)/run.stamp
	rm -rf dist build/package
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist .
	$(PYTHON) -m venv build/package
	build/package/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r deploy/locks/run.txt
	build/package/bin/python -m pip install -q --disable-pip-version-check --no-deps dist/*.whl
	cd build && package/bin/headrace demo --seconds 8 --port 0

lock: $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml $(LOCK) -o deploy/locks/run.txt
	$(BIN)/uv pip compile pyproject.toml --extra test --extra check $(LOCK) -o deploy/locks/develop.txt


clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .engines .bench
