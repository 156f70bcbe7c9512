# The single door: everything a person or a CI machine does here is a target.
# Needs only GNU make and Python >= 3.11; the rest is installed into .venv.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Leave empty to take the first of these that is new enough and can make a venv.
PYTHON ?=
CANDIDATES := python3 python3.13 python3.12 python3.11
# Extra arguments for pytest or the benchmarks: make test ARGS="-k lease -x"
ARGS ?=
# make lock UPGRADE=1 moves the pins; without it only what must change changes.
UPGRADE ?=

VENV := .venv
PY := $(VENV)/bin/python
UV := $(PY) -m uv
export UV_PYTHON_DOWNLOADS := never
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of processes are started here, many of them by tests: compiled code is kept for the next.
unexport PYTHONDONTWRITEBYTECODE

# Every file that is installed must have a hash that the lock knows, whichever index served it.
VERIFIED := --require-hashes
# Pins make a cached install complete or impossible, so the cache is asked first
# and the network only when something is missing.
# $(call install,what[,into another environment's Python])
INSTALL_ARGS = --quiet --python $(or $(2),$(PY)) --build-constraints requirements/build.txt
define install
$(UV) pip install --offline $(INSTALL_ARGS) $(1) 2>/dev/null \
	|| $(UV) pip install $(INSTALL_ARGS) $(1)
endef

READY := $(VENV)/.ready
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
SPARK := $(VENV)/.spark
BENCH := $(VENV)/.bench
# Other people's programs that tests and benchmarks run, each in an environment of its own, .venv-<name>: most
# of them pin a botocore that cannot live beside aioboto3.
LOCALSTACK := .venv-localstack/.ready
MOTO := .venv-moto/.ready
SERVICEBUS_PEER := .venv-servicebus-peer/.ready
SUPPLY_CHAIN := .venv-supply-chain/.ready
SQS_CLIENTS := .venv-awscli/.ready .venv-awscli-query/.ready .venv-sqs-clients/.ready

# The same tests with other versions: of every SDK the oldest that pyproject.toml allows, and the
# newest Python there is.
MINIMUM := .venv-minimum/.ready
NEWEST := .venv-newest/.ready
NEWEST_CANDIDATES := python3.15 python3.14 python3.13 python3.12
# What pyenv has installed and not put on the path, newest first.
PYENV_CANDIDATES = $(shell ls -d "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/*/bin/python3 2>/dev/null | sort -rV)
EXTRAS := crypto ledger local nats otel postgres pydantic sqlalchemy rabbitmq reload report s3 servicebus sqs uvloop

.PHONY: help demo demo-spark test test-brokers test-spark test-slow test-kills test-minimum test-newest conformance \
	check fmt \
	bench figures lock sbom audit clean

help:
	@echo 'Pumphouse: a message pump for Python.'
	@echo
	@echo 'Start here'
	@echo '  make demo          run an app on the embedded queue: handle, retry, reject, summary'
	@echo '  make demo-spark    orders from SQS through Spark to a table and a report; installs PySpark'
	@echo '  make test          the tests, in random order, on two cores'
	@echo
	@echo 'While you work'
	@echo '  make check         ruff (lint and format) and mypy --strict'
	@echo '  make fmt           format, and fix what ruff can fix'
	@echo '  make test ARGS="-k lease -x"   a part of the tests'
	@echo
	@echo 'Now and then'
	@echo '  make test-brokers  the tests against real servers on loopback; installs them where it may'
	@echo '  make test-spark    the tests on Spark; installs PySpark, and a Java if there is none'
	@echo '  make test-slow     kill tests and soak runs: minutes'
	@echo '  make test-kills    2,000 kills of what an outbox consists of (PUMP_OUTBOX_KILLS=10000)'
	@echo '  make conformance   write docs/conformance.md from what the test runs have written down'
	@echo '  make test-minimum  core, gateways and contract with the oldest SDKs that are allowed'
	@echo '  make test-newest   the same on the newest Python that is installed here'
	@echo '  make bench         benchmarks against other libraries, as ratios'
	@echo '  make figures       modules, lines, the path of a message: the size of the house'
	@echo '  make lock          recompile requirements/*.txt (UPGRADE=1 for newer versions)'
	@echo '  make sbom          write dist/sbom.cdx.json: what every extra installs, as CycloneDX'
	@echo '  make audit         look for known vulnerabilities in the pins; asks a service on the internet'
	@echo '  make clean         remove .venv*, caches and build output'
	@echo
	@echo 'The first target you run makes .venv and installs the pinned packages; later'
	@echo 'runs reuse it. Another interpreter: make clean && make test PYTHON=python3.12'

demo: $(RUNTIME)
	@$(PY) -m samples.demo $(ARGS)

demo-spark: $(SPARK)
	@$(PY) -m samples.spark_orders $(ARGS)

# What became of each requirement is written down, of whole runs: `make conformance` reads it.
RECORD = $(if $(ARGS),,--conformance=$(1))

test: $(DEV)
	$(PY) -m pytest -n auto --maxprocesses=2 $(call RECORD,test) $(ARGS)

conformance: $(DEV)
	$(PY) -m tests.conformance.page --recorded

# More workers than cores: these tests wait three quarters of their time, for a server's timers or
# its answers.
BROKERS := $(PY) -m pytest -m 'broker and not slow' --timeout=300
test-brokers: $(DEV) $(LOCALSTACK) $(MOTO) $(SERVICEBUS_PEER) $(SQS_CLIENTS)
	$(PY) tests/brokers/install_brokers.py
	$(BROKERS) -n 12 --dist worksteal --durations=12 $(call RECORD,brokers) $(ARGS)

# Two groups side by side (tests/spark/conftest.py): one session, and what starts a JVM of its own.
test-spark: $(SPARK) $(LOCALSTACK)
	$(PY) -m pytest tests/spark* tests/benchmarks -m spark -n 2 --dist loadgroup --timeout=300 \
		$(call RECORD,spark) $(ARGS)

# What waits or computes first, side by side; then, five at a time, what kills processes and lives in
# real time: it waits for two thirds of its own. A choice of tests (ARGS) may leave nothing to run in one
# of the two. A worker that is done takes from the others: a few of these tests are as long as a hundred.
SLOW := $(PY) -m pytest -m slow --timeout=900 --durations=12 --dist worksteal
SLOW_TOGETHER := tests/contract tests/fuzz tests/redrive tests/gateways/s3/simulation \
	tests/gateways/sqs/broker/test_twenty_thousand.py
OR_NONE = $(if $(ARGS),|| [ $$? -eq 5 ])
test-slow: $(DEV) $(LOCALSTACK) $(MOTO) $(SERVICEBUS_PEER)
	$(PY) tests/brokers/install_brokers.py
	$(SLOW) -n 6 $(call RECORD,slow-together) $(SLOW_TOGETHER) $(ARGS) $(OR_NONE)
	$(SLOW) -n 5 $(call RECORD,slow) $(SLOW_TOGETHER:%=--ignore=%) $(KILLS:%=--ignore=%) $(ARGS) $(OR_NONE)

# Thousands of kills: minutes for themselves, and not in CI.
KILLS := tests/kill/test_chaos_outbox.py
test-kills: $(DEV)
	$(PY) tests/brokers/install_brokers.py
	$(PY) -m pytest -m slow -n 2 -s $(KILLS) $(ARGS)

# What meets the SDKs. Some of it needs servers: NATS, `pump local`, RabbitMQ and PostgreSQL where
# they are installed, and the peer of Service Bus.
OTHER_VERSIONS := tests/core tests/loop tests/contract tests/gateways
OTHER_SERVERS := tests/contract/test_nats.py tests/contract/test_pump_local.py \
	tests/contract/test_postgres.py tests/contract/test_rabbitmq.py tests/contract/test_servicebus.py
define test_versions
$(1) -m pytest -n auto --maxprocesses=2 $(OTHER_VERSIONS) $(ARGS) $(OR_NONE)
$(1) -m pytest -m 'broker and not slow' --timeout=300 -n 4 --dist worksteal $(OTHER_SERVERS) $(ARGS) $(OR_NONE)
endef
test-minimum: $(MINIMUM) $(SERVICEBUS_PEER)
	$(call test_versions,.venv-minimum/bin/python)

test-newest: $(NEWEST) $(SERVICEBUS_PEER)
	$(call test_versions,.venv-newest/bin/python)

check: $(DEV)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

fmt: $(DEV)
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .

figures: $(DEV)
	@$(PY) -m tests.architecture.figures

bench: $(BENCH) $(SPARK) $(LOCALSTACK) $(MOTO)
	$(PY) tests/brokers/install_brokers.py
	$(PY) -m benchmarks $(ARGS)

# Runtime pins come from pyproject.toml alone; each further file builds on the one before.
LOCK = $(UV) pip compile --quiet --universal --python-version 3.11 --no-emit-index-url \
	--no-header --no-annotate --generate-hashes $(if $(UPGRADE),--upgrade)
lock: $(READY)
	cp requirements/uv.txt $(VENV)/uv.txt
	$(LOCK) requirements/uv.in -o requirements/uv.txt
	@if cmp -s requirements/uv.txt $(VENV)/uv.txt; then touch $(READY); fi
	$(LOCK) requirements/build.in -o requirements/build.txt
	$(LOCK) pyproject.toml -o requirements/runtime.txt
	$(LOCK) pyproject.toml $(EXTRAS:%=--extra %) requirements/dev.in \
		-c requirements/runtime.txt -c requirements/build.txt -o requirements/dev.txt
	$(LOCK) pyproject.toml --extra spark requirements/dev.txt -c requirements/dev.txt \
		-o requirements/spark.txt
	$(LOCK) requirements/dev.txt requirements/bench.in -c requirements/spark.txt \
		-o requirements/bench.txt
	$(LOCK) requirements/localstack.in -o requirements/localstack.txt
	$(LOCK) requirements/moto.in -o requirements/moto.txt
	$(LOCK) requirements/servicebus-peer.in -o requirements/servicebus-peer.txt
	$(LOCK) requirements/awscli.in -o requirements/awscli.txt
	$(LOCK) requirements/awscli-query.in -o requirements/awscli-query.txt
	$(LOCK) requirements/supply-chain.in -o requirements/supply-chain.txt
	$(LOCK) requirements/sqs-clients.in -c requirements/bench.txt \
		-o requirements/sqs-clients.txt

# What a user may install: the runtime and every extra, in the versions that are tested here.
SHIPPED := dist/requirements-shipped.txt
$(SHIPPED): pyproject.toml requirements/spark.txt $(READY)
	@mkdir -p dist
	$(LOCK) pyproject.toml --all-extras -c requirements/spark.txt -o $@

sbom: $(SHIPPED) $(SUPPLY_CHAIN)
	.venv-supply-chain/bin/cyclonedx-py requirements $(SHIPPED) --pyproject pyproject.toml \
		--mc-type library --output-reproducible --output-format JSON -o dist/sbom.cdx.json
	$(PY) -m tests.architecture.sbom dist/sbom.cdx.json

# Needs the network beyond the package index: the database of vulnerabilities is a service.
audit: $(SHIPPED) $(SUPPLY_CHAIN)
	.venv-supply-chain/bin/pip-audit --strict --require-hashes --disable-pip -r $(SHIPPED) $(ARGS)

clean:
	rm -rf $(VENV) $(VENV)-* build dist .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .coverage htmlcov
	find pump gateways handlers tests samples benchmarks -name __pycache__ -type d \
		-prune -exec rm -rf {} +

# --- installation: one stamp a layer, so that a second run does nothing ---

$(READY): requirements/uv.txt
	@set -e; chosen=; \
	for candidate in $(or $(PYTHON),$(CANDIDATES)); do \
		if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
			>/dev/null 2>&1; then chosen=$$candidate; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
		echo 'error: no Python >= 3.11 with the venv module found (tried: $(or $(PYTHON),$(CANDIDATES))).' >&2; \
		echo 'Install Python 3.11 or newer (on Debian and Ubuntu also python3-venv), or name one:' >&2; \
		echo '  make $(or $(MAKECMDGOALS),test) PYTHON=/path/to/python3' >&2; \
		exit 1; \
	fi; \
	echo "installing into $(VENV) with $$("$$chosen" --version)"; \
	"$$chosen" -m venv --clear $(VENV); \
	$(PY) -m pip install --quiet --require-hashes -r requirements/uv.txt
	@touch $@

$(RUNTIME): $(READY) requirements/runtime.txt requirements/build.txt pyproject.toml
	@$(call install,$(VERIFIED) -r requirements/runtime.txt)
	@$(call install,--no-deps --editable .)
	@touch $@

$(DEV): $(RUNTIME) requirements/dev.txt
	@$(call install,$(VERIFIED) -r requirements/dev.txt)
	@touch $@

# Half a gigabyte, of which the tests without Spark need nothing.
$(SPARK): $(DEV) requirements/spark.txt
	@$(call install,$(VERIFIED) -r requirements/spark.txt)
	@touch $@

$(BENCH): $(DEV) requirements/bench.txt
	@$(call install,$(VERIFIED) -r requirements/bench.txt)
	@touch $@

$(MINIMUM): pyproject.toml requirements/dev.in requirements/build.txt $(READY)
	@$(PY) -m venv --clear --without-pip .venv-minimum
	@grep '^[a-z].*[<=]' requirements/dev.in > .venv-minimum/constraints.txt
	@$(UV) pip compile --quiet --resolution lowest-direct --no-emit-index-url --no-header \
		--no-annotate pyproject.toml $(EXTRAS:%=--extra %) \
		-c .venv-minimum/constraints.txt -o .venv-minimum/requirements.txt
	@$(call install,-r .venv-minimum/requirements.txt,.venv-minimum/bin/python)
	@$(call install,-r requirements/dev.in -c .venv-minimum/requirements.txt,.venv-minimum/bin/python)
	@$(call install,--no-deps --editable .,.venv-minimum/bin/python)
	@touch $@

$(NEWEST): requirements/dev.txt requirements/build.txt $(READY)
	@set -e; chosen=; \
	for candidate in $(or $(PYTHON),$(NEWEST_CANDIDATES) $(PYENV_CANDIDATES)); do \
		if "$$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' \
			>/dev/null 2>&1; then chosen=$$candidate; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
		echo 'error: no newer Python found (tried: $(or $(PYTHON),$(NEWEST_CANDIDATES))).' >&2; \
		echo 'Name one: make test-newest PYTHON=/path/to/python3' >&2; \
		exit 1; \
	fi; \
	echo "installing into .venv-newest with $$("$$chosen" --version)"; \
	"$$chosen" -m venv --clear --without-pip .venv-newest
	@$(call install,$(VERIFIED) -r requirements/dev.txt,.venv-newest/bin/python)
	@$(call install,--no-deps --editable .,.venv-newest/bin/python)
	@touch $@

.venv-%/.ready: requirements/%.txt requirements/build.txt $(READY)
	@$(PY) -m venv --clear --without-pip .venv-$*
	@$(call install,$(VERIFIED) -r requirements/$*.txt,.venv-$*/bin/python)
	@touch $@
