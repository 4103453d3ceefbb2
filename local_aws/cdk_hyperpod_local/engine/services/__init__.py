"""Services that ministack lacks, or has without what a rehearsal needs: FSx, EKS, HyperPod and its task governance.

`fsx.py`, `eks.py` and `hyperpod.py` take the requests. HyperPod's answers come from the room `hyperpod`.
May import: engine.journal, engine.kubernetes, engine.options, engine.seam, hyperpod.
"""
