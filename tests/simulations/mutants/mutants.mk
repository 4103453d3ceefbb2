# Put small faults into a copy of the scale-down function, one at a time, and check that a test fails. Included by the Makefile.

MODULE ?= scale_down/decide/planner
SHARE ?= 20
MUTANTS_SEED ?= 0
# Absent: the function's own tests, which take minutes for each fault that they do not notice.
MUTANT_TESTS ?=

.mutants/ready: .tools/ready requirements/mutants.lock
	@echo "· cosmic-ray, into .mutants/"
	@.tools/bin/uv venv --quiet --allow-existing --python $(PYTHON) .mutants/venv
	@.tools/bin/uv pip sync --quiet --require-hashes --python .mutants/venv/bin/python requirements/mutants.lock || $(UNFETCHED)
	@touch $@

.PHONY: mutants
mutants: setup .mutants/ready #: Put SHARE=20 % of possible faults into MODULE=scale_down/decide/planner, and list those that no test notices
	@python tests/simulations/mutants/run.py --module="$(MODULE)" --share="$(SHARE)" --seed="$(MUTANTS_SEED)" -- $(MUTANT_TESTS)
