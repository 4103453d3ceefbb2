"""Amazon FSx for Lustre: file systems and their links to S3, as far as deployments and their checks use them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from cdk_hyperpod_local.engine.services.fsx_rules import Network, refusal_to_create, refusal_to_resize

Json = Any

# Seconds at speed 1. Orders of magnitude, as users report them.
CREATE_SECONDS = 480.0
DELETE_SECONDS = 240.0
ASSOCIATE_SECONDS = 120.0
_MOST_ASSOCIATIONS = 8
_HEX = "0123456789abcdef"
_LOWER = "abcdefghijklmnopqrstuvwxyz234567"


class FsxError(Exception):
    """An error reply. All of FSx's client errors have HTTP status 400."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Fsx:
    """The state is plain JSON (`state`, `restore`). Every read first updates it to the current time."""

    def __init__(self, *, network: Network, now: Callable[[], float], speed: float = 1.0, seed: int = 0) -> None:
        self._network = network
        self._now = now
        self._speed = speed
        self._seed = seed
        self._drawn = 0
        self.used: dict[str, float] = {}
        """Id -> the share of its storage that is used, from 0 to 1. Absent: nothing."""
        self._file_systems: dict[str, Json] = {}
        self._associations: dict[str, Json] = {}
        self._operations: dict[str, Callable[[Json, str, str], Json]] = {
            "CreateFileSystem": self._create_file_system,
            "UpdateFileSystem": self._update_file_system,
            "DeleteFileSystem": self._delete_file_system,
            "DescribeFileSystems": self._describe_file_systems,
            "CreateDataRepositoryAssociation": self._create_association,
            "UpdateDataRepositoryAssociation": self._update_association,
            "DeleteDataRepositoryAssociation": self._delete_association,
            "DescribeDataRepositoryAssociations": self._describe_associations,
            "TagResource": self._tag,
            "UntagResource": self._untag,
            "ListTagsForResource": self._list_tags,
        }

    def call(self, operation: str, request: Json, *, account: str, region: str) -> Json:
        """The reply; raises FsxError."""
        self.settle(account, region)
        run = self._operations.get(operation)
        if run is None:
            raise FsxError("UnknownOperationException", f"{operation} is not modelled by this engine")
        return run(request, account, region)

    def storage(self) -> Iterator[tuple[str, str, str, float, float]]:
        """Account, Region, id, and the free and used bytes of every file system whose size is set."""
        for name, record in list(self._file_systems.items()):
            if record["StorageCapacity"]:
                whole = record["StorageCapacity"] * 2.0**30
                used = whole * self.used.get(name, 0.0)
                yield record["OwnerId"], record["_region"], name, whole - used, used

    def state(self) -> Json:
        return {"file_systems": self._file_systems, "associations": self._associations, "drawn": self._drawn}

    def restore(self, state: Json) -> None:
        self._file_systems = state["file_systems"]
        self._associations = state["associations"]
        self._drawn = state["drawn"]

    def clear(self) -> None:
        self.restore({"file_systems": {}, "associations": {}, "drawn": 0})

    def tagged(self) -> Iterator[tuple[str, list[Json]]]:
        """ARN and tags of all resources, for conditions on aws:ResourceTag."""
        for record in [*self._file_systems.values(), *self._associations.values()]:
            yield record["ResourceARN"], record["Tags"]

    # -- file systems --------------------------------------------------------------------------------------------------

    def _create_file_system(self, request: Json, account: str, region: str) -> Json:
        refusal = refusal_to_create(request, self._network)
        if refusal:
            raise FsxError(*refusal)
        identifier = f"fs-{self._draw(_HEX, 17)}"
        lustre = dict(request.get("LustreConfiguration") or {})
        metadata = lustre.get("MetadataConfiguration")
        subnet = request["SubnetIds"][0]
        subnet_record = self._network.subnet(subnet) or {}
        interface = self._network.attach(
            subnet_id=subnet,
            group_ids=request.get("SecurityGroupIds") or [self._network.default_group(subnet_record["VpcId"])],
            description=f"FSx for Lustre {identifier}",
        )
        now = self._now()
        record = {
            "OwnerId": account,
            "CreationTime": now,
            "FileSystemId": identifier,
            "FileSystemType": "LUSTRE",
            "FileSystemTypeVersion": request.get("FileSystemTypeVersion") or ("2.15" if metadata else "2.12"),
            "Lifecycle": "CREATING",
            "StorageCapacity": request.get("StorageCapacity"),
            "StorageType": request.get("StorageType", "SSD"),
            "VpcId": subnet_record["VpcId"],
            "SubnetIds": [subnet],
            "NetworkInterfaceIds": [interface],
            "DNSName": f"{identifier}.fsx.{region}.amazonaws.com",
            "KmsKeyId": request.get("KmsKeyId", f"arn:aws:kms:{region}:{account}:alias/aws/fsx"),
            "ResourceARN": f"arn:aws:fsx:{region}:{account}:file-system/{identifier}",
            "Tags": list(request.get("Tags") or []),
            "LustreConfiguration": {"MountName": self._draw(_LOWER, 8), "DataCompressionType": "NONE", **lustre},
            "_region": region,
            "_group_ids": list(request.get("SecurityGroupIds") or []),
            "_ready": now + CREATE_SECONDS / self._speed,
        }
        self._file_systems[identifier] = record
        return {"FileSystem": _shown(record)}

    def _update_file_system(self, request: Json, account: str, region: str) -> Json:
        record = self._file_system(request["FileSystemId"], account, region)
        if record["Lifecycle"] != "AVAILABLE":
            raise FsxError("BadRequest", f"{record['FileSystemId']} is {record['Lifecycle']}; wait for AVAILABLE")
        lustre = {**record["LustreConfiguration"], **(request.get("LustreConfiguration") or {})}
        capacity = request.get("StorageCapacity", record["StorageCapacity"])
        refusal = refusal_to_resize(record["StorageCapacity"], capacity, lustre, record["StorageType"])
        if refusal:
            raise FsxError(*refusal)
        record["StorageCapacity"] = capacity
        record["LustreConfiguration"] = lustre
        return {"FileSystem": _shown(record)}

    def _delete_file_system(self, request: Json, account: str, region: str) -> Json:
        record = self._file_system(request["FileSystemId"], account, region)
        if record["Lifecycle"] == "CREATING":
            raise FsxError("BadRequest", f"{record['FileSystemId']} is being created and cannot be deleted yet")
        record |= {"Lifecycle": "DELETING", "_ready": self._now() + DELETE_SECONDS / self._speed}
        for association in self._of_file_system(record["FileSystemId"]):
            self._associations.pop(association["AssociationId"])
        return {"FileSystemId": record["FileSystemId"], "Lifecycle": "DELETING"}

    def _describe_file_systems(self, request: Json, account: str, region: str) -> Json:
        wanted = request.get("FileSystemIds")
        if wanted:
            found = [self._file_system(identifier, account, region) for identifier in wanted]
        else:
            found = [r for r in self._file_systems.values() if (r["OwnerId"], r["_region"]) == (account, region)]
        return {"FileSystems": [_shown(record) for record in found]}

    def _file_system(self, identifier: str, account: str, region: str) -> Json:
        record = self._file_systems.get(identifier)
        if record is None or (record["OwnerId"], record["_region"]) != (account, region):
            raise FsxError("FileSystemNotFound", f"File system '{identifier}' does not exist.")
        return record

    # -- links to S3 ---------------------------------------------------------------------------------------------------

    def _create_association(self, request: Json, account: str, region: str) -> Json:
        file_system = self._file_system(request["FileSystemId"], account, region)
        lustre = file_system["LustreConfiguration"]
        present = self._of_file_system(file_system["FileSystemId"])
        if file_system["Lifecycle"] != "AVAILABLE":
            raise FsxError("BadRequest", f"{file_system['FileSystemId']} is {file_system['Lifecycle']}")
        if lustre.get("DeploymentType") == "SCRATCH_1" or file_system["StorageType"] == "INTELLIGENT_TIERING":
            raise FsxError("BadRequest", "data repository associations need PERSISTENT or SCRATCH_2 on SSD or HDD")
        if len(present) >= _MOST_ASSOCIATIONS:
            raise FsxError("ServiceLimitExceeded", f"a file system has at most {_MOST_ASSOCIATIONS} associations")
        path = request.get("FileSystemPath", "/")
        if any(_overlap(path, other["FileSystemPath"]) for other in present):
            raise FsxError("BadRequest", f"FileSystemPath {path} overlaps with another association's")
        identifier = f"dra-{self._draw(_HEX, 17)}"
        record = {
            "AssociationId": identifier,
            "ResourceARN": f"arn:aws:fsx:{region}:{account}:association/{file_system['FileSystemId']}/{identifier}",
            "FileSystemId": file_system["FileSystemId"],
            "Lifecycle": "CREATING",
            "FileSystemPath": path,
            "DataRepositoryPath": request["DataRepositoryPath"],
            "BatchImportMetaDataOnCreate": bool(request.get("BatchImportMetaDataOnCreate", False)),
            "ImportedFileChunkSize": request.get("ImportedFileChunkSize", 1024),
            "S3": request.get("S3", {}),
            "Tags": list(request.get("Tags") or []),
            "CreationTime": self._now(),
            "_owner": account,
            "_region": region,
            "_ready": self._now() + ASSOCIATE_SECONDS / self._speed,
        }
        self._associations[identifier] = record
        return {"Association": _shown(record)}

    def _update_association(self, request: Json, account: str, region: str) -> Json:
        record = self._association(request["AssociationId"], account, region)
        record |= {key: request[key] for key in ("ImportedFileChunkSize", "S3") if key in request}
        return {"Association": _shown(record)}

    def _delete_association(self, request: Json, account: str, region: str) -> Json:
        record = self._association(request["AssociationId"], account, region)
        record |= {"Lifecycle": "DELETING", "_ready": self._now() + ASSOCIATE_SECONDS / self._speed}
        return {"AssociationId": record["AssociationId"], "Lifecycle": "DELETING"}

    def _describe_associations(self, request: Json, account: str, region: str) -> Json:
        wanted = request.get("AssociationIds")
        if wanted:
            found = [self._association(identifier, account, region) for identifier in wanted]
        else:
            mine = [r for r in self._associations.values() if (r["_owner"], r["_region"]) == (account, region)]
            found = [record for record in mine if _matches(record, request.get("Filters") or [])]
        return {"Associations": [_shown(record) for record in found]}

    def _association(self, identifier: str, account: str, region: str) -> Json:
        record = self._associations.get(identifier)
        if record is None or (record["_owner"], record["_region"]) != (account, region):
            raise FsxError("DataRepositoryAssociationNotFound", f"Association '{identifier}' does not exist.")
        return record

    def _of_file_system(self, identifier: str) -> list[Json]:
        return [record for record in self._associations.values() if record["FileSystemId"] == identifier]

    # -- tags ----------------------------------------------------------------------------------------------------------

    def _tag(self, request: Json, account: str, region: str) -> Json:
        record = self._tagged_record(request["ResourceARN"])
        new = {tag["Key"]: tag for tag in [*record["Tags"], *request["Tags"]]}
        record["Tags"] = list(new.values())
        return {}

    def _untag(self, request: Json, account: str, region: str) -> Json:
        record = self._tagged_record(request["ResourceARN"])
        record["Tags"] = [tag for tag in record["Tags"] if tag["Key"] not in request["TagKeys"]]
        return {}

    def _list_tags(self, request: Json, account: str, region: str) -> Json:
        return {"Tags": list(self._tagged_record(request["ResourceARN"])["Tags"])}

    def _tagged_record(self, arn: str) -> Json:
        for record in [*self._file_systems.values(), *self._associations.values()]:
            if record["ResourceARN"] == arn:
                return record
        raise FsxError("ResourceNotFound", f"{arn} does not exist")

    # -- time ----------------------------------------------------------------------------------------------------------

    def settle(self, account: str, region: str) -> None:
        """Perform what is due by now in this account and Region. A file system that is deleted releases its interfaces."""
        now, owner = self._now(), f":fsx:{region}:{account}:"
        for store, key in ((self._file_systems, "FileSystemId"), (self._associations, "AssociationId")):
            for record in [item for item in store.values() if item["_ready"] <= now and owner in item["ResourceARN"]]:
                if record["Lifecycle"] == "CREATING":
                    record["Lifecycle"] = "AVAILABLE"
                elif record["Lifecycle"] == "DELETING":
                    for interface in record.get("NetworkInterfaceIds", []):
                        self._network.detach(interface)
                    store.pop(record[key])

    def _draw(self, alphabet: str, length: int) -> str:
        # Numbered, so that a restarted engine continues the sequence and never repeats an identifier.
        self._drawn += 1
        return "".join(random.Random(f"{self._seed}:{self._drawn}").choices(alphabet, k=length))


def _shown(record: Json) -> Json:
    return {key: value for key, value in record.items() if not key.startswith("_")}


def _matches(record: Json, filters: list[Json]) -> bool:
    names = {"file-system-id": "FileSystemId", "file-system-path": "FileSystemPath"}
    return all(record.get(names.get(f["Name"], "")) in f["Values"] for f in filters)


def _overlap(one: str, other: str) -> bool:
    """Whether one path is inside the other."""
    a, b = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return a.startswith(b) or b.startswith(a)
