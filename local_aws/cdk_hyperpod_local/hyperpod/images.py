"""Images of nodes: a release of HyperPod's own AMI, such as 1.4.0, or the id of an AMI."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from .state import Cluster

_VERSIONS_SINCE = 1_767_225_600.0
"""2026-01-01T00:00:00Z: EKS clusters created since then have versions ("SageMaker HyperPod AMI automatic patching")."""


def image_id(image: str) -> str:
    """The id of the AMI. Each release of the platform has one."""
    return image if image.startswith("ami-") else f"ami-{hashlib.sha256(image.encode()).hexdigest()[:17]}"


def release(image: str) -> str | None:
    """The release; None for a custom AMI."""
    return None if image.startswith("ami-") else image


def wanted(spec: Mapping[str, Any], otherwise: str) -> str:
    """The image that a specification names; `otherwise` if it names none.

    "default" names the latest image of the system.
    """
    named = spec.get("ImageId", "default")
    return str(spec.get("ImageReleaseVersion", otherwise) if named == "default" else named)


def same(one: str, other: str) -> bool:
    """Whether both name the same AMI."""
    return image_id(one) == image_id(other)


def has_versions(cluster: Cluster) -> bool:
    """Whether the cluster's images have versions."""
    return cluster.eks and cluster.created_at >= _VERSIONS_SINCE


def only_patch_differs(older: str, newer: str) -> bool:
    """Whether `newer` is a later patch of the same minor version: what automatic patching moves on to."""
    before, after = _numbers(older), _numbers(newer)
    return len(before) == len(after) == 3 and before[:2] == after[:2] and before < after


def _numbers(image: str) -> tuple[int, ...]:
    parts = image.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()
