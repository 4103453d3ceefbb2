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
LANE ?=
CHANGED ?=

# One profile for all commands that call AWS: a plan for one account is not valid for another.
ifneq (,$(findstring --profile,$(CDK_FLAGS) $(PLAN_FLAGS)))
$(error CDK_FLAGS or PLAN_FLAGS contains --profile. Use PROFILE=NAME instead, so that plan, cdk and why use the same profile)
endif
PROFILE_FLAG = $(if $(PROFILE),--profile "$(PROFILE)")
CDK_OPTIONS = -c config="$(CONFIG)" $(PROFILE_FLAG) $(CDK_FLAGS)

export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/node_modules/.bin:$(PATH)
# The CLI's usage reports and version notices use the network and slow every command down.
export CDK_DISABLE_CLI_TELEMETRY := true
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION := true
export npm_config_update_notifier := false
# Python compiles a module at its first import. Compiling all packages would take most of the set-up's time.
unexport PYTHONDONTWRITEBYTECODE

# "##" marks targets for your cluster, "#:" targets for work on this project.
LISTED = grep -hE '^[a-z-]+:.*$(1) ' $(MAKEFILE_LIST) | awk -F ':.*$(1) ' '{printf "  make %-20s %s\n", $$1, $$2}'

.PHONY: help
help: ## Show this list
	@echo "Your cluster:"; $(call LISTED,##)
	@echo; echo "This project:"; $(call LISTED,#:)

## -- set-up: uv, the locked Python packages, Node 24 and the CDK CLI, all inside this folder ------------------------

# On a terminal, pip, uv and npm show their progress.
QUIETLY := $(shell test -t 2 || echo --quiet)
UNFETCHED := { echo "The set-up could not download what it needs. Check the network, and run the command again."; exit 1; }

.tools/ready: requirements/uv.lock
	@echo "· uv, into .tools/"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$($(PYTHON) --version), and Python 3.11 or later is required. Choose another: make PYTHON=python3.11 …"; exit 1; }
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
	@ln -sf ../../tools/cdk .venv/bin/cdk   # so that `source .venv/bin/activate` puts cdk on the PATH, beside cdk-hyperpod
	@touch $@

.PHONY: setup
setup: .venv/ready node_modules/ready ## Download everything that these commands need into this folder

.PHONY: lock
lock: .tools/ready #: Resolve the Python packages again, with as few changes as possible
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 --group dev pyproject.toml -o requirements/dev.lock
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 pyproject.toml -c requirements/dev.lock -o requirements/library.lock
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 requirements/audit.in -o requirements/audit.lock
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 requirements/mutants.in -o requirements/mutants.lock

## -- your cluster ---------------------------------------------------------------------------------------------------

.PHONY: synth
synth: setup ## Synthesize CONFIG (default: cluster.yaml) to cdk.out
	@cdk synth --quiet $(CDK_OPTIONS)
	@cdk-hyperpod check --config "$(CONFIG)" | sed -e '/^note: /d' -e '/^warning: /d'   # CDK has just printed these
	@echo "The templates are in cdk.out. Next: make diff, make deploy (an AWS account), make help."

# Exit code 2 means that nodes or groups would be deleted. For `plan` and `diff`, this is not a failure.
PLAN = cdk-hyperpod plan --config "$(CONFIG)" $(PROFILE_FLAG) $(PLAN_FLAGS)

# Without credentials, the CDK CLI reports an account that it cannot resolve, and not what to do.
CREDENTIALS = cdk-hyperpod credentials $(PROFILE_FLAG) >/dev/null

.PHONY: plan diff deploy destroy
plan: setup ## Show which nodes and groups a deployment of CONFIG would delete, and why (PROFILE=NAME)
	@$(PLAN) || test $$? -eq 2
diff: setup ## Show what a deployment of CONFIG would change and delete (PROFILE=NAME)
	@$(CREDENTIALS)
	@cdk diff $(CDK_OPTIONS)
	@$(PLAN) || test $$? -eq 2
deploy: setup ## Deploy CONFIG (PROFILE=NAME); asks before it deletes nodes, unless PLAN_FLAGS=--yes
	@$(PLAN) --confirm
	@began=$$(date +%s); cdk deploy --all $(CDK_OPTIONS) || \
	  { code=$$?; echo; cdk-hyperpod why --config "$(CONFIG)" $(PROFILE_FLAG) --since "$$began"; exit $$code; } >&2
destroy: setup ## Delete the stacks of CONFIG, and list the resources that they retain
	@$(CREDENTIALS)
	@cdk destroy --all $(CDK_OPTIONS)
	@cdk-hyperpod retained --config "$(CONFIG)" $(PROFILE_FLAG)

include local_aws/cdk_hyperpod_local/local.mk

## -- checks ----------------------------------------------------------------------------------------------------------

# A new worker would begin with the test that ended the last one.
PYTEST_WORKERS = python -m pytest --max-worker-restart=0
# All tests of a file run in one worker, which keeps their fixtures. tests/conftest.py orders the files.
PYTEST = $(PYTEST_WORKERS) --numprocesses=auto --dist=loadfile --no-loadscope-reorder
# Tests that deploy, or wait for Slurm, take longer than others.
LONGER = -o faulthandler_timeout=1200
# For tests that wait for clocks and polls half of their time: each core has work for two workers.
WAITING_PYTEST = $(PYTEST) --numprocesses=$$((2 * $$(getconf _NPROCESSORS_ONLN))) $(LONGER)
# The following folders run only if they are named (APART in tools/lanes.py).
# Deployments to the local AWS over the whole life of a cluster, the tests of that engine, and an app with its own environment.
LIVES := tests/deployments tests/unit/local_aws/engine
# Tests on a real Kubernetes API server, which test-kubernetes builds.
ON_KUBERNETES := tests/real/kubernetes tests/real/drainer
# cdk-nag and cfn-lint over every template: a part of the audit.
RULE_PACKS := tests/project/test_rule_packs.py

# For targets that take one core each. What a target prints stays together, and comes when it has ended.
TWO_AT_ONCE = $(MAKE) --no-print-directory --jobs=2 --output-sync=target

.PHONY: test
test: setup .kubernetes/ready #: Run the tests for each change (5 minutes on two cores), or a part: LANE=cli, CHANGED=origin/main; with CI=true all except test-lives, test-kubernetes and test-slurm
ifeq (,$(LANE)$(CHANGED))
	@$(PYTEST) $(PYTEST_FLAGS)
else
	@chosen=$$(python tools/lanes.py "$(LANE)" "$(CHANGED)"); test -z "$$chosen" || $(PYTEST) $(if $(CHANGED),-m "not ci") $(PYTEST_FLAGS) $$chosen
endif

.PHONY: test-lives
test-lives: setup #: Deploy clusters to the local AWS, from creation to deletion (10 minutes on two cores)
	@$(WAITING_PYTEST) $(PYTEST_FLAGS) $(LIVES)

.PHONY: lint
lint: setup #: Check style, shell scripts and templates
	@ruff check && ruff format --check
	@shellcheck -x lifecycle/*.sh lifecycle/*/*.sh .ci/run tools/cdk && shfmt -d lifecycle .ci/run tools/cdk
	@cdk synth --quiet -c config="$(CONFIG)" --output .lint.out && cfn-lint .lint.out/*.template.json && rm -r .lint.out

.PHONY: types
types: setup #: Run mypy in strict mode, separately for the lifecycle scripts
	@mypy
	@MYPYPATH=lifecycle:constructs/cdk_hyperpod/_lambda/hyperpod/kernel mypy --strict lifecycle/*.py lifecycle/agent lifecycle/steps/*.py lifecycle/eks/*.py

.audit/ready: .tools/ready requirements/audit.lock
	@echo "· the tools of the audit, into .audit/"
	@.tools/bin/uv venv --quiet --allow-existing --python $(PYTHON) .audit/venv
	@.tools/bin/uv pip sync --quiet --compile-bytecode --require-hashes --python .audit/venv/bin/python requirements/audit.lock || $(UNFETCHED)
	@# checkov brings its own detect-secrets in the same folder; the one installed last would be used.
	@.tools/bin/uv pip install --quiet --no-deps --require-hashes --reinstall-package=detect-secrets --python .audit/venv/bin/python --requirements requirements/audit.lock || $(UNFETCHED)
	@touch $@

.PHONY: audit
audit: #: Run cdk-nag and cfn-lint over every template, and bandit, zizmor, actionlint, detect-secrets and checkov
	@+$(TWO_AT_ONCE) rule-packs scanners

.PHONY: rule-packs scanners
rule-packs: setup
	@python -m pytest $(PYTEST_FLAGS) $(RULE_PACKS)
scanners: setup .audit/ready
	@python tools/audit.py

.PHONY: fuzz
CASES ?= 10000
fuzz: setup #: Load CASES=10000 invalid cluster files (SEED selects others)
	@PYTHONPATH=tests python -m simulations.fuzz --cases="$(CASES)" --seed="$(or $(SEED),0)"

.PHONY: check
check: #: Run what CI checks, except test-elastic and test-slurm; with CI=true without leaving tests out
	@+$(TWO_AT_ONCE) check-static
	@$(MAKE) --no-print-directory test test-kubernetes test-lives

# The longest first. Each takes one core.
.PHONY: check-static
check-static: rule-packs types scanners lint wheel #: Check code and templates without a deployment, and build the wheel

.PHONY: bench
bench: setup #: Measure synthesis, the guard's cold start and planner, and `cdk-hyperpod nodes`
	@python tools/bench/synth.py
	@python tools/bench/cold_start.py
	@python tools/bench/planner.py
	@python tools/bench/nodes.py

.PHONY: wheel
wheel: setup #: Build the wheel into dist/
	@rm -rf dist && hatchling build -t wheel

.PHONY: docs
docs: setup #: Regenerate the files made from the code: schema, references, bootstrap policies, command output
	@python tools/make_docs.py
	@python tools/make_bootstrap_policy.py
	@GOLDEN=write python -m pytest -q tests/unit/cli/test_pictures.py tests/unit/cli/test_sizes.py

.PHONY: golden
golden: setup #: Regenerate the golden templates. Review the diff before you commit
	@GOLDEN=write python -m pytest -q tests/goldens/test_golden.py tests/goldens/test_kubernetes.py

.PHONY: format
format: setup #: Format the code
	@ruff check --fix-only --quiet; ruff format --quiet; shfmt -w lifecycle .ci/run tools/cdk

.PHONY: clean
clean: ## Remove everything that these commands created
	@rm -rf .venv .tools node_modules cdk.out dist .local-aws .kubernetes .elastic .audit .mutants .mypy_cache .pytest_cache .ruff_cache .hypothesis

## -- targets with their own set-up -------------------------------------------------------------------------------------

include tests/simulations/lifetimes/lifetimes.mk
include tests/simulations/mutants/mutants.mk
include tests/real/kubernetes/kubernetes.mk
include tests/real/slurm/slurm.mk
include examples/elastic_training/elastic.mk
