"""AWS::FSx::FileSystem (Lustre) and AWS::FSx::DataRepositoryAssociation."""

from __future__ import annotations

from cdk_hyperpod_local.engine.resources.base import Created, Json, RefusedError, ResourceType
from cdk_hyperpod_local.engine.resources.waiting import until
from cdk_hyperpod_local.engine.services.fsx import FsxService
from cdk_hyperpod_local.engine.services.json_service import ServiceError

_SERVICE = "AmazonFSx"
_CREATE = (
    "FileSystemType", "FileSystemTypeVersion", "StorageCapacity", "StorageType", "SubnetIds", "SecurityGroupIds",
    "KmsKeyId", "LustreConfiguration", "Tags", "NetworkType",
)  # fmt: skip
_LUSTRE_REPLACING = ("DeploymentType", "EfaEnabled", "DriveCacheType", "ImportPath", "ExportPath")
"""Not in the schema's createOnlyProperties, but the API cannot change them either."""
_ASSOCIATION_CREATE = (
    "FileSystemId", "FileSystemPath", "DataRepositoryPath", "BatchImportMetaDataOnCreate", "ImportedFileChunkSize",
    "S3", "Tags",
)  # fmt: skip


def types(fsx: FsxService) -> tuple[ResourceType, ...]:
    return _FileSystems(fsx).type(), _Associations(fsx).type()


class _FileSystems:
    def __init__(self, fsx: FsxService) -> None:
        self._fsx = fsx

    def type(self) -> ResourceType:
        return ResourceType(
            name="AWS::FSx::FileSystem",
            create=self._create,
            update=self._update,
            delete=self._delete,
            read=self._read,
            read_properties=("FileSystemType", "StorageCapacity", "StorageType", "SubnetIds", "KmsKeyId"),
            tag_property="Tags",
            blocking=True,
        )

    def _create(self, logical_id: str, properties: Json, stack_name: str) -> Created:
        request = {key: properties[key] for key in _CREATE if key in properties}
        identifier = str(_call(self._fsx, "CreateFileSystem", request)["FileSystem"]["FileSystemId"])
        until(lambda: self._lifecycle(identifier) == "AVAILABLE", f"{identifier} is not AVAILABLE", service=_SERVICE)
        return identifier, self._attributes(identifier)

    def _update(self, physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
        before, after = (properties.get("LustreConfiguration") or {} for properties in (old, new))
        if any(before.get(key) != after.get(key) for key in _LUSTRE_REPLACING):
            return self._create(logical_id, new, stack_name)
        request: Json = {"FileSystemId": physical_id}
        if old.get("StorageCapacity") != new.get("StorageCapacity"):
            request["StorageCapacity"] = new["StorageCapacity"]
        if before != after:
            request["LustreConfiguration"] = after
        if len(request) > 1:
            _call(self._fsx, "UpdateFileSystem", request)
        _retag(self._fsx, self._attributes(physical_id)["ResourceARN"], old, new)
        return physical_id, self._attributes(physical_id)

    def _delete(self, physical_id: str, properties: Json) -> None:
        if self._lifecycle(physical_id) is None:
            return
        _call(self._fsx, "DeleteFileSystem", {"FileSystemId": physical_id})
        until(lambda: self._lifecycle(physical_id) is None, f"{physical_id} is still there", service=_SERVICE)

    def _read(self, physical_id: str, properties: Json) -> Json | None:
        return self._describe(physical_id)

    def _lifecycle(self, identifier: str) -> str | None:
        found = self._describe(identifier)
        return str(found["Lifecycle"]) if found else None

    def _describe(self, identifier: str) -> Json | None:
        try:
            return self._fsx.call("DescribeFileSystems", {"FileSystemIds": [identifier]})["FileSystems"][0]
        except ServiceError as error:
            if error.code == "FileSystemNotFound":
                return None
            raise

    def _attributes(self, identifier: str) -> Json:
        found = self._describe(identifier) or {}
        return {
            "Id": identifier,
            "DNSName": found["DNSName"],
            "LustreMountName": found["LustreConfiguration"]["MountName"],
            "ResourceARN": found["ResourceARN"],
            "RootVolumeId": "",
        }


class _Associations:
    def __init__(self, fsx: FsxService) -> None:
        self._fsx = fsx

    def type(self) -> ResourceType:
        return ResourceType(
            name="AWS::FSx::DataRepositoryAssociation",
            create=self._create,
            update=self._update,
            delete=self._delete,
            tag_property="Tags",
            blocking=True,
        )

    def _create(self, logical_id: str, properties: Json, stack_name: str) -> Created:
        request = {key: properties[key] for key in _ASSOCIATION_CREATE if key in properties}
        made = _call(self._fsx, "CreateDataRepositoryAssociation", request)["Association"]
        identifier = str(made["AssociationId"])
        until(lambda: self._lifecycle(identifier) == "AVAILABLE", f"{identifier} is not AVAILABLE", service=_SERVICE)
        return identifier, {"AssociationId": identifier, "ResourceARN": made["ResourceARN"]}

    def _update(self, physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
        changed = {key: new[key] for key in ("ImportedFileChunkSize", "S3") if key in new and new[key] != old.get(key)}
        if changed:
            _call(self._fsx, "UpdateDataRepositoryAssociation", {"AssociationId": physical_id, **changed})
        arn = (self._describe(physical_id) or {})["ResourceARN"]
        _retag(self._fsx, arn, old, new)
        return physical_id, {"AssociationId": physical_id, "ResourceARN": arn}

    def _delete(self, physical_id: str, properties: Json) -> None:
        if self._lifecycle(physical_id) is None:
            return
        request = {"AssociationId": physical_id, "DeleteDataInFileSystem": False}
        _call(self._fsx, "DeleteDataRepositoryAssociation", request)
        until(lambda: self._lifecycle(physical_id) is None, f"{physical_id} is still there", service=_SERVICE)

    def _lifecycle(self, identifier: str) -> str | None:
        found = self._describe(identifier)
        return str(found["Lifecycle"]) if found else None

    def _describe(self, identifier: str) -> Json | None:
        try:
            reply = self._fsx.call("DescribeDataRepositoryAssociations", {"AssociationIds": [identifier]})
            return reply["Associations"][0]
        except ServiceError as error:
            if error.code == "DataRepositoryAssociationNotFound":
                return None
            raise


def _call(fsx: FsxService, operation: str, request: Json) -> Json:
    try:
        return fsx.call(operation, request)
    except ServiceError as error:
        raise RefusedError(error.message, service=_SERVICE, code=error.code) from None


def _retag(fsx: FsxService, arn: str, old: Json, new: Json) -> None:
    before, after = ({tag["Key"]: tag for tag in properties.get("Tags") or []} for properties in (old, new))
    removed = [key for key in before if key not in after]
    if removed:
        fsx.call("UntagResource", {"ResourceARN": arn, "TagKeys": removed})
    changed = [tag for key, tag in after.items() if before.get(key) != tag]
    if changed:
        fsx.call("TagResource", {"ResourceARN": arn, "Tags": changed})
