# Whole lifetimes of clusters against the scale-down function, on a second model of HyperPod. Included by the Makefile.

LIFETIMES ?= 1000

.PHONY: soak
soak: setup #: Simulate LIFETIMES=1000 lifetimes [PROFILE=races] [FIRST=0] [RECORD=docs/evidence.md], or print one: SEED=17
	@PYTHONPATH=tests python -m simulations.lifetimes.soak --lifetimes=$(LIFETIMES) $(if $(PROFILE),--profile=$(PROFILE)) $(if $(FIRST),--first=$(FIRST)) $(if $(SEED),--seed=$(SEED)) $(if $(RECORD),--record=$(RECORD))

PATCHES ?= 5000

.PHONY: patches
patches: setup #: Simulate PATCHES=5000 patches [EKS=1] [FIRST=0], or print one: SEED=17
	@PYTHONPATH=tests python -m simulations.patches.run --patches=$(PATCHES) $(if $(EKS),--eks) $(if $(FIRST),--first=$(FIRST)) $(if $(SEED),--seed=$(SEED))
