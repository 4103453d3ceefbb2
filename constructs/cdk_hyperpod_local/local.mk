# The local AWS: the real CDK CLI against a simulated account on this machine. Included by the Makefile.

LOCAL_PORT ?= 4566
LOCAL_SPEED ?= 100
LOCAL := .venv/bin/python -m cdk_hyperpod_local.commands

# The whole test run deploys to it.
test: .local-aws/ready

.local-aws/ready: node_modules/ready requirements/local-aws.lock constructs/cdk_hyperpod_local/engine/node/package-lock.json
	@echo "· the local AWS engine, into .local-aws/"
	@.tools/bin/uv venv --quiet --allow-existing --python $(PYTHON) .local-aws/venv
	@.tools/bin/uv pip sync --quiet --compile-bytecode --require-hashes --python .local-aws/venv/bin/python requirements/local-aws.lock || $(UNFETCHED)
	@mkdir -p .local-aws/node && cp constructs/cdk_hyperpod_local/engine/node/package.json constructs/cdk_hyperpod_local/engine/node/package-lock.json .local-aws/node/
	@cd .local-aws/node && npm ci --loglevel=error --no-audit --no-fund >/dev/null || $(UNFETCHED)
	@touch $@

.PHONY: local-aws-setup deploy-local plan-local diff-local drift-local destroy-local stop-local shell-local
local-aws-setup: .local-aws/ready #: Bring the local AWS engine into .local-aws/

deploy-local: .local-aws/ready ## Deploy CONFIG=cluster.yaml to an AWS on this machine (LOCAL_PORT, LOCAL_SPEED)
	@$(LOCAL) deploy --config="$(CONFIG)" --port="$(LOCAL_PORT)" --speed="$(LOCAL_SPEED)"

diff-local: .local-aws/ready ## What CONFIG would change on the local AWS
	@$(LOCAL) diff --config="$(CONFIG)" --port="$(LOCAL_PORT)" --speed="$(LOCAL_SPEED)"

plan-local: .local-aws/ready ## What a deployment of CONFIG would take away on the local AWS
	@$(LOCAL) plan --config="$(CONFIG)" --port="$(LOCAL_PORT)"

drift-local: .local-aws/ready ## What was changed on the local AWS behind CloudFormation's back
	@$(LOCAL) drift --config="$(CONFIG)" --port="$(LOCAL_PORT)"

destroy-local: .local-aws/ready ## Take everything on the local AWS down and end it
	@$(LOCAL) destroy --port="$(LOCAL_PORT)" --speed="$(LOCAL_SPEED)"

stop-local: .local-aws/ready ## End the local AWS's process and keep its state
	@$(LOCAL) stop --port="$(LOCAL_PORT)"

shell-local: .local-aws/ready ## A shell (or, in a pipe, the variables) for the aws CLI, boto3, and kubectl and helm under EKS
	@$(LOCAL) shell --port="$(LOCAL_PORT)"

.PHONY: lock-local
lock-local: .tools/ready #: Resolve the engine's packages again
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 requirements/local-aws.in -o requirements/local-aws.lock
