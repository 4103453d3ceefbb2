"""How likely events in a lifetime are. Each profile stresses one kind of trouble; `all` mixes everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Profile:
    """Probabilities and rates, per lifetime unless stated otherwise."""

    deeds: Mapping[str, float] = field(default_factory=dict)
    """The actions of other parties (actors.py), and how likely each is."""
    most_deeds: int = 0
    """Maximum in one lifetime."""
    after_write: float = 0.0
    """Probability of an action within three calls of a change by the function."""
    per_call: float = 0.0
    """Probability of an action before any call."""
    in_time: float = 0.0
    """Probability of an action at some time during a deployment."""
    before_cluster: float = 0.0
    """Probability of an action between prepare's success and CloudFormation's own call."""
    before_deploying: float = 0.0
    """Probability of an action between two deployments: drift."""
    in_rollback: float = 0.0
    """Probability of an action after the failure and before the rollback has ended."""

    throttled: float = 0.0
    """Per call."""
    conflicts: float = 0.0
    """Per change."""
    lost: float = 0.0
    """Per change: it takes effect, and its reply is lost."""
    deaths: float = 0.0
    """Per call, once in a lifetime."""
    denied_at_first: float = 0.0
    """Probability that a permission takes up to two minutes to take effect for a request."""
    status_out: float = 0.0
    """Probability that DescribeStacks is throttled for a while when a request begins."""
    events_denied: float = 0.0
    """Probability that DescribeStackEvents is always denied."""
    status_denied: float = 0.0
    """Probability that DescribeStacks is always denied."""

    troubles: float = 0.0
    """Probability that a deployment fails for another reason than prepare's refusal, or is cancelled."""
    left_as_it_is: float = 0.0
    """Probability that a failed deployment is not rolled back (--no-rollback)."""

    continuous: float = 0.85
    """Probability of continuous provisioning; otherwise standard."""
    autoscaled: float = 0.0
    """Probability that an autoscaler sets a group's count."""
    never_patched: float = 0.01
    slow: float = 0.0
    """Probability that nodes take up to hours to shut down, or to start."""
    boot_failures: float = 0.0
    in_use: float = 0.0
    drains: float = 0.0
    """Probability that nodes are drained before they are deleted (draining.py), with Slurm."""
    eks: bool = False
    """They are drained with EKS (eks.py)."""
    drifts: float = 0.0
    """Probability that a lifetime begins with more or fewer nodes than the file has."""
    patches: bool = False
    """Files name images and patching, and software is updated (software.py)."""


_ANYBODY = {
    "person raises": 3.0,
    "person lowers": 1.0,
    "person deletes nodes": 2.0,
    "person deletes a group": 0.5,
    "person makes a group": 0.7,
    "autoscaler raises": 3.0,
    "autoscaler gives back": 1.5,
    "a node fails": 2.0,
    "capacity goes": 1.0,
}

_DRAINS = Profile(
    deeds={"a node fails": 2, "person deletes nodes": 1, "person raises": 1, "capacity goes": 0.5},
    most_deeds=2,
    per_call=0.003,
    in_time=0.3,
    in_rollback=0.1,
    throttled=0.003,
    lost=0.03,
    deaths=0.0005,
    troubles=0.3,
    left_as_it_is=0.1,
    boot_failures=0.03,
    drains=1.0,
    drifts=0.1,
)

PROFILES: dict[str, Profile] = {
    "races": Profile(deeds=_ANYBODY, most_deeds=4, after_write=0.5, per_call=0.03, before_cluster=0.05, drifts=0.2),
    "faults": Profile(
        throttled=0.03,
        conflicts=0.1,
        lost=0.2,
        deaths=0.003,
        denied_at_first=0.15,
        status_out=0.15,
        events_denied=0.1,
        status_denied=0.02,
        troubles=0.2,
        in_use=0.1,
    ),
    "rollbacks": Profile(
        troubles=0.8, left_as_it_is=0.1, status_out=0.05, events_denied=0.05, drifts=0.3, lost=0.03, throttled=0.003
    ),
    "drift": Profile(deeds=_ANYBODY, most_deeds=6, before_deploying=0.8, in_time=0.1, drifts=0.8, troubles=0.1),
    "health": Profile(
        deeds={
            "a node fails": 3,
            "deep health check": 2,
            "software update": 1,
            "capacity goes": 1,
            "person raises": 0.5,
        },
        most_deeds=6,
        after_write=0.3,
        per_call=0.01,
        in_time=0.6,
        before_deploying=0.3,
        boot_failures=0.15,
        in_use=0.05,
        drifts=0.2,
        troubles=0.15,
    ),
    "autoscaler": Profile(
        deeds={"autoscaler raises": 4, "autoscaler gives back": 3, "a node fails": 0.5, "capacity goes": 0.5},
        most_deeds=6,
        after_write=0.4,
        per_call=0.02,
        in_time=0.5,
        before_deploying=0.6,
        in_rollback=0.3,
        autoscaled=0.9,
        continuous=1.0,
        troubles=0.3,
    ),
    "standard": Profile(
        deeds=_ANYBODY,
        most_deeds=3,
        after_write=0.15,
        per_call=0.005,
        before_deploying=0.2,
        continuous=0.0,
        drifts=0.3,
        troubles=0.2,
        throttled=0.005,
        lost=0.03,
    ),
    "slow": Profile(
        deeds={"capacity goes": 2, "a node fails": 1, "software update": 1, "person raises": 1},
        most_deeds=3,
        in_time=0.5,
        slow=1.0,
        drifts=0.3,
        troubles=0.3,
        in_use=0.1,
    ),
    "all": Profile(
        deeds=_ANYBODY | {"deep health check": 0.5, "software update": 0.5},
        most_deeds=4,
        after_write=0.25,
        per_call=0.01,
        in_time=0.2,
        before_cluster=0.03,
        before_deploying=0.25,
        in_rollback=0.15,
        throttled=0.01,
        conflicts=0.03,
        lost=0.07,
        deaths=0.0007,
        denied_at_first=0.05,
        status_out=0.05,
        events_denied=0.05,
        status_denied=0.01,
        troubles=0.3,
        left_as_it_is=0.05,
        autoscaled=0.2,
        slow=0.1,
        boot_failures=0.05,
        in_use=0.05,
        drains=0.3,
        drifts=0.2,
    ),
    "drains": _DRAINS,
    "evictions": replace(
        _DRAINS,
        deeds={"a node fails": 1, "person deletes nodes": 1, "person raises": 1, "autoscaler raises": 1},
        autoscaled=0.1,
        eks=True,
    ),
    "patches": Profile(
        deeds={
            "a release": 3,
            "person patches": 3,
            "the schedule patches": 2,
            "automatic patching": 3,
            "person turns patching on": 2,
            "a node fails": 0.5,
            "person raises": 0.5,
        },
        most_deeds=8,
        after_write=0.2,
        per_call=0.01,
        in_time=0.4,
        before_cluster=0.03,
        before_deploying=0.9,
        in_rollback=0.1,
        troubles=0.2,
        left_as_it_is=0.05,
        throttled=0.003,
        lost=0.03,
        drifts=0.1,
        patches=True,
    ),
}
FIRST_SEEDS = {"drains": 10_000_000, "evictions": 20_000_000, "patches": 30_000_000}
"""Profiles that were added later, each with its first seed, so that earlier seeds keep their meaning."""

CYCLE = [name for name in PROFILES if name not in FIRST_SEEDS]
"""The other profiles alternate, seed by seed."""


def profile_of(seed: int) -> str:
    """The profile of a seed, so that a seed alone determines a lifetime."""
    return next((name for name, first in reversed(FIRST_SEEDS.items()) if seed >= first), CYCLE[seed % len(CYCLE)])
