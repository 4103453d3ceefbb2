# The local AWS: the real CDK CLI against a simulated account on this machine. Included by the Makefile.

LOCAL_PORT ?= 4566
LOCAL_SPEED ?= 200
# Engines of a clone live in the clone, and what they run on too.
export LOCAL_AWS_HOME := $(CURDIR)/.local-aws
LOCAL := LOCAL_AWS_BY_MAKE=yes .venv/bin/cdk-hyperpod local
LOCAL_ENGINE := local_aws/cdk_hyperpod_local/engine

# The tests deploy to it.
test test-lives test-slurm: .local-aws/ready

.local-aws/ready: node_modules/ready $(LOCAL_ENGINE)/python/requirements.lock $(LOCAL_ENGINE)/node/package-lock.json
	@$(LOCAL) setup
	@touch $@

.PHONY: local-aws-setup deploy-local plan-local diff-local drift-local destroy-local stop-local shell-local
local-aws-setup: .local-aws/ready #: Download what the local AWS needs into .local-aws/

deploy-local: .local-aws/ready ## Deploy CONFIG=cluster.yaml to an AWS on this machine (LOCAL_PORT, LOCAL_SPEED)
	@$(LOCAL) deploy --config="$(CONFIG)" --port="$(LOCAL_PORT)" --speed="$(LOCAL_SPEED)"

diff-local: .local-aws/ready ## Show what CONFIG would change on the local AWS
	@$(LOCAL) diff --config="$(CONFIG)" --port="$(LOCAL_PORT)" --speed="$(LOCAL_SPEED)"

plan-local: .local-aws/ready ## Show what a deployment of CONFIG would take away on the local AWS
	@$(LOCAL) plan --config="$(CONFIG)" --port="$(LOCAL_PORT)" || test $$? -eq 2

drift-local: .local-aws/ready ## Show what somebody changed on the local AWS without CloudFormation
	@$(LOCAL) drift --config="$(CONFIG)" --port="$(LOCAL_PORT)"

destroy-local: .local-aws/ready ## Take everything on the local AWS down and end it
	@$(LOCAL) destroy --port="$(LOCAL_PORT)" --speed="$(LOCAL_SPEED)"

stop-local: .local-aws/ready ## End the local AWS's process and keep its state
	@$(LOCAL) stop --port="$(LOCAL_PORT)"

shell-local: .local-aws/ready ## Open a shell in which the aws CLI, boto3, kubectl and helm reach the local AWS
	@$(LOCAL) shell --port="$(LOCAL_PORT)"

.PHONY: lock-local
lock-local: .tools/ready .venv/ready #: Resolve the engine's packages again
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 --no-emit-package networkx --no-emit-package sympy --no-emit-package mpmath $(LOCAL_ENGINE)/python/requirements.in -o $(LOCAL_ENGINE)/python/requirements.lock
	cd $(LOCAL_ENGINE)/node && npm install --package-lock-only --omit-lockfile-registry-resolved --loglevel=error --no-audit --no-fund
