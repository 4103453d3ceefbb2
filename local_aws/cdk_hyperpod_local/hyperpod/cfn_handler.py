"""CloudFormation's handler of AWS::SageMaker::Cluster on the simulated HyperPod, step by step.

Its source is not public. According to the resource type's schema, createOnly is ClusterName, VpcConfig and
Orchestrator/Eks, the primary identifier is ClusterArn, and a handler has 720 minutes. The rest is the simplest reading:
create sends the template, update sends every group of the template, changed or not, and both wait for InService.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from . import api_shapes
from .botocore_imports import Shape
from .errors import ApiError
from .state import Json
from .tagging import CLOUDFORMATION

if TYPE_CHECKING:
    from .api import HyperPod

Action = Literal["create", "update", "delete"]
VanishedGroups = Literal["delete_present", "leave", "delete_blindly"]
"""What an update does with a group of the old template that the new one lacks.

It deletes the group with InstanceGroupsToDelete if the group still exists; ignores it; or deletes it without a check,
so that the update fails if it does not exist. AWS does not document which.
"""

TIMEOUT = 720 * 60.0
BUSY = ("ConflictException", "ThrottlingException")
NOT_IN_UPDATE = ("VpcConfig", "Tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a resource operation.

    All of it can be written as JSON, so that it can outlive the process (`asdict`).
    """

    action: Action
    status: Literal["pending", "done", "failed"]
    physical_id: str
    """The cluster's ARN; its name until it has one."""
    message: str = ""
    error_code: str = ""
    """HandlerErrorCode when failed: AlreadyExists, NotFound, InvalidRequest, NotStabilized, ResourceConflict, ..."""
    started_at: float = 0.0
    sent: bool = False
    """The mutating call was accepted."""
    images: dict[str, dict[str, str]] = field(default_factory=dict)
    """UpdateClusterSoftware is still to be called for these groups, with these members."""
    patched: list[str] = field(default_factory=list)
    """The groups for which it was called."""
    properties: Json = field(default_factory=dict)
    old: Json = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    """Stack tags. The resource's own tags win."""
    attributes: Json = field(default_factory=dict)
    """GetAtt: ClusterArn, ClusterStatus, CreationTime (ISO 8601), FailureMessage; empty until done."""


def replacement_reasons(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """The createOnly properties that differ. If there are any, the update is a replacement."""
    pairs = {
        "ClusterName": (old.get("ClusterName"), new.get("ClusterName")),
        "VpcConfig": (old.get("VpcConfig"), new.get("VpcConfig")),
        "Orchestrator/Eks": (old.get("Orchestrator", {}).get("Eks"), new.get("Orchestrator", {}).get("Eks")),
    }
    return tuple(name for name, (before, after) in pairs.items() if before != after)


def vanished(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the groups in the old properties that are not in the new ones."""
    names = {group["InstanceGroupName"] for group in new.get("InstanceGroups", [])}
    return tuple(g["InstanceGroupName"] for g in old.get("InstanceGroups", []) if g["InstanceGroupName"] not in names)


def api_parameters(operation: str, properties: Mapping[str, Any]) -> Json:
    """Template properties as parameters of the operation: scalars in the API's types, without read-only members."""
    shape = api_shapes.operation_model(operation).input_shape
    assert shape is not None
    params: Json = _typed(shape, {key: value for key, value in properties.items() if key in shape.members})
    return params


def _typed(shape: Shape, value: Any) -> Any:
    """Convert scalars to the API's types.

    CloudFormation passes them as they are in the template: "8" and "true" mean 8 and true.
    """
    match shape.type_name:
        case "structure" if isinstance(value, Mapping):
            return {key: _typed(shape.members[key], item) for key, item in value.items() if key in shape.members}
        case "list" if isinstance(value, list):
            return [_typed(shape.member, item) for item in value]
        case "map" if isinstance(value, Mapping):
            return {key: _typed(shape.value, item) for key, item in value.items()}
        case "integer" | "long" if isinstance(value, str) and value.lstrip("-").isdigit():
            return int(value)
        case "integer" | "long" if isinstance(value, float) and value.is_integer():
            return int(value)
        case "boolean" if value in ("true", "false"):
            return value == "true"
        case "string" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        case _:
            return value


class ClusterHandler:
    """`start` an operation, then `poll` until its status is not "pending". Both return the whole progress."""

    def __init__(
        self,
        hyperpod: HyperPod,
        *,
        vanished_groups: VanishedGroups = "delete_present",
        retries_conflicts: bool = True,
        principal: str = CLOUDFORMATION,
        account: str = "000000000000",
        region: str = "us-west-2",
    ) -> None:
        """`retries_conflicts`: wait while the cluster is busy. Otherwise the operation fails with ResourceConflict."""
        self._hyperpod = hyperpod
        self._vanished_groups = vanished_groups
        self._retries_conflicts = retries_conflicts
        self._as = {"principal": principal, "account": account, "region": region}

    def start(
        self,
        action: Action,
        *,
        properties: Mapping[str, Any],
        old_properties: Mapping[str, Any] | None = None,
        physical_id: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> Progress:
        """Begin an operation. `properties`: of the template, resolved; for a delete, those of the last template.

        `old_properties` and `physical_id` are required for update, `physical_id` for delete. A replacement is two
        operations: check `replacement_reasons` first. `tags`: the stack's, including aws:cloudformation:*.
        """
        progress = Progress(
            action=action, status="pending", physical_id=physical_id or str(properties.get("ClusterName", "")),
            started_at=self._hyperpod.clock.now(), properties=dict(properties), old=dict(old_properties or {}), tags=dict(tags or {}),
        )  # fmt: skip
        if action == "update" and replacement_reasons(progress.old, progress.properties):
            reasons = ", ".join(replacement_reasons(progress.old, progress.properties))
            return replace(
                progress, status="failed", error_code="NotUpdatable", message=f"createOnly properties differ: {reasons}"
            )
        return self._send(progress)

    def poll(self, progress: Progress) -> Progress:
        """Continue the operation. Does nothing once the status is "done" or "failed"."""
        if progress.status != "pending":
            return progress
        if self._hyperpod.clock.now() - progress.started_at > TIMEOUT:
            return replace(progress, status="failed", error_code="NotStabilized", message="Exceeded attempts to wait")
        return self._stabilise(progress) if progress.sent else self._send(progress)

    # --- sending ---

    def _send(self, progress: Progress) -> Progress:
        try:
            return getattr(self, f"_send_{progress.action}")(progress)  # type: ignore[no-any-return]
        except ApiError as error:
            if error.code == "ThrottlingException" or (error.code in BUSY and self._retries_conflicts):
                return replace(progress, message=error.message)
            return self._failed(progress, error)

    def _send_create(self, progress: Progress) -> Progress:
        params = api_parameters("CreateCluster", progress.properties)
        tags = _all_tags(progress)
        if tags:
            params["Tags"] = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
        arn = self._call("CreateCluster", params)["ClusterArn"]
        return replace(progress, sent=True, physical_id=arn, message="")

    def _send_update(self, progress: Progress) -> Progress:
        live = self._call("DescribeCluster", {"ClusterName": progress.physical_id})
        params = api_parameters("UpdateCluster", progress.properties)
        params = {key: value for key, value in params.items() if key not in NOT_IN_UPDATE}
        params["ClusterName"] = progress.physical_id
        vanished = self._to_delete(progress, [group["InstanceGroupName"] for group in live["InstanceGroups"]])
        if vanished:
            params["InstanceGroupsToDelete"] = vanished
        if live.get("NodeProvisioningMode") == params.get("NodeProvisioningMode"):
            params.pop("NodeProvisioningMode", None)
        self._call("UpdateCluster", params)
        self._retag(progress)
        images = self._changed_images(progress, [group["InstanceGroupName"] for group in live["InstanceGroups"]])
        return replace(progress, sent=True, message="", images=images)

    def _changed_images(self, progress: Progress, live: Sequence[str]) -> dict[str, dict[str, str]]:
        """The groups whose image changed from template to template.

        ImageReleaseVersion "triggers a software update via UpdateClusterSoftware" (the property's documentation).
        ImageId: Behaviour.changed_image_id_updates_software.
        """
        members = ["ImageReleaseVersion"]
        members += ["ImageId"] if self._hyperpod.behaviour.changed_image_id_updates_software else []
        before = {group["InstanceGroupName"]: group for group in progress.old.get("InstanceGroups", [])}
        changed = {}
        for group in progress.properties.get("InstanceGroups", []):
            name = group["InstanceGroupName"]
            wanted = {
                member: str(group[member])
                for member in members
                if member in group and group[member] != before.get(name, {}).get(member)
            }
            if wanted and name in live and name in before:
                changed[name] = wanted
        return changed

    def _send_image(self, progress: Progress) -> Progress:
        """One group at a time: a request has one ImageId."""
        name, wanted = next(iter(progress.images.items()))
        group = {"InstanceGroupName": name} | {key: value for key, value in wanted.items() if key != "ImageId"}
        params = {"ClusterName": progress.physical_id, "InstanceGroups": [group]}
        if "ImageId" in wanted:
            params["ImageId"] = wanted["ImageId"]
        try:
            self._call("UpdateClusterSoftware", params)
        except ApiError as error:
            if error.code in BUSY:
                return replace(progress, message=error.message)
            return self._failed(progress, error)
        left = {key: value for key, value in progress.images.items() if key != name}
        return replace(progress, images=left, patched=[*progress.patched, name], message="")

    def _to_delete(self, progress: Progress, live: Sequence[str]) -> list[str]:
        names = vanished(progress.old, progress.properties)
        match self._vanished_groups:
            case "leave":
                return []
            case "delete_present":
                return [name for name in names if name in live]
            case "delete_blindly":
                return list(names)

    def _retag(self, progress: Progress) -> None:
        wanted = _all_tags(progress)
        listed = self._call("ListTags", {"ResourceArn": progress.physical_id})["Tags"]
        has = {tag["Key"]: tag["Value"] for tag in listed}
        before = {tag["Key"] for tag in progress.old.get("Tags", [])}
        added = [{"Key": key, "Value": value} for key, value in sorted(wanted.items()) if has.get(key) != value]
        dropped = sorted((before & set(has)) - set(wanted))
        if added:
            self._call("AddTags", {"ResourceArn": progress.physical_id, "Tags": added})
        if dropped:
            self._call("DeleteTags", {"ResourceArn": progress.physical_id, "TagKeys": dropped})

    def _send_delete(self, progress: Progress) -> Progress:
        try:
            self._call("DeleteCluster", {"ClusterName": progress.physical_id})
        except ApiError as error:
            if error.code == "ResourceNotFound":
                return replace(progress, status="done", sent=True)
            live = self._call("DescribeCluster", {"ClusterName": progress.physical_id})
            if live["ClusterStatus"] != "Deleting":
                raise
        return replace(progress, sent=True, message="")

    # --- waiting ---

    def _stabilise(self, progress: Progress) -> Progress:
        """Look whether the cluster has reached the state that the operation waits for."""
        if progress.images:
            return self._send_image(progress)
        try:
            live = self._call("DescribeCluster", {"ClusterName": progress.physical_id})
        except ApiError as error:
            return self._unreadable(progress, error)
        status = live["ClusterStatus"]
        if progress.action == "delete":
            return replace(progress, message=f"Cluster is {status}")
        busy = _groups_in(live, "Creating", "Updating", "Deleting", "SystemUpdating")
        if status != "Failed" and (status != "InService" or busy):
            return replace(progress, message=f"Cluster is {status}, waiting for {', '.join(busy) or 'the cluster'}")
        failed = _groups_in(live, "Failed", "Degraded")
        failed += _not_patched(live, progress.patched)
        if status == "Failed" or failed or live.get("FailureMessage"):
            return self._not_stabilized(progress, live, failed)
        return replace(progress, status="done", message="", attributes=_attributes(live))

    def _unreadable(self, progress: Progress, error: ApiError) -> Progress:
        if error.code == "ThrottlingException":
            return progress
        if error.code == "ResourceNotFound" and progress.action == "delete":
            return replace(progress, status="done", message="")
        return self._failed(progress, error)

    def _not_stabilized(self, progress: Progress, live: Json, failed: Sequence[str]) -> Progress:
        why = live.get("FailureMessage", f"Instance groups failed: {', '.join(failed)}")
        resource = f"Resource of type 'AWS::SageMaker::Cluster' with identifier '{progress.physical_id}'"
        return replace(
            progress, status="failed", error_code="NotStabilized", message=f"{resource} did not stabilize. {why}"
        )

    def _failed(self, progress: Progress, error: ApiError) -> Progress:
        codes = {
            "ResourceInUse": "AlreadyExists",
            "ResourceNotFound": "NotFound",
            "ValidationException": "InvalidRequest",
            "SerializationException": "InvalidRequest",
            "ConflictException": "ResourceConflict",
            "ResourceLimitExceeded": "ServiceLimitExceeded",
            "AccessDeniedException": "AccessDenied",
        }
        code = codes.get(error.code, "GeneralServiceException")
        message = f"{error.message} (Service: SageMaker, Status Code: {error.http_status}) (HandlerErrorCode: {code})"
        if code == "AlreadyExists":
            message = (
                f"Resource of type 'AWS::SageMaker::Cluster' with identifier '{progress.physical_id}' already exists."
            )
        return replace(progress, status="failed", error_code=code, message=message)

    def _call(self, operation: str, params: Mapping[str, Any]) -> Json:
        return self._hyperpod.call(operation, params, **self._as)


def _groups_in(live: Json, *statuses: str) -> list[str]:
    return [group["InstanceGroupName"] for group in live["InstanceGroups"] if group["Status"] in statuses]


def _not_patched(live: Json, names: Sequence[str]) -> list[str]:
    """The groups whose software update was rolled back."""
    return [
        group["InstanceGroupName"]
        for group in live["InstanceGroups"]
        if group["InstanceGroupName"] in names and group.get("SoftwareUpdateStatus") in ("RollbackComplete", "Failed")
    ]


def _all_tags(progress: Progress) -> dict[str, str]:
    own = {tag["Key"]: tag["Value"] for tag in progress.properties.get("Tags", [])}
    return {**progress.tags, **own}


def _attributes(live: Json) -> Json:
    return {
        "ClusterArn": live["ClusterArn"],
        "ClusterStatus": live["ClusterStatus"],
        "CreationTime": live["CreationTime"].isoformat().replace("+00:00", "Z"),
        "FailureMessage": live.get("FailureMessage", ""),
    }
