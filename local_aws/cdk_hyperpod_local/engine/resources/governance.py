"""AWS::SageMaker::ClusterSchedulerConfig and AWS::SageMaker::ComputeQuota."""

from __future__ import annotations

from cdk_hyperpod_local.engine.resources.base import Created, Json, RefusedError, ResourceType
from cdk_hyperpod_local.engine.resources.waiting import until
from cdk_hyperpod_local.engine.services.hyperpod import HyperPodService
from cdk_hyperpod_local.engine.services.json_service import ServiceError
from cdk_hyperpod_local.engine.services.task_governance import QUOTA, SCHEDULER, Kind

_SERVICE = "SageMaker"
_CODES = {
    "ConflictException": "ResourceConflict",
    "ResourceNotFound": "NotFound",
    "ValidationException": "InvalidRequest",
    "SerializationException": "InvalidRequest",
}


def types(clusters: HyperPodService) -> tuple[ResourceType, ...]:
    return _Governed(clusters, SCHEDULER).type(), _Governed(clusters, QUOTA).type()


class _Governed:
    def __init__(self, clusters: HyperPodService, kind: Kind) -> None:
        self._clusters = clusters
        self._kind = kind

    def type(self) -> ResourceType:
        return ResourceType(
            name=f"AWS::SageMaker::{self._kind.name}",
            create=self._create,
            update=self._update,
            delete=self._delete,
            tag_property="Tags",
            name_property="Name",
            blocking=True,
        )

    def _create(self, logical_id: str, properties: Json, stack_name: str) -> Created:
        arn = str(self._call("Create", properties)[f"{self._kind.name}Arn"])
        try:
            return arn, self._rest(arn)
        except RefusedError:
            self._delete(arn, properties)
            raise

    def _update(self, physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
        if _team(old) != _team(new):
            # createOnly. The handler deletes the old one first, because both have the same name.
            self._delete(physical_id, old)
            return self._create(logical_id, new, stack_name)
        changed = {key: new[key] for key in self._kind.config if key in new and new[key] != old.get(key)}
        if changed:
            version = self._describe(physical_id)[f"{self._kind.name}Version"]
            self._call("Update", {**self._id(physical_id), "TargetVersion": version, **changed})
        self._retag(physical_id, old, new)
        return physical_id, self._rest(physical_id)

    def _delete(self, physical_id: str, properties: Json) -> None:
        if self._status(physical_id) is None:
            return
        self._call("Delete", self._id(physical_id))
        until(lambda: self._status(physical_id) is None, f"{physical_id} is still there", service=_SERVICE)

    def _rest(self, arn: str) -> Json:
        """Wait until it is created or updated, and return its attributes. Raises an error if it has failed."""
        until(lambda: not str(self._status(arn)).endswith("ing"), f"{arn} is busy", service=_SERVICE)
        found = self._describe(arn)
        if found["Status"].endswith("Failed"):
            raise RefusedError(found.get("FailureReason", found["Status"]), service=_SERVICE, code="NotStabilized")
        names = [f"{self._kind.name}{part}" for part in ("Arn", "Id", "Version")]
        return {name: str(found[name]) for name in [*names, "Status", "CreationTime"]}

    def _status(self, arn: str) -> str | None:
        try:
            return str(self._clusters.call(f"Describe{self._kind.name}", self._id(arn))["Status"])
        except ServiceError as error:
            if error.code == "ResourceNotFound":
                return None
            raise

    def _describe(self, arn: str) -> Json:
        return self._call("Describe", self._id(arn))

    def _id(self, arn: str) -> Json:
        return {f"{self._kind.name}Id": arn.rpartition("/")[2]}

    def _retag(self, arn: str, old: Json, new: Json) -> None:
        before, after = ({tag["Key"]: tag for tag in part.get("Tags") or []} for part in (old, new))
        removed = sorted(set(before) - set(after))
        if removed:
            self._clusters.call("DeleteTags", {"ResourceArn": arn, "TagKeys": removed})
        if after and before != after:
            self._clusters.call("AddTags", {"ResourceArn": arn, "Tags": list(after.values())})

    def _call(self, verb: str, request: Json) -> Json:
        try:
            return self._clusters.call(f"{verb}{self._kind.name}", request)
        except ServiceError as error:
            raise RefusedError(error.message, service=_SERVICE, code=_CODES.get(error.code, error.code)) from None


def _team(properties: Json) -> Json:
    return (properties.get("ComputeQuotaTarget") or {}).get("TeamName")
