"""The drainer: empties nodes of an EKS cluster before they are deleted, as the agent on a Slurm controller does (docs/adr/0015).

It runs inside the VPC, and calls the Kubernetes API, as no other function of this folder does. Standard library and botocore only.
May import: kernel.
"""
