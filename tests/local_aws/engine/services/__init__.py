"""Services that ministack lacks: FSx (own model) and HyperPod (the model in `local_aws.hyperpod`)."""
