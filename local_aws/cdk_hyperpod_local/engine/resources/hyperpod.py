"""AWS::SageMaker::Cluster: polls the simulation's own CloudFormation handler."""

from __future__ import annotations

import json
import time
from typing import Any

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.resources.base import Created, Json, ResourceType
from cdk_hyperpod_local.engine.services.hyperpod import HyperPodService
from cdk_hyperpod_local.hyperpod import ApiError, ClusterHandler, Progress

_POLL_SECONDS = (0.1, 0.2, 0.5)
_LONGEST_SECONDS = 900.0
"""In wall-clock time. No handler outlives a test run, whatever the schema's own limit."""
_READ = (
    "ClusterName", "InstanceGroups", "NodeRecovery", "NodeProvisioningMode", "Orchestrator", "TieredStorageConfig",
    "VpcConfig",
)  # fmt: skip


class ClusterFailedError(Exception):
    """The reason in the stack's event."""


def types(clusters: HyperPodService) -> tuple[ResourceType, ...]:
    return (_Clusters(clusters).type(),)


class _Clusters:
    def __init__(self, service: HyperPodService) -> None:
        self._service = service

    def type(self) -> ResourceType:
        return ResourceType(
            name="AWS::SageMaker::Cluster",
            create=self._create,
            update=self._update,
            delete=self._delete,
            read=self._read,
            read_properties=_READ,
            tag_property="Tags",
            name_property="ClusterName",
            blocking=True,
        )

    def _create(self, logical_id: str, properties: Json, stack_name: str) -> Created:
        self._check("CreateCluster", properties)
        started = self._handler().start("create", properties=properties)
        if started.status != "failed":
            self._service.on_eks.prepare("CreateCluster", properties)
        progress = self._run(started)
        if progress.status == "failed":
            if progress.sent:
                # CloudFormation's rollback deletes what the failed create left.
                self._delete(progress.physical_id, properties)
            raise ClusterFailedError(_reason(progress))
        return progress.physical_id, progress.attributes

    def _update(self, physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
        self._check("UpdateCluster", new)
        started = self._handler().start("update", properties=new, old_properties=old, physical_id=physical_id)
        if started.status != "failed":
            self._service.on_eks.prepare("UpdateCluster", {**new, "ClusterName": physical_id})
        progress = self._run(started)
        if progress.status == "failed":
            raise ClusterFailedError(_reason(progress))
        return progress.physical_id, progress.attributes

    def _delete(self, physical_id: str, properties: Json) -> None:
        progress = self._run(self._handler().start("delete", properties=properties, physical_id=physical_id))
        if progress.status == "failed":
            raise ClusterFailedError(_reason(progress))

    def _read(self, physical_id: str, properties: Json) -> Json | None:
        """The cluster's current properties; of each group, only those that the template sets."""
        handler = self._handler()
        try:
            live = handler._call("DescribeCluster", {"ClusterName": physical_id})
        except ApiError as error:
            if error.code == "ResourceNotFound":
                return None
            raise
        wanted = {group["InstanceGroupName"]: group for group in properties.get("InstanceGroups", [])}
        groups = {group["InstanceGroupName"]: _as_property(group, wanted) for group in live["InstanceGroups"]}
        ordered = [groups[name] for name in [*wanted, *(set(groups) - set(wanted))] if name in groups]
        return {**{key: live[key] for key in _READ if key in live}, "InstanceGroups": ordered}

    def _check(self, operation: str, properties: Json) -> None:
        refusal = self._service.refusal(operation, json.dumps(properties).encode())
        if refusal:
            raise ClusterFailedError(
                f'Resource handler returned message: "{refusal} (Service: SageMaker, Status Code: 400)" '
                "(HandlerErrorCode: InvalidRequest)"
            )

    def _handler(self) -> ClusterHandler:
        return ClusterHandler(
            self._service.hyperpod,
            account=seam.account(),
            region=seam.region(),
            vanished_groups=self._service.handler.vanished_groups,
            retries_conflicts=self._service.handler.retries_conflicts,
        )

    def _run(self, progress: Progress) -> Progress:
        handler, began, turn = self._handler(), time.monotonic(), 0
        while progress.status == "pending":
            if time.monotonic() - began > _LONGEST_SECONDS:
                raise ClusterFailedError(f"Exceeded attempts to wait ({_LONGEST_SECONDS:.0f} s): {progress.message}")
            time.sleep(_POLL_SECONDS[min(turn // 20, len(_POLL_SECONDS) - 1)])
            turn += 1
            progress = handler.poll(progress)
        return progress


def _reason(progress: Progress) -> str:
    return f'Resource handler returned message: "{progress.message}" (HandlerErrorCode: {progress.error_code})'


def _as_property(group: Json, wanted: dict[str, Any]) -> Json:
    renamed = {"TargetCount": "InstanceCount", "MinCount": "MinInstanceCount"}
    shown = {renamed.get(key, key): value for key, value in group.items()}
    keys = wanted.get(group["InstanceGroupName"], {"InstanceGroupName", "InstanceType", "InstanceCount"})
    return {key: shown[key] for key in keys if key in shown}
