"""Services that ministack lacks, or has without what a rehearsal needs: FSx and EKS (own models), and HyperPod (the model
in `cdk_hyperpod_local.hyperpod`) with its task governance."""
