"""The versions of Kubernetes that EKS offers HyperPod clusters."""

from __future__ import annotations

VERSIONS = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35")
