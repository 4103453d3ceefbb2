"""Which Kubernetes versions EKS, HyperPod and this library's kubectl take, on one day.

Nothing compares these with today's date, because the same file must give the same template on every day. Sources: "Understand the
Kubernetes version lifecycle on EKS" in the EKS user guide, "Getting started with Amazon EKS support in SageMaker HyperPod" in the
SageMaker developer guide, and Kubernetes' "Version Skew Policy" (kubectl supports one minor version up and down).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

AS_OF = "2026-11-26"
"""The day of this table."""
EXTENDED_SUPPORT_ENDS: Mapping[str, str] = MappingProxyType(
    {"1.31": "2026-11-26", "1.32": "2027-03-23", "1.33": "2027-07-29", "1.34": "2027-12-02", "1.35": "2028-03-27"}
)
"""The last day of each version in EKS. After it, EKS upgrades the control plane by itself."""
HYPERPOD = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35")
"""The versions that HyperPod supports."""
KUBECTL = ("1.34", "1.35", "1.36")
"""The versions that kubectl 1.35 supports, which the deployment's Lambda layer has."""
NEW_CLUSTERS = tuple(
    version for version in HYPERPOD if version in EXTENDED_SUPPORT_ENDS and EXTENDED_SUPPORT_ENDS[version] > AS_OF
)
"""The versions that both EKS and HyperPod took on that day."""


def minor(version: str) -> int:
    """The minor version, by which versions are ordered: 34 of 1.34."""
    return int(version.partition(".")[2])
