# The tests on real Slurm. Included by the Makefile; paths are from the root.

SLURM_FLAGS ?=

.PHONY: slurm-parts
slurm-parts: #: Install Slurm 22.05 on this machine, and 24.11 into ~/.cache (root, Debian 12; three minutes, once)
	@PYTHONPATH=tests:local_aws $(PYTHON) tests/helpers/slurm/parts.py

# Two processes, each with one cluster at a time. The tests of a cluster run in one process.
.PHONY: test-slurm
test-slurm: setup slurm-parts #: Test lifecycle scripts and jobs on real Slurm clusters, 22.05 and 24.11
	@$(PYTEST_WORKERS) --numprocesses=2 --dist=loadscope $(LONGER) tests/real/slurm $(SLURM_FLAGS)

CHAOS ?= --jobs 1000 --kills 60

.PHONY: chaos-slurm
chaos-slurm: setup slurm-parts #: Run jobs of all kinds while the drain agent is killed, on both versions (CHAOS="--jobs 1000 --kills 60 --seed 1")
	@PYTHONPATH=tests python -m helpers.slurm.chaos 22.05 $(CHAOS)
	@PYTHONPATH=tests python -m helpers.slurm.chaos 24.11 $(CHAOS)

REPLACE ?= --times 10

.PHONY: replace-slurm
replace-slurm: setup slurm-parts #: Replace the controller under load, with kills of copy and restore, on both versions (REPLACE="--times 10 --mode extended --seed 1")
	@PYTHONPATH=tests:local_aws python -m helpers.slurm.replacing 22.05 $(REPLACE)
	@PYTHONPATH=tests:local_aws python -m helpers.slurm.replacing 24.11 $(REPLACE)

.PHONY: bench-slurm
bench-slurm: setup slurm-parts #: Measure the lifecycle scripts and the drain agent on real Slurm clusters
	@PYTHONPATH=tests python -m helpers.slurm.bench
	@PYTHONPATH=tests python -m helpers.slurm.bench_drains
