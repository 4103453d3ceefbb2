# Small faults put into the scale-down function, one at a time, on a copy: do its tests notice? Included by the Makefile.

MODULE ?= scale_down/planner
SHARE ?= 20
MUTANTS_SEED ?= 0
# Absent: the function's own tests, which take minutes for a fault that survives.
MUTANT_TESTS ?=

.mutants/ready: .tools/ready requirements/mutants.lock
	@echo "· cosmic-ray, into .mutants/"
	@.tools/bin/uv venv --quiet --allow-existing --python $(PYTHON) .mutants/venv
	@.tools/bin/uv pip sync --quiet --require-hashes --python .mutants/venv/bin/python requirements/mutants.lock || $(UNFETCHED)
	@touch $@

.PHONY: mutants
mutants: setup .mutants/ready #: Put faults into a MODULE=scale_down/planner of the functions, SHARE=20 % of them: which does no test notice?
	@python tests/simulations/mutants/run.py --module="$(MODULE)" --share="$(SHARE)" --seed="$(MUTANTS_SEED)" -- $(MUTANT_TESTS)
