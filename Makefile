# The targets of a day's work; README.md says which two to type first, CONTRIBUTING.md what each is for.
#
# Everything compiled is built below build/ and lives in .venv: the source tree never holds a .so, so the same checkout
# is tested compiled (the installed wheel) and interpreted (PYTHONPATH=src).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The copy that pip builds from. It stays between builds, so mypy's cache and the generated C are there for the next one.
TREE := build/tree
# Number of processes that run one half of the tests in parallel (tests/support/side_by_side.py); 0: one, without workers.
SIDE_BY_SIDE ?= 0
# No half takes this long; one that hangs must end while its log can still be read.
PYTEST ?= timeout --foreground --signal=INT --kill-after=60 4700 $(BIN)/python -m pytest -n $(SIDE_BY_SIDE)
PYTEST_ARGS ?=

# Hundreds of processes import the same modules. What Python compiles of them stays in build/, even where the
# environment says that nothing is written: to compile them takes up to two seconds of a process.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache

# Lint, the demo and five parts of the tests run in parallel; each starts when its part of the set-up is done.
MAKEFLAGS += --jobs=7

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-cluster test test-pure test-compiled tidy simulate mutants serve bench bench-growth counts counts-accept pictures peers torture audit differential lint format lock build release docs clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(MAKEFILE_LIST) | awk -F': ' '{printf "make %-14s %s\n", $$1, $$2}'

setup: $(VENV)/installed $(VENV)/classes ## create .venv with warren compiled and every extra; cheap when nothing changed

$(VENV)/requirements: requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "warren needs Python 3.11 or newer; try make PYTHON=python3.11")'
	@echo "setup: installing the locked requirements into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@mkdir -p build
	@sed -n '/^uv==/,/# via/p' $< >build/uv.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r build/uv.lock
	@$(BIN)/uv pip install --quiet --no-config --system-certs --python $(BIN)/python --require-hashes -r $< || { \
		echo "setup: once more with pip, which may be configured for another index"; \
		$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r $<; }
	@touch $@

# What is built, in a file that changes only when that does: a module that went away, or WARREN_PURE, must trigger a
# build as well as a newer source.
build/sources: .FORCE
	@mkdir -p build
	@{ echo "WARREN_PURE=$$WARREN_PURE"; find src -name '*.py' | LC_ALL=C sort; } >$@.$$PPID; \
	cmp -s $@.$$PPID $@ && rm $@.$$PPID || mv $@.$$PPID $@
.PHONY: .FORCE

SOURCES := $(shell find src -name '*.py')

# The wheel that `make setup` installs is the one that `make build` hands out.
build/wheel: $(VENV)/requirements build/sources pyproject.toml setup.py README.md LICENSE $(SOURCES)
	@echo "setup: building warren (mypyc compiles the hot path; the first time takes a minute or two)"
	@mkdir -p $(TREE)
	@rm -rf $(TREE)/src $(TREE)/build/lib* $(TREE)/build/bdist* $@
	@cp -Rp src pyproject.toml setup.py README.md LICENSE $(TREE)/
	@$(BIN)/python -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps --no-index --verbose \
		-w $@ $(TREE) >build/setup.log 2>&1 || { cat build/setup.log; exit 1; }
	@grep -h '^ *warren: ' build/setup.log || true

$(VENV)/installed: build/wheel
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-index --force-reinstall build/wheel/*.whl
	@echo "setup: installed in $(VENV): $$(cd build && ../$(BIN)/warren --version)"
	@touch $@

# Spark starts in half the time with an archive of its classes (spark/local/class_archive.py). It is
# made beside the build, and a machine without Java has none.
$(VENV)/classes: $(VENV)/requirements
	@mkdir -p build
	@PYTHONPATH=src $(BIN)/python -m warrenmq.spark.local.class_training >build/classes.log 2>&1 || \
		echo "setup: no archive of Spark's classes: $$(tail -n 1 build/classes.log)"
	@touch $@

demo: setup ## the main job on real input, with a kill -9 in the middle
	@$(BIN)/python -m demo

demo-cluster: setup ## a mirrored queue on three nodes loses its master three times, judged and drawn
	@$(BIN)/python -m demo.cluster

# Five processes share the tests: the compiled half but for APART, JOBS and the management, the interpreted half, APART,
# JOBS, and the management. They wait more than they compute.
test: lint test-most test-interpreted test-apart test-jobs test-management ## everything that a change must pass

# What runs once: tests of code that is never compiled, tests that use or kill a node from outside, and tests that start
# whole clusters. tests/protocol shows that both builds do the same for a client; the tests of the simulator show, for
# both builds, that crashes lose nothing that was confirmed.
ONCE := admin/control admin/definitions admin/readers bench cli cluster demo differential examples hostile interop kill \
	management mutants packaging peers perf pipeline server simulator/checker simulator/test_planted_bugs.py spark \
	store/test_check.py store/test_lost_definitions.py store/test_salvage.py tables/rabbitmq tables/test_logs.py \
	tables/test_store.py testing tidy topology warrenctl
# Clusters, and Spark, which one process starts once.
APART := cluster simulator/checker spark
# Jobs, which share a Spark of their own, and tests that wait for processes of their own.
JOBS := bench cli demo packaging pipeline testing

# Prints its log when it is over, as what runs beside it prints, too.
define beside
	@mkdir -p build; { $(1); } >build/$@.log 2>&1; status=$$?; cat build/$@.log; exit $$status
endef

define compiled
	if [ -z "$$CI" ] && grep -q 'warren: interpreted build' build/setup.log; then \
		echo "$@: skipped, nothing is compiled here ($$(sed -n 's/.*interpreted build, //p' build/setup.log | head -n 1))"; \
	else $(PYTEST) --build=compiled $(1) $(PYTEST_ARGS); fi
endef

test-interpreted: $(VENV)/requirements
	$(call beside,$(MAKE) --no-print-directory test-pure)

test-most: setup
	@$(call compiled,$(APART:%=--ignore=tests/%) $(JOBS:%=--ignore=tests/%) --ignore=tests/management)

test-apart: setup
	$(call beside,$(call compiled,$(APART:%=tests/%)))

test-jobs: setup
	$(call beside,$(call compiled,$(JOBS:%=tests/%)))

test-management: setup
	$(call beside,$(call compiled,tests/management))
.PHONY: test-interpreted test-most test-apart test-jobs test-management

test-compiled: setup ## the tests against the compiled build in .venv
	@$(call compiled)

test-pure: $(VENV)/requirements ## those tests against the sources, interpreted, that a build can change
	@PYTHONPATH=src $(PYTEST) --build=interpreted -m "not spark" $(ONCE:%=--ignore=tests/%) $(PYTEST_ARGS)

SEEDS ?= 10000
simulate: setup ## SEEDS=n crash histories of a simulated node and disk, on all cores
	@$(BIN)/python -m simulator.simulate --seeds $(SEEDS) $(SIMULATE_ARGS)

SEED ?= 13
COUNT ?= 200
mutants: setup ## SEED=n COUNT=n faults put into the engine one by one: how many do the tests notice?
	@$(BIN)/python -m tests.mutants sample --seed $(SEED) --count $(COUNT) --jobs 2 --out build/mutants-$(SEED).jsonl

peers: setup ## tests of AMQP clients, whose checkouts are in PEERS=dir, against warren and RabbitMQ
	@$(BIN)/python -m tests.peers $(PEERS) $(PEERS_ARGS)

MINUTES ?= 60
torture: setup ## for MINUTES=n: kills, bad disks, frozen nodes, cut links, etcd, Spark, in mixed order
	@$(BIN)/python -m tests.torture --minutes $(MINUTES) $(TORTURE_ARGS)

audit: $(VENV)/requirements ## the locked requirements against the advisories of known vulnerabilities; needs the network
	@$(BIN)/pip-audit --require-hashes --disable-pip -r requirements/dev.lock $(AUDIT_ARGS)

SEQUENCES ?= 10000
differential: setup ## SEQUENCES=n random sequences of AMQP that must do the same on warren and on RabbitMQ
	@$(BIN)/python -m tests.differential --sequences $(SEQUENCES) $(DIFFERENTIAL_ARGS)

lint: $(VENV)/requirements ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@PYTHONPATH=src $(BIN)/lint-imports

tidy: $(VENV)/requirements ## list the largest files and classes; a reader judges whether they have one subject
	@$(BIN)/python tools/largest.py

format: setup ## let ruff rewrite what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

serve: setup ## a broker with its data in ./warren-data, and its HTTP API on 127.0.0.1:15672
	@$(BIN)/warren server

bench: setup ## warren against RabbitMQ (when installed) on this machine
	@$(BIN)/python -m bench $(BENCH_ARGS)

bench-growth: setup ## how the cost of operations grows with connections, queues, bindings, depth and the like
	@$(BIN)/python -m bench growth $(BENCH_ARGS)

counts: setup ## instructions of the engine for one message, compared with those that the repository keeps
	@$(BIN)/python -m bench counts $(COUNTS_ARGS)

counts-accept: setup ## WHY="..." keeps the instructions counted now, with the reason
	@$(BIN)/python -m bench counts --accept "$$WHY"

pictures: setup ## docs/pictures: drawings, and the web pages and a report of a cluster with traffic, in Chromium
	@$(BIN)/python -m tools.drawings
	@$(BIN)/python -m tests.management.ui.pictures $(PICTURES)

build: setup ## a wheel with the compiled modules, and the source distribution, in dist/
	@rm -rf dist
	@mkdir -p dist
	@cp build/wheel/*.whl dist/
	@$(BIN)/uv build --quiet --no-config --sdist --no-build-isolation --python $(BIN)/python -o dist $(TREE)
	@ls dist

PYTHONS ?= python3.11 python3.12 python3.13 python3.14
release: $(VENV)/requirements ## all files of a release in dist/, each driven; PYTHONS="python3.12 ..." of the wheels
	@PYTHONPATH=src $(BIN)/python -m tools.release $(PYTHONS)

docs: $(VENV)/requirements ## docs/map.md from the sources, drawings, then docs/ as a site in build/site
	@$(BIN)/python tools/generate_map.py
	@$(BIN)/python -m tools.drawings
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lock: $(VENV)/requirements ## resolve the requirements anew
	@$(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --upgrade \
		--extra dev --custom-compile-command "make lock" -o requirements/dev.lock pyproject.toml

clean: ## remove everything that the targets made
	rm -rf $(VENV) build dist bench-results .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
