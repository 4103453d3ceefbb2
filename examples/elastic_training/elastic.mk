# The elastic training example, run for real on CPU. Included by the Makefile; paths are from the root.

# An exact version, by pip and not from the hashed lock: see requirements/elastic.in. If pip finds no CPU build, it installs the
# registry's, with several GB of CUDA libraries. Avoid that with: make test-elastic ELASTIC_TORCH='torch==2.13.0 --index-url <a CPU index>'
ELASTIC_TORCH ?= torch==2.13.0
ELASTIC_FLAGS ?=
ELASTIC_EXAMPLE := examples/elastic_training
ELASTIC_PIP := .elastic/venv/bin/python -m pip --disable-pip-version-check install -qq --no-deps

.elastic/ready: requirements/elastic.lock requirements/elastic-agent.lock
	@echo "· torch and what the elastic training example's tests need, into .elastic/"
	@$(PYTHON) -m venv .elastic/venv
	@$(ELASTIC_PIP) --require-hashes -r requirements/elastic.lock
	@$(ELASTIC_PIP) $(ELASTIC_TORCH)
	@$(ELASTIC_PIP) --require-hashes --no-build-isolation --upgrade --target .elastic/agent -r requirements/elastic-agent.lock
	@touch $@

.PHONY: test-elastic
test-elastic: .elastic/ready #: Test elastic training on CPU: checkpoint, rescale, resume (installs torch)
	@.elastic/venv/bin/python -m pytest $(ELASTIC_EXAMPLE)/tests $(ELASTIC_FLAGS)

.PHONY: types-elastic
types-elastic: .elastic/ready #: Run mypy in strict mode on the elastic training example
	@cd $(ELASTIC_EXAMPLE) && MYPYPATH=.:tests $(CURDIR)/.elastic/venv/bin/python -m mypy --config-file= --strict --implicit-reexport --explicit-package-bases \
	  --cache-dir=$(CURDIR)/.mypy_cache train.py tests/*.py

# The image has its own torch, so its lock must not contain torch.
.PHONY: lock-elastic
lock-elastic: .tools/ready #: Resolve the elastic training packages again
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 requirements/elastic.in -o requirements/elastic.lock
	.tools/bin/uv pip compile --quiet --no-deps --generate-hashes --no-header --python-version 3.11 requirements/elastic-agent.in -o requirements/elastic-agent.lock
	.tools/bin/uv pip compile --quiet --generate-hashes --no-header --python-version 3.12 --override <(echo 'torch; sys_platform == "never"') $(ELASTIC_EXAMPLE)/image.in -o $(ELASTIC_EXAMPLE)/image.lock
