"""The kinds that a team may create with `work`, and how many of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..config.teams import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of Kubernetes object, as a Role and a quota name it."""

    group: str
    plural: str
    most: int
    """The team's default limit. A busy team stays far below it."""
    scales: bool = False
    """Whether it has a scale, which members may change."""

    @property
    def resources(self) -> tuple[str, ...]:
        """What a member may write. The status is the controller's."""
        return (self.plural, f"{self.plural}/scale") if self.scales else (self.plural,)


KINDS_OF_WORK: Mapping[Work, tuple[Kind, ...]] = MappingProxyType(
    {
        "training": (
            Kind(group="apps", plural="statefulsets", most=200, scales=True),
            Kind(group="batch", plural="cronjobs", most=200),
            Kind(group="autoscaling", plural="horizontalpodautoscalers", most=200),
        ),
        # Of KubeRay's operator (https://docs.ray.io/en/latest/cluster/kubernetes/). Its controller creates the pods, Services and Jobs.
        "ray": (
            Kind(group="ray.io", plural="rayjobs", most=1000),
            Kind(group="ray.io", plural="rayclusters", most=200),
            Kind(group="ray.io", plural="rayservices", most=200),
        ),
    }
)
"""In the order of the table, whatever the order in the file."""


OF_OPERATORS = (
    "hyperpodpytorchjobs.sagemaker.amazonaws.com",
    "jobsets.jobset.x-k8s.io",
    "pytorchjobs.kubeflow.org",
    "mpijobs.kubeflow.org",
)
"""Kinds of HyperPod's operators that every member may create."""
COUNTABLE = tuple(f"count/{kind.plural}.{kind.group}" for kinds in KINDS_OF_WORK.values() for kind in kinds)
"""Kinds that no team's quota counts unless `hard` or `work` says so."""


def kinds_of(work: Iterable[Work]) -> Iterator[Kind]:
    """The kinds of a team's work."""
    for name in KINDS_OF_WORK:
        if name in work:
            yield from KINDS_OF_WORK[name]
