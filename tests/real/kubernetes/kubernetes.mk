# Set-up of the Kubernetes tests, beside the locked packages. Included by the Makefile; paths are from the root.

# Without its forty dependencies: the tests load only two of its files, which need nothing but pydantic.
.kubernetes/ready: .venv/ready requirements/hyperpod-sdk.lock
	@echo "· the models of AWS's SDK for HyperPod, into .kubernetes/"
	@rm -rf .kubernetes && .tools/bin/uv pip install --quiet --python .venv/bin/python --no-deps --require-hashes --target .kubernetes/sdk -r requirements/hyperpod-sdk.lock
	@touch $@

.PHONY: kubernetes-apiserver
kubernetes-apiserver: #: Build a real Kubernetes API server into ~/.cache, once (three minutes)
	@PYTHONPATH=tests:local_aws $(PYTHON) tests/helpers/kubernetes/apiserver/build.py

.PHONY: test-kubernetes
test-kubernetes: setup .kubernetes/ready kubernetes-apiserver #: Test quotas, teams, jobs and the drainer on a real API server, which is built once
	@$(WAITING_PYTEST) $(PYTEST_FLAGS) $(ON_KUBERNETES)

.PHONY: bench-eks
bench-eks: setup .kubernetes/ready kubernetes-apiserver #: Measure the drainer on a real API server
	@PYTHONPATH=tests python -m real.drainer.bench

.PHONY: lock-kubernetes
lock-kubernetes: .tools/ready #: Resolve the SDK for HyperPod again
	.tools/bin/uv pip compile --quiet --no-deps --generate-hashes --no-header --python-version 3.11 requirements/hyperpod-sdk.in -o requirements/hyperpod-sdk.lock
