"""Services that ministack lacks, or has without what a rehearsal needs: FSx, EKS, and HyperPod (simulated in
`cdk_hyperpod_local.hyperpod`) with its task governance."""
