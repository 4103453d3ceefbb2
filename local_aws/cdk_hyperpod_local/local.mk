# The local AWS: the real CDK CLI against a simulated account on this machine. Included by the Makefile.

LOCAL_PORT ?= 4566
LOCAL_SPEED ?= 200
# In a clone, engines and their installation are kept in the clone.
export LOCAL_AWS_HOME := $(CURDIR)/.local-aws
LOCAL := LOCAL_AWS_BY_MAKE=yes .venv/bin/cdk-hyperpod local
LOCAL_ENGINE := local_aws/cdk_hyperpod_local/engine

# These tests deploy to the local AWS.
test test-lives test-slurm: .local-aws/ready

.local-aws/ready: node_modules/ready $(LOCAL_ENGINE)/python/requirements.lock $(wildcard local_aws/cdk_hyperpod_local/upstream/*.patch) $(LOCAL_ENGINE)/node/package-lock.json
	@$(LOCAL) setup
	@touch $@

.PHONY: local-aws-setup deploy-local plan-local diff-local drift-local destroy-local reset-local stop-local shell-local
local-aws-setup: .local-aws/ready #: Download what the local AWS needs into .local-aws/

deploy-local: .local-aws/ready ## Deploy CONFIG to a simulated AWS on this machine (LOCAL_PORT, LOCAL_SPEED)
	@$(LOCAL) deploy --config="$(CONFIG)" --port="$(LOCAL_PORT)" --speed="$(LOCAL_SPEED)"

diff-local: .local-aws/ready ## Show what a deployment of CONFIG would change and delete on the local AWS
	@$(LOCAL) diff --config="$(CONFIG)" --port="$(LOCAL_PORT)" --speed="$(LOCAL_SPEED)"

plan-local: .local-aws/ready ## Show which nodes a deployment of CONFIG would delete on the local AWS
	@$(LOCAL) plan --config="$(CONFIG)" --port="$(LOCAL_PORT)" || test $$? -eq 2

drift-local: .local-aws/ready ## Show changes on the local AWS that were made without CloudFormation
	@$(LOCAL) drift --config="$(CONFIG)" --port="$(LOCAL_PORT)"

destroy-local: .local-aws/ready ## Delete everything on the local AWS, and end it
	@$(LOCAL) destroy --port="$(LOCAL_PORT)" --speed="$(LOCAL_SPEED)"

reset-local: .local-aws/ready ## Delete the local AWS with its state, also if destroy-local failed (asks first, unless RESET_FLAGS=--yes)
	@$(LOCAL) reset --port="$(LOCAL_PORT)" $(RESET_FLAGS)

stop-local: .local-aws/ready ## End the process of the local AWS and keep its state
	@$(LOCAL) stop --port="$(LOCAL_PORT)"

shell-local: .local-aws/ready ## Open a shell in which aws, boto3, kubectl and helm use the local AWS
	@$(LOCAL) shell --port="$(LOCAL_PORT)"

.PHONY: lock-local
lock-local: .tools/ready .venv/ready #: Resolve the engine's packages again
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 --no-emit-package networkx --no-emit-package sympy --no-emit-package mpmath $(LOCAL_ENGINE)/python/requirements.in -o $(LOCAL_ENGINE)/python/requirements.lock
	cd $(LOCAL_ENGINE)/node && npm install --package-lock-only --omit-lockfile-registry-resolved --loglevel=error --no-audit --no-fund
