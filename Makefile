# Everything a developer does here. Each target sets up what it needs in .venv; a second call finds it done.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:

CANDIDATES := python3.14 python3.13 python3.12 python3.11 python3 python
SUITABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in $(CANDIDATES); do \
	"$$python" -c '$(SUITABLE)' 2>/dev/null && { echo "$$python"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SETUP := $(VENV)/.package-installed
COLLECTED := $(VENV)/.tests-collected
LOCKS := requirements/build.txt requirements/dev.txt
DOCS := $(VENV)/.docs-installed
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header
IMAGE_EXTRAS := --extra cluster --extra console --extra registry --extra security
SPARK_VERSIONS := 4.0 4.1 4.2 4.3
SPARK_ON_VERSIONS := $(addprefix tests/spark/,source/test_source.py source/test_streams.py source/test_taken_over.py \
	sink/test_faults.py jobs/test_export.py)
# One more than a small machine has cores: tests wait for sessions to end, for time-outs, for JVMs.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS)
PEERS := java or peer
ELSEWHERE := $(PEERS) or packages or long
FAST := not slow and not spark and not integration and not ($(ELSEWHERE))

# Tests start a hundred processes; without byte code each compiles all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo docs image test tests classes test-integration test-spark-versions test-peers test-packages test-long test-all check lint peers bench format lock java clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(SETUP) ## install oncelog and everything around it into .venv (.venv/bin/oncelog is the command)

demo: $(SETUP) java ## a year of flights: broker, replay, load into Parquet exactly once, reports and plots
	$(BIN)/python -m demo

docs: $(DOCS) ## the documentation as a site, in build/docs; warnings and broken links are errors
	$(BIN)/python -m codegen.site

image: $(SETUP) ## the container image, in build/image, from Debian packages and the wheel; needs apt and dpkg
	$(BIN)/python -m codegen.image $(foreach architecture,$(ARCHITECTURES),--architecture $(architecture)) \
		$(if $(SOURCES),--sources $(SOURCES)) $(if $(REVISION),--revision $(REVISION))

test: $(SETUP) java ## lint, types, contracts and the tests, but for those that start whole systems
	@$(MAKE) --no-print-directory -j 2 lint tests

tests: classes $(COLLECTED)
	$(PYTEST) -rs -m 'not integration and not ($(ELSEWHERE))'

classes: # of Spark, for the JVMs of tests: made once for them all
	$(BIN)/python -m tests.spark.jvms

# In a new clone each worker would compile all tests for itself; what is wrong with one is for the run to say.
$(COLLECTED): $(SETUP)
	$(BIN)/python -m pytest -q --collect-only > /dev/null 2>&1 || true
	@touch $@

test-integration: $(SETUP) $(DOCS) java classes $(COLLECTED) ## the tests with a browser, Spark Connect, object stores; processes that are killed
	$(PYTEST) -rs -m 'integration and not ($(ELSEWHERE))'

# Each version has its session, its broker and its wheel; a driver that changes the version under its checkpoint is killed.
test-spark-versions: $(SETUP) java ## a part of Spark's tests on the oldest and the newest PySpark, each from PyPI, with this wheel
	$(BIN)/python -m tests.spark.versions oldest newest --wheel --at-once -- -q -rs -m 'not ($(PEERS))' \
		$(SPARK_ON_VERSIONS)
	$(BIN)/python -m tests.spark.versions.restarts --versions oldest,newest --lives 2 --modes 2pc --triggers available-now

ON_OLDER_KAFKA := $(addprefix tests/interop/,admin cli client consistency/test_late_commits.py test_java_tools.py)

# The reference first, then brokers, tools and Java clients of the release before it (tests/peers/jars.py).
test-peers: peers java ## the tests beside Apache Kafka and clients from Maven, Go and npm; what is not to be had is left out
	$(PYTEST) --dist loadscope -m '$(PEERS)'
	ONCELOG_KAFKA_VERSION=4.3.1 $(PYTEST) --dist loadscope -m java $(ON_OLDER_KAFKA)

test-packages: $(SETUP) ## the wheel in empty environments: each extra, each Python, the lowest dependencies; the image
	$(BIN)/python -m pytest -q -rs -n 0 tests/packages

test-long: $(SETUP) java classes ## drills and explorations of minutes
	$(PYTEST) -rs -m 'long and not ($(PEERS))'

test-all: test test-integration test-peers test-packages test-long ## all five

check: lint ## lint, types, contracts and the fast tests
	$(PYTEST) -m '$(FAST)'

lint: $(SETUP) ## formatting, ruff, mypy --strict, names in tests, import contracts, sizes, circles, knots, docstrings, single places, words
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --strict --no-error-summary
	$(BIN)/mypy --config-file tests/checks/names.ini --no-error-summary
	$(BIN)/lint-imports --config .importlinter > $(VENV)/.contracts 2>&1 || { cat $(VENV)/.contracts; exit 1; }
	$(BIN)/python -m tests.checks.sizes
	$(BIN)/python -m tests.checks.knots
	$(BIN)/python -m tests.checks.docstrings
	$(BIN)/python -m tests.checks.single_places
	$(BIN)/python -m tests.checks.words
	$(BIN)/python -m tests.checks.messages

peers: $(SETUP) ## fetch and build, once, what test-peers and bench need
	$(BIN)/python -m tests.peers.fetch

bench: peers java ## oncelog and Apache Kafka in turn with the same clients, as ratios (python -m bench --help)
	$(BIN)/python -m bench all

format: $(SETUP) ## rewrite the code as ruff wants it, and the rooms in docs from their docstrings
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m tests.checks.rooms

lock: $(SETUP) ## resolve the dependencies anew into requirements/*.txt, with hashes
	$(COMPILE) --upgrade --extra dev --constraint requirements/constraints.txt \
		--output-file requirements/dev.txt pyproject.toml
	$(COMPILE) --upgrade --constraint requirements/dev.txt \
		--output-file requirements/build.txt requirements/build.in
	$(COMPILE) --upgrade --constraint requirements/dev.txt --constraint requirements/build.txt \
		--output-file requirements/docs.txt requirements/docs.in
	$(COMPILE) --upgrade $(IMAGE_EXTRAS) --constraint requirements/dev.txt \
		--output-file requirements/image.txt pyproject.toml
	for version in $(SPARK_VERSIONS); do echo "pyspark==$$version.*" | $(COMPILE) --upgrade \
		--output-file requirements/spark-$$version.txt - > /dev/null || exit 1; done

clean: ## remove .venv and everything made here
	rm -rf $(VENV) .work build .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse demo-out

java:
	@major=$$({ "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 || true; } \
		| sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	test "$${major:-0}" -ge 17 || { \
		echo "oncelog: Spark needs Java 17 or later: install it (Debian: apt install openjdk-17-jre-headless," \
			"macOS: brew install openjdk@17) or set JAVA_HOME" >&2; exit 1; }

$(BIN)/python:
	@"$(or $(PYTHON),false)" -c '$(SUITABLE)' 2>/dev/null || { \
		echo "oncelog: Python 3.11 or later with venv is needed: install it (Debian: apt install python3 python3-venv," \
			"macOS: brew install python) or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.locks-installed: $(LOCKS) | $(BIN)/python
	$(PIP) install --require-hashes --requirement requirements/build.txt
	$(PIP) install --require-hashes --no-build-isolation --requirement requirements/dev.txt
	@touch $@

$(DOCS): requirements/docs.txt $(SETUP)
	$(PIP) install --require-hashes --requirement requirements/docs.txt
	@touch $@

$(SETUP): pyproject.toml $(VENV)/.locks-installed
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@
