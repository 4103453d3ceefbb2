"""Services that ministack lacks, or has only in part: FSx, EKS, HyperPod and its task governance.

`fsx.py`, `eks.py` and `hyperpod.py` receive the requests. HyperPod's answers come from the folder `hyperpod`.
May import: alarms, engine.clock, engine.journal, engine.kubernetes, engine.options, engine.seam, hyperpod.
"""
