"""The drainer: what the agent on a Slurm controller is, for an EKS cluster (docs/adr/0015).

A function inside the VPC, and the only one that speaks Kubernetes. The scale-down function asks it, and reads its answer,
which has the form of the agent's status (docs/adr/0014). Standard library and botocore only. Of the scale-down
function's package it imports what both speak (`drain_protocol`, `text`), and never what decides there.

May import: common.
"""
