"""The drainer: what the agent on a Slurm controller is, for an EKS cluster (docs/adr/0015).

A function inside the VPC, and the only one that speaks Kubernetes. The scale-down function asks it, and reads its answer,
which has the form of the agent's status (docs/adr/0014). Standard library and botocore only, and relative imports only: inside
the Lambda this package stands alone.
"""
