"""FSx for Lustre without an engine: its refusals, and the lives of file systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cdk_hyperpod_local.engine.services.fsx_file_systems import CREATE_SECONDS, DELETE_SECONDS, Fsx, FsxError
from cdk_hyperpod_local.engine.services.fsx_rules import refusal_to_create

Json = Any
HERE = {"account": "000000000000", "region": "us-west-2"}


class Network:
    """One VPC with one subnet.

    The group `sg-open` admits Lustre, `sg-efa` all traffic of its own, `sg-shut` nothing.
    """

    def __init__(self) -> None:
        everything = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-efa"}]}]
        self.groups: dict[str, Json] = {
            "sg-open": self._group("sg-open", [{"IpProtocol": "tcp", "FromPort": 988, "ToPort": 988}], []),
            "sg-efa": self._group("sg-efa", everything, everything),
            "sg-shut": self._group("sg-shut", [], []),
            "sg-else": {**self._group("sg-else", [], []), "VpcId": "vpc-2"},
        }
        self.interfaces: dict[str, str] = {}

    def _group(self, identifier: str, ingress: Json, egress: Json) -> Json:
        return {
            "GroupId": identifier,
            "VpcId": "vpc-1",
            "IpPermissions": ingress,
            "IpPermissionsEgress": egress,
        }

    def subnet(self, subnet_id: str) -> Json | None:
        return {"VpcId": "vpc-1"} if subnet_id == "subnet-1" else None

    def security_group(self, group_id: str) -> Json | None:
        return self.groups.get(group_id)

    def default_group(self, vpc_id: str) -> str:
        return "sg-shut"

    def attach(self, *, subnet_id: str, group_ids: Sequence[str], description: str) -> str:
        interface = f"eni-{len(self.interfaces)}"
        self.interfaces[interface] = subnet_id
        return interface

    def detach(self, interface_id: str) -> None:
        self.interfaces.pop(interface_id)


class Clock:
    def __init__(self) -> None:
        self.time = 1_000.0

    def __call__(self) -> float:
        return self.time


def request(lustre: Json = None, **changes: Json) -> Json:
    return {
        "FileSystemType": "LUSTRE",
        "StorageCapacity": 4800,
        "SubnetIds": ["subnet-1"],
        "SecurityGroupIds": ["sg-open"],
        "LustreConfiguration": {
            "DeploymentType": "PERSISTENT_2",
            "PerUnitStorageThroughput": 250,
            **(lustre or {}),
        },
        **changes,
    }


EFA = {"EfaEnabled": True, "MetadataConfiguration": {"Mode": "AUTOMATIC"}}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        pytest.param(request(), None, id="good"),
        pytest.param(request(StorageCapacity=1200), None, id="smallest"),
        pytest.param(request(StorageCapacity=3600), "BadRequest", id="capacity between the steps"),
        pytest.param(request({"PerUnitStorageThroughput": 200}), "BadRequest", id="throughput of PERSISTENT_1"),
        pytest.param(request(EFA, StorageCapacity=19_200, SecurityGroupIds=["sg-efa"]), None, id="EFA"),
        pytest.param(request(EFA, SecurityGroupIds=["sg-efa"]), "BadRequest", id="EFA needs larger steps"),
        pytest.param(request(EFA, StorageCapacity=19_200), "InvalidNetworkSettings", id="EFA needs its own group open"),
        pytest.param(request({"EfaEnabled": True}, StorageCapacity=19_200), "BadRequest", id="EFA without metadata"),
        pytest.param(request(FileSystemTypeVersion="2.10"), "BadRequest", id="old Lustre"),
        pytest.param(request(SubnetIds=["subnet-1", "subnet-1"]), "InvalidNetworkSettings", id="two subnets"),
        pytest.param(request(SubnetIds=["subnet-2"]), "InvalidNetworkSettings", id="unknown subnet"),
        pytest.param(request(SecurityGroupIds=["sg-else"]), "InvalidNetworkSettings", id="group of another VPC"),
        pytest.param(request(SecurityGroupIds=["sg-shut"]), "InvalidNetworkSettings", id="port closed"),
        pytest.param(request(SecurityGroupIds=[]), "InvalidNetworkSettings", id="default group is closed too"),
    ],
)
def test_invalid_file_systems_are_refused(given: Json, code: str | None) -> None:
    refusal = refusal_to_create(given, Network())
    assert (refusal.code if refusal else None) == code, refusal


def test_life_of_a_file_system() -> None:
    clock, network = Clock(), Network()
    fsx = Fsx(network=network, now=clock)
    made = fsx.call("CreateFileSystem", request(), **HERE)["FileSystem"]
    wanted = {"FileSystemIds": [made["FileSystemId"]]}

    def lifecycle() -> str:
        return str(fsx.call("DescribeFileSystems", wanted, **HERE)["FileSystems"][0]["Lifecycle"])

    assert lifecycle() == "CREATING"
    clock.time += CREATE_SECONDS
    assert (lifecycle(), len(network.interfaces)) == ("AVAILABLE", 1)
    assert fsx.call("DescribeFileSystems", {}, account="1" * 12, region="us-west-2") == {"FileSystems": []}
    fsx.call("DeleteFileSystem", {"FileSystemId": made["FileSystemId"]}, **HERE)
    assert lifecycle() == "DELETING"
    clock.time += DELETE_SECONDS
    with pytest.raises(FsxError, match="FileSystemNotFound"):
        lifecycle()
    assert network.interfaces == {}


def test_restored_state_continues_with_new_identifiers() -> None:
    clock, network = Clock(), Network()
    first = Fsx(network=network, now=clock, seed=7)
    one = first.call("CreateFileSystem", request(), **HERE)["FileSystem"]["FileSystemId"]
    second = Fsx(network=network, now=clock, seed=7)
    second.restore(first.state())
    two = second.call("CreateFileSystem", request(), **HERE)["FileSystem"]["FileSystemId"]
    listed = second.call("DescribeFileSystems", {}, **HERE)["FileSystems"]
    assert [item["FileSystemId"] for item in listed] == [one, two]


def test_storage_capacity_can_only_be_increased() -> None:
    clock = Clock()
    fsx = Fsx(network=Network(), now=clock)
    identifier = fsx.call("CreateFileSystem", request(), **HERE)["FileSystem"]["FileSystemId"]
    clock.time += CREATE_SECONDS
    grown = fsx.call("UpdateFileSystem", {"FileSystemId": identifier, "StorageCapacity": 7200}, **HERE)
    assert grown["FileSystem"]["StorageCapacity"] == 7200
    with pytest.raises(FsxError, match="can only be increased"):
        fsx.call("UpdateFileSystem", {"FileSystemId": identifier, "StorageCapacity": 4800}, **HERE)


def test_a_file_system_can_have_data_repository_associations() -> None:
    clock = Clock()
    fsx = Fsx(network=Network(), now=clock)
    identifier = fsx.call("CreateFileSystem", request(), **HERE)["FileSystem"]["FileSystemId"]
    link = {"FileSystemId": identifier, "FileSystemPath": "/data", "DataRepositoryPath": "s3://bucket/data"}
    with pytest.raises(FsxError, match="is CREATING"):
        fsx.call("CreateDataRepositoryAssociation", link, **HERE)
    clock.time += CREATE_SECONDS
    arn = fsx.call("CreateDataRepositoryAssociation", link, **HERE)["Association"]["ResourceARN"]
    with pytest.raises(FsxError, match="overlaps"):
        fsx.call("CreateDataRepositoryAssociation", {**link, "FileSystemPath": "/data/deeper"}, **HERE)
    fsx.call("TagResource", {"ResourceARN": arn, "Tags": [{"Key": "a", "Value": "1"}]}, **HERE)
    assert dict(fsx.tagged())[arn] == [{"Key": "a", "Value": "1"}]
    found = fsx.call(
        "DescribeDataRepositoryAssociations",
        {"Filters": [{"Name": "file-system-id", "Values": [identifier]}]},
        **HERE,
    )
    assert [item["FileSystemPath"] for item in found["Associations"]] == ["/data"]
