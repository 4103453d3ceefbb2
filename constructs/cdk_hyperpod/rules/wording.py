"""Parts of sentences that several rules share."""

from __future__ import annotations

SLURM_ONLY = "applies only under Slurm"
EKS_ONLY = "applies only under EKS"
