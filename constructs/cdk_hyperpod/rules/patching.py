"""Rules of the images of an instance group, and of the settings of its patches.

Sources: botocore (ClusterInstanceGroupSpecification, DeploymentConfiguration), and the developer guide's pages "Update your AMI
version in your SageMaker HyperPod cluster" and "SageMaker HyperPod AMI automatic patching".
"""

from __future__ import annotations

from collections.abc import Iterator

from ..config.cluster import InstanceGroup, Orchestrator, Rolling
from ..errors import Finding
from ..typed.known import is_known
from ..typed.validation import check_repeated
from .wording import EKS_ONLY

_MOST_ALARMS = 10


def check_patching(group: InstanceGroup, path: str, *, orchestrator: Orchestrator) -> Iterator[Finding]:
    """Everything that is wrong with a group's image and with its patches."""
    yield from _check_image(group, path)
    if orchestrator == "slurm":
        yield from _check_slurm(group, path)
    if orchestrator == "eks":
        yield from _check_schedule(group, path)
        if isinstance(group.rolling, Rolling):
            yield from _check_rolling(group.rolling, group, f"{path}.rolling")


def _check_image(group: InstanceGroup, path: str) -> Iterator[Finding]:
    if group.image_id is not None and group.image_release_version is not None:
        yield Finding(
            code="image-and-release",
            path=path,
            problem="image_id cannot be combined with image_release_version",
            remedy="keep one of them",
        )


def _check_slurm(group: InstanceGroup, path: str) -> Iterator[Finding]:
    for field in ("image_release_version", "auto_patch", "rolling"):
        if getattr(group, field) not in (None, "none"):
            yield Finding(code="setting-for-eks-only", path=f"{path}.{field}", problem=EKS_ONLY, remedy="remove it")
    if group.scheduled_update not in (None, "none") and is_known(group.scheduled_update):
        yield Finding(
            code="scheduled-update-under-slurm",
            path=f"{path}.scheduled_update",
            problem="would end every job of the group at that hour: HyperPod drains nothing under Slurm",
            remedy="remove it, and run `cdk-hyperpod patch`, which drains the nodes",
        )


def _check_schedule(group: InstanceGroup, path: str) -> Iterator[Finding]:
    if group.rolling is not None or group.scheduled_update in (None, "none"):
        return
    if is_known(group.scheduled_update):
        yield Finding(
            code="scheduled-update-without-rolling",
            path=f"{path}.scheduled_update",
            problem="has no rolling, so HyperPod would patch every node of the group at once",
            remedy="add rolling with batch_nodes",
        )


def _check_rolling(rolling: Rolling, group: InstanceGroup, path: str) -> Iterator[Finding]:
    if rolling.batch_nodes is None and rolling.batch_percent is None:
        yield Finding(
            code="rolling-without-batch",
            path=path,
            problem="has no batch_nodes",
            remedy="add batch_nodes, or batch_percent",
        )
    elif rolling.batch_nodes is not None and rolling.batch_percent is not None:
        yield Finding(
            code="rolling-batch-twice",
            path=path,
            problem="batch_nodes cannot be combined with batch_percent",
            remedy="keep one of them",
        )
    else:
        yield from _check_percent(rolling, group, path)
    yield from _check_alarms(rolling, f"{path}.rollback_alarms")


def _check_percent(rolling: Rolling, group: InstanceGroup, path: str) -> Iterator[Finding]:
    """AWS does not document what HyperPod does with less than one node."""
    percent, count = rolling.batch_percent, group.instance_count
    if percent is None or not is_known((percent, count)) or percent * count >= 100:
        return
    yield Finding(
        code="rolling-percent-of-nothing",
        path=f"{path}.batch_percent",
        problem=f"{percent} percent of instance_count, which is {count}, is less than one node",
        remedy="raise it, or use batch_nodes",
    )


def _check_alarms(rolling: Rolling, path: str) -> Iterator[Finding]:
    yield from check_repeated(rolling.rollback_alarms, path)
    if isinstance(rolling.rollback_alarms, tuple) and len(rolling.rollback_alarms) > _MOST_ALARMS:
        yield Finding(
            code="rollback-alarms-too-many",
            path=path,
            problem=f"has {len(rolling.rollback_alarms)} alarms",
            remedy=f"use at most {_MOST_ALARMS}",
        )
