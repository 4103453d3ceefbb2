"""The requests that FSx for Lustre refuses, as pure functions of a request and its network.

Sources: botocore's fsx model (CreateFileSystemLustreConfiguration and StorageCapacity), the FSx for Lustre user guide
("Limiting access with security groups", "Working with EFA-enabled file systems").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Json = Any

LUSTRE_PORT = 988
_THROUGHPUT = {
    ("PERSISTENT_2", "SSD"): (125, 250, 500, 1000),
    ("PERSISTENT_1", "SSD"): (50, 100, 200),
    ("PERSISTENT_1", "HDD"): (12, 40),
}
# An EFA-enabled file system grows in steps that depend on its throughput (GiB).
_EFA_STEP = {125: 38_400, 250: 19_200, 500: 9_600, 1000: 4_800}


class Refusal(NamedTuple):
    code: str
    message: str


class Network(Protocol):
    """EC2 for FSx, and the network interfaces that FSx creates there."""

    def subnet(self, subnet_id: str) -> Json | None: ...

    def security_group(self, group_id: str) -> Json | None: ...

    def default_group(self, vpc_id: str) -> str: ...

    def attach(self, *, subnet_id: str, group_ids: Sequence[str], description: str) -> str: ...

    def detach(self, interface_id: str) -> None: ...


def refusal_to_create(request: Json, network: Network) -> Refusal | None:
    """Why this CreateFileSystem is refused; None if it is accepted."""
    if request.get("FileSystemType") != "LUSTRE":
        return Refusal("BadRequest", f"this engine models LUSTRE only, got {request.get('FileSystemType')!r}")
    lustre = request.get("LustreConfiguration") or {}
    return (
        _capacity(request.get("StorageCapacity"), lustre, request.get("StorageType", "SSD"))
        or _throughput(lustre, request.get("StorageType", "SSD"))
        or _metadata(lustre, request)
        or _placement(request, network)
        or _reachable(request, lustre, network)
    )


def refusal_to_resize(old: int, new: int, lustre: Json, storage_type: str) -> Refusal | None:
    if new < old:
        return Refusal("BadRequest", f"Storage capacity can only be increased: requested {new} GiB, has {old} GiB")
    return _capacity(new, lustre, storage_type)


def _capacity(capacity: Json, lustre: Json, storage_type: str) -> Refusal | None:
    if storage_type == "INTELLIGENT_TIERING":
        return Refusal("BadRequest", "StorageCapacity must not be set for INTELLIGENT_TIERING") if capacity else None
    if not isinstance(capacity, int):
        return Refusal("BadRequest", "StorageCapacity is required")
    deployment = lustre.get("DeploymentType", "SCRATCH_1")
    sizes = _sizes(deployment, lustre, storage_type)
    if sizes.allow(capacity):
        return None
    return Refusal("BadRequest", f"Invalid storage capacity: {capacity} GiB. Must be {sizes} for {deployment}")


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """The capacities that FSx allows, in GiB: the single ones, and multiples of a step from a smallest multiple on."""

    single: tuple[int, ...] = ()
    step: int
    smallest: int

    def allow(self, capacity: int) -> bool:
        if capacity in self.single:
            return True
        return capacity >= self.smallest and capacity % self.step == 0

    def __str__(self) -> str:
        multiple = f"a multiple of {self.step}"
        return f"{', '.join(map(str, self.single))} or {multiple}" if self.single else multiple


def _sizes(deployment: str, lustre: Json, storage_type: str) -> _Sizes:
    throughput = lustre.get("PerUnitStorageThroughput")
    if lustre.get("EfaEnabled"):
        step = _EFA_STEP.get(throughput, 1200)
        return _Sizes(step=step, smallest=step)
    if storage_type == "HDD":
        step = 6000 if throughput == 12 else 1800
        return _Sizes(step=step, smallest=step)
    if deployment == "SCRATCH_1":
        return _Sizes(single=(1200, 2400), step=3600, smallest=3600)
    return _Sizes(single=(1200,), step=2400, smallest=2400)


def _throughput(lustre: Json, storage_type: str) -> Refusal | None:
    deployment, throughput = lustre.get("DeploymentType", "SCRATCH_1"), lustre.get("PerUnitStorageThroughput")
    valid = _THROUGHPUT.get((deployment, storage_type))
    if valid is None:
        if throughput is not None:
            return Refusal("BadRequest", f"PerUnitStorageThroughput is not supported for {deployment} {storage_type}")
        return None
    if throughput not in valid:
        return Refusal(
            "BadRequest", f"PerUnitStorageThroughput must be one of {list(valid)} for {deployment}, got {throughput}"
        )
    return None


def _metadata(lustre: Json, request: Json) -> Refusal | None:
    deployment, metadata = lustre.get("DeploymentType", "SCRATCH_1"), lustre.get("MetadataConfiguration")
    if lustre.get("EfaEnabled") and (deployment != "PERSISTENT_2" or not metadata):
        return Refusal("BadRequest", "EfaEnabled needs DeploymentType PERSISTENT_2 and a MetadataConfiguration")
    if metadata and deployment != "PERSISTENT_2":
        return Refusal("BadRequest", "MetadataConfiguration is supported for PERSISTENT_2 only")
    version = request.get("FileSystemTypeVersion")
    if deployment == "PERSISTENT_2" and version == "2.10":
        return Refusal("BadRequest", "FileSystemTypeVersion 2.10 is not supported for PERSISTENT_2")
    if metadata and version == "2.12":
        return Refusal("BadRequest", "MetadataConfiguration needs FileSystemTypeVersion 2.15")
    return None


def _placement(request: Json, network: Network) -> Refusal | None:
    subnets = request.get("SubnetIds") or []
    if len(subnets) != 1:
        return Refusal("InvalidNetworkSettings", f"exactly one subnet is needed for Lustre, got {len(subnets)}")
    subnet = network.subnet(subnets[0])
    if subnet is None:
        return Refusal("InvalidNetworkSettings", f"The subnet ID '{subnets[0]}' does not exist")
    for group_id in request.get("SecurityGroupIds") or []:
        group = network.security_group(group_id)
        if group is None:
            return Refusal("InvalidNetworkSettings", f"The security group '{group_id}' does not exist")
        if group["VpcId"] != subnet["VpcId"]:
            return Refusal("InvalidNetworkSettings", f"Security group {group_id} is not in VPC {subnet['VpcId']}")
    return None


def _reachable(request: Json, lustre: Json, network: Network) -> Refusal | None:
    group_ids = request.get("SecurityGroupIds") or [
        network.default_group((network.subnet(request["SubnetIds"][0]) or {})["VpcId"])
    ]
    groups = [group for group_id in group_ids if (group := network.security_group(group_id))]
    if not any(_covers(rule, LUSTRE_PORT) for group in groups for rule in group["IpPermissions"]):
        return Refusal(
            "InvalidNetworkSettings",
            "The file system cannot be created because the default security group in the subnet provided or the "
            f"provided security groups do not permit Lustre LNET network traffic on port {LUSTRE_PORT}",
        )
    if lustre.get("EfaEnabled") and not any(_opens_to_itself(group) for group in groups):
        return Refusal(
            "InvalidNetworkSettings",
            "Insufficient security group permissions to create an EFA-enabled file system",
        )
    return None


def _covers(rule: Json, port: int) -> bool:
    protocol = str(rule.get("IpProtocol"))
    if protocol == "-1":
        return True
    return protocol in ("tcp", "6") and int(rule.get("FromPort", 0)) <= port <= int(rule.get("ToPort", 65_535))


def _opens_to_itself(group: Json) -> bool:
    """Whether all traffic from and to the group itself is allowed, which EFA requires. A CIDR rule does not count."""

    def has(rules: Iterable[Json]) -> bool:
        return any(
            str(rule.get("IpProtocol")) == "-1" and pair.get("GroupId") == group["GroupId"]
            for rule in rules
            for pair in rule.get("UserIdGroupPairs", [])
        )

    return has(group["IpPermissions"]) and has(group["IpPermissionsEgress"])
