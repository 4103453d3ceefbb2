# Every command of the project. `make help` prints them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
CONFIG ?= cluster.yaml
PROFILE ?=
CDK_FLAGS ?=
PLAN_FLAGS ?=
PYTEST_FLAGS ?=

# One profile for every command that asks AWS: a plan of one account says nothing of a deployment to another.
ifneq (,$(findstring --profile,$(CDK_FLAGS) $(PLAN_FLAGS)))
$(error Name the profile as PROFILE=NAME, not in CDK_FLAGS or PLAN_FLAGS: then plan, cdk and why have the same one)
endif
PROFILE_FLAG = $(if $(PROFILE),--profile "$(PROFILE)")
CDK_OPTIONS = -c config="$(CONFIG)" $(PROFILE_FLAG) $(CDK_FLAGS)

export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/node_modules/.bin:$(PATH)
# The CLI's usage reports and version notices need the network and slow every command down.
export CDK_DISABLE_CLI_TELEMETRY := true
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION := true
export npm_config_update_notifier := false
# Python compiles what is imported, once: all packages at once would be most of the set-up's time.
unexport PYTHONDONTWRITEBYTECODE

# Two hashes: for your cluster. Hash and colon: for work on this project.
LISTED = grep -hE '^[a-z-]+:.*$(1) ' $(MAKEFILE_LIST) | awk -F ':.*$(1) ' '{printf "  make %-20s %s\n", $$1, $$2}'

.PHONY: help
help: ## Show this list
	@echo "Your cluster:"; $(call LISTED,##)
	@echo; echo "This project:"; $(call LISTED,#:)

## -- set-up: uv, the locked Python packages, Node 24 and the CDK CLI, all inside this folder ------------------------

# On a terminal, pip, uv and npm show how far they are.
QUIETLY := $(shell test -t 2 || echo --quiet)
UNFETCHED := { echo "The set-up could not fetch what it needs. It needs the network, this once: try again when it is there."; exit 1; }

.tools/ready: requirements/uv.lock
	@echo "· uv, into .tools/"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; $(PYTHON) is $$($(PYTHON) --version). Name another: make PYTHON=python3.11 …"; exit 1; }
	@$(PYTHON) -m venv .tools
	@.tools/bin/python -m pip install $(QUIETLY) --require-hashes -r requirements/uv.lock || $(UNFETCHED)
	@touch $@

.venv/ready: .tools/ready requirements/dev.lock pyproject.toml
	@echo "· the locked Python packages and Node 24, into .venv/"
	@.tools/bin/uv venv --quiet --allow-existing --python $(PYTHON) .venv
	@.tools/bin/uv pip sync $(QUIETLY) --require-hashes requirements/dev.lock || $(UNFETCHED)
	@.tools/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

node_modules/ready: .venv/ready package-lock.json
	@echo "· the CDK CLI, into node_modules/"
	@npm ci --loglevel=error --no-audit --no-fund >/dev/null || $(UNFETCHED)
	@ln -sf ../../tools/cdk .venv/bin/cdk   # `source .venv/bin/activate` brings it, as it brings cdk-hyperpod
	@touch $@

.PHONY: setup
setup: .venv/ready node_modules/ready ## Download everything that these commands need into this folder

.PHONY: lock
lock: .tools/ready #: Resolve the Python packages again (only what has to change moves)
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 --group dev pyproject.toml -o requirements/dev.lock
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 pyproject.toml -c requirements/dev.lock -o examples/ci/requirements.lock
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 requirements/audit.in -o requirements/audit.lock
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 requirements/mutants.in -o requirements/mutants.lock

## -- the main job ----------------------------------------------------------------------------------------------------

.PHONY: synth
synth: setup ## Synthesize CONFIG (default: cluster.yaml) to cdk.out
	@cdk synth --quiet $(CDK_OPTIONS)
	@cdk-hyperpod check --config "$(CONFIG)" | sed -e '/^note: /d' -e '/^warning: /d'   # which CDK has just said
	@echo "The templates are in cdk.out. Next: make diff, make deploy (an AWS account), make help."

# Exit code 2 says that nodes or groups would go, which is no error of these two.
PLAN = cdk-hyperpod plan --config "$(CONFIG)" $(PROFILE_FLAG) $(PLAN_FLAGS)

# The CDK CLI speaks of an account that it cannot resolve, and not of what to do.
CREDENTIALS = cdk-hyperpod credentials $(PROFILE_FLAG) >/dev/null

.PHONY: plan diff deploy destroy
plan: setup ## Show what a deployment of CONFIG would take away: nodes, groups, and why (PROFILE=NAME)
	@$(PLAN) || test $$? -eq 2
diff: setup ## Show what a deployment of CONFIG would change, and what it would take away (PROFILE=NAME)
	@$(CREDENTIALS)
	@cdk diff $(CDK_OPTIONS)
	@$(PLAN) || test $$? -eq 2
deploy: setup ## Deploy CONFIG with your credentials (PROFILE=NAME); asks if nodes would go, unless PLAN_FLAGS=--yes
	@$(PLAN) --confirm
	@began=$$(date +%s); cdk deploy --all $(CDK_OPTIONS) || \
	  { code=$$?; echo; cdk-hyperpod why --config "$(CONFIG)" $(PROFILE_FLAG) --since "$$began"; exit $$code; } >&2
destroy: setup ## Delete the stacks of CONFIG; what it retains stays, and is listed
	@$(CREDENTIALS)
	@cdk destroy --all $(CDK_OPTIONS)
	@cdk-hyperpod retained --config "$(CONFIG)" $(PROFILE_FLAG)

include local_aws/cdk_hyperpod_local/local.mk

## -- checks ----------------------------------------------------------------------------------------------------------

# A file stays with one worker, which keeps what its tests stand on; tests/conftest.py says which file is begun first.
PYTEST = python -m pytest --numprocesses=auto --dist=loadfile --no-loadscope-reorder
# tests/conftest.py leaves these out where they are not named.
# Whole lives of clusters, deployed, with the engine that they are deployed to; and an app outside, with an environment of
# its own.
LIVES := tests/deployments tests/unit/local_aws/engine
# What is tried on a real Kubernetes API server: test-kubernetes builds one.
ON_KUBERNETES := tests/real/kubernetes tests/real/drainer
# What cdk-nag and cfn-lint find in every template: a part of the audit.
RULE_PACKS := tests/project/test_rule_packs.py

.PHONY: test
test: setup .kubernetes/ready #: Run every test except those of test-lives, test-kubernetes and test-slurm (7 minutes on two cores)
	@$(PYTEST) $(PYTEST_FLAGS)

.PHONY: test-fast
test-fast: setup .kubernetes/ready #: Run the tests that need no CDK CLI, no wheel and no 2,000 lifetimes (4 minutes on two cores)
	@$(PYTEST) -m "not slow" $(PYTEST_FLAGS)

.PHONY: test-lives
test-lives: setup #: Run whole lives of clusters, from first deployment to destruction (11 minutes on two cores)
	@$(PYTEST) $(PYTEST_FLAGS) $(LIVES)

.PHONY: lint
lint: setup #: Style, shell scripts, templates
	@ruff check && ruff format --check
	@shellcheck -x lifecycle/*.sh lifecycle/*/*.sh .ci/run tools/cdk && shfmt -d lifecycle .ci/run tools/cdk
	@cdk synth --quiet -c config="$(CONFIG)" --output .lint.out && cfn-lint .lint.out/*.template.json && rm -r .lint.out

.PHONY: types
types: setup #: mypy, strict; the lifecycle scripts by themselves
	@mypy
	@MYPYPATH=lifecycle:constructs/cdk_hyperpod/_lambda/hyperpod/common mypy --strict lifecycle/*.py lifecycle/agent lifecycle/steps/*.py

.audit/ready: .tools/ready requirements/audit.lock
	@echo "· the tools of the audit, into .audit/"
	@.tools/bin/uv venv --quiet --allow-existing --python $(PYTHON) .audit/venv
	@.tools/bin/uv pip sync --quiet --compile-bytecode --require-hashes --python .audit/venv/bin/python requirements/audit.lock || $(UNFETCHED)
	@# checkov brings a detect-secrets of its own in the same folder; whichever came last would look.
	@.tools/bin/uv pip install --quiet --no-deps --require-hashes --reinstall-package=detect-secrets --python .audit/venv/bin/python --requirements requirements/audit.lock || $(UNFETCHED)
	@touch $@

.PHONY: audit
audit: setup .audit/ready #: cdk-nag and cfn-lint over every template; bandit, zizmor, detect-secrets, checkov
	@$(PYTEST) $(PYTEST_FLAGS) $(RULE_PACKS)
	@python tools/audit.py

.PHONY: fuzz
CASES ?= 10000
fuzz: setup #: Give CASES files that nobody should write to the loader (SEED for others)
	@PYTHONPATH=tests python -m simulations.fuzz --cases="$(CASES)" --seed="$(or $(SEED),0)"

.PHONY: check
check: lint types test test-kubernetes test-lives wheel audit #: Everything that CI checks

.PHONY: bench
bench: setup #: Measure synthesis, the function's cold start and its planner as ratios, in one run
	@python tools/bench/synth.py
	@python tools/bench/calls.py
	@python tools/bench/cold_start.py
	@python tools/bench/planner.py
	@python tools/bench/overview.py
	@python tools/bench/nodes.py

.PHONY: wheel
wheel: setup #: Build the wheel into dist/
	@rm -rf dist && hatchling build -t wheel

.PHONY: docs
docs: setup #: Regenerate what is made from the code: schema, references, bootstrap policies, what commands print
	@python tools/make_docs.py
	@python tools/make_bootstrap_policy.py
	@GOLDEN=write python -m pytest -q tests/unit/cli/test_pictures.py tests/unit/cli/test_sizes.py

.PHONY: golden
golden: setup #: Regenerate the golden templates; read the diff before you commit it
	@GOLDEN=write python -m pytest -q tests/goldens/test_golden.py tests/goldens/test_kubernetes.py

.PHONY: format
format: setup #: Format the code
	@ruff check --fix-only --quiet; ruff format --quiet; shfmt -w lifecycle .ci/run tools/cdk

.PHONY: clean
clean: ## Remove everything that these commands made
	@rm -rf .venv .tools node_modules cdk.out dist .local-aws .kubernetes .elastic .audit .mutants .mypy_cache .pytest_cache .ruff_cache .hypothesis

## -- what has set-up of its own ---------------------------------------------------------------------------------------

include tests/simulations/lifetimes/lifetimes.mk
include tests/simulations/mutants/mutants.mk
include tests/real/kubernetes/kubernetes.mk
include tests/real/slurm/slurm.mk
include examples/elastic_training/elastic.mk
