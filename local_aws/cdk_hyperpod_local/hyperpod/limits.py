"""The limits of the account: quotas by name, training plans, and subnets with free addresses. Pure, one message per
refusal.

Names of quotas: AWS documentation "Prerequisites for using SageMaker HyperPod" and Service Quotas. AWS does not
document its errors for plans and subnets: the codes are likely, and the messages are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import ApiError
from .state import Cluster, Group, HyperPodState, Json, Plan

PER_CLUSTER = "Maximum number instances allowed per SageMaker HyperPod cluster"
TOTAL = "Total number of instances allowed across SageMaker HyperPod clusters"
TOTAL_SPOT = "Total number of Spot instances allowed across SageMaker HyperPod clusters"
VOLUME_GB = "Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance"


def usage_name(instance_type: str, *, spot: bool) -> str:
    """The quota of one instance type."""
    return f"{instance_type} for cluster {'spot instance ' if spot else ''}usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupChange:
    """The change of one group in a request."""

    spec: Json
    more: int
    """How many nodes the group gains, or loses if negative."""

    @property
    def spot(self) -> bool:
        return "Spot" in self.spec.get("CapacityRequirements", {})

    @property
    def kind(self) -> str:
        return _kind(self.spec)

    @property
    def names(self) -> tuple[str, ...]:
        """The quotas that the group's nodes count in, apart from the cluster's own."""
        return _names(self.spec)


def refuse(
    state: HyperPodState, clusters: Sequence[Cluster], before: Mapping[str, Group], specs: Sequence[Json], network: Json
) -> None:
    """ApiError if a request for these groups exceeds a limit.

    `clusters`: the account's in the region, `before`: the cluster's existing groups, `network`: its VpcConfig.
    """
    changes = [_GroupChange(spec=spec, more=spec["InstanceCount"] - _target(before, spec)) for spec in specs]
    for name, limit, used, more in _passed(state, clusters, before, changes):
        raise ApiError(
            "ResourceLimitExceeded",
            f"The account-level service limit '{name}' is {limit} Instances, with current utilization of {used} Instances and "
            f"a request delta of {more} Instances. Please use AWS Service Quotas to request an increase for this quota. If AWS "
            f"Service Quotas is not available, contact AWS support to request an increase for this quota.",
        )
    for problem in (*_volumes(state, changes), *_plans(state, changes), *_places(state, changes, network)):
        raise ApiError("ValidationException", problem)


def _kind(spec: Json) -> str:
    return str(spec["InstanceType"] if "InstanceType" in spec else spec["InstanceRequirements"]["InstanceTypes"][0])


def _names(spec: Json) -> tuple[str, ...]:
    spot = "Spot" in spec.get("CapacityRequirements", {})
    return (usage_name(_kind(spec), spot=spot), TOTAL, *([TOTAL_SPOT] if spot else []))


def _target(before: Mapping[str, Group], spec: Json) -> int:
    old = before.get(spec["InstanceGroupName"])
    return old.target if old else 0


def _passed(
    state: HyperPodState, clusters: Sequence[Cluster], before: Mapping[str, Group], changes: Sequence[_GroupChange]
) -> Iterator[tuple[str, int, int, int]]:
    """Each quota that the request would exceed: its name, its value, its current use, and the added use."""
    used: Counter[str] = Counter()
    for cluster in clusters:
        for group in cluster.groups.values():
            for name in _names(group.spec):
                used[name] += group.target
    used[PER_CLUSTER] = sum(group.target for group in before.values())
    delta: Counter[str] = Counter()
    for change in changes:
        for name in (*change.names, PER_CLUSTER):
            delta[name] += change.more
    for name, more in delta.items():
        limit = state.quotas.get(name)
        if limit is not None and more > 0 and used[name] + more > limit:
            yield name, limit, used[name], more


def _volumes(state: HyperPodState, changes: Sequence[_GroupChange]) -> Iterator[str]:
    limit = state.quotas.get(VOLUME_GB)
    for change in changes:
        for storage in change.spec.get("InstanceStorageConfigs", []):
            size = storage.get("EbsVolumeConfig", {}).get("VolumeSizeInGB", 0)
            if limit is not None and size > limit:
                yield f"The account-level service limit '{VOLUME_GB}' is {limit}, and a volume has {size}"


def _plans(state: HyperPodState, changes: Sequence[_GroupChange]) -> Iterator[str]:
    """Checked only if the account has plans. A HyperPod without any plan accepts every ARN."""
    wanted: Counter[str] = Counter()
    for change in changes:
        arn = change.spec.get("TrainingPlanArn")
        if arn is None or not state.plans:
            continue
        plan = state.plans.get(arn)
        wanted[arn] += max(0, change.more)
        if plan is None:
            yield f"The training plan {arn} does not exist"
        elif change.more > 0 and not (plan.status == "Active" and plan.start <= state.now < plan.end):
            yield f"The training plan {arn} is not active"
        elif plan.instance_type != change.kind:
            yield f"The training plan {arn} is of {plan.instance_type}, not of {change.kind}"
        elif wanted[arn] > plan.available:
            yield f"The training plan {arn} has {plan.available} instances available, not {wanted[arn]}"


def _places(state: HyperPodState, changes: Sequence[_GroupChange], network: Json) -> Iterator[str]:
    """Each group's zone must have its type, and its subnet an address for each node.

    Unknown subnets are not checked.
    """
    needed: Counter[str] = Counter()
    for change in changes:
        subnet = change.spec.get("OverrideVpcConfig", network).get("Subnets", [""])[0]
        place = state.subnets.get(subnet)
        if place is None or change.more <= 0:
            continue
        needed[subnet] += change.more * place.addresses.get(change.kind, 1)
        plan = state.plans.get(change.spec.get("TrainingPlanArn", ""))
        if change.kind not in place.offered:
            yield f"{change.kind} is not offered in {place.zone}"
        elif plan is not None and plan.zone != place.zone:
            yield f"The training plan is in {plan.zone}, and the subnet {subnet} in {place.zone}"
        elif needed[subnet] > place.free:
            yield f"The subnet {subnet} has {place.free} free IP addresses, and {needed[subnet]} are needed"


def plan_details(plan: Plan) -> dict[str, Any]:
    """A training plan in the form of DescribeTrainingPlan and ListTrainingPlans."""
    times: dict[str, Any] = {"Status": plan.status, "StartTime": plan.start, "EndTime": plan.end}
    return {
        "TrainingPlanArn": plan.arn,
        "TrainingPlanName": plan.arn.rpartition("/")[2],
        "TotalInstanceCount": plan.total,
        "AvailableInstanceCount": plan.available,
        "TargetResources": ["hyperpod-cluster"],
        "ReservedCapacitySummaries": [
            {
                "ReservedCapacityArn": plan.arn.replace("training-plan", "reserved-capacity"),
                "InstanceType": plan.instance_type,
                "TotalInstanceCount": plan.total,
                "AvailabilityZone": plan.zone,
                **times,
            }
        ],
        **times,
    }
