"""EKS clusters: control planes that require two zones and a role, and take time to create."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping

from cdk_hyperpod_local.engine.services.eks_state import (
    CREATE_SECONDS,
    DELETE_SECONDS,
    UPDATE_SECONDS,
    Account,
    EksState,
    Json,
    Where,
    in_use,
    invalid_parameter,
    invalid_request,
    not_found,
    page,
    shown,
)

VERSIONS = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35")
"""The versions that EKS supports, standard and extended. The newest is not the default."""
_DEFAULT_VERSION = "1.34"
_LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
_MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")
_NETWORK = {
    "endpointPublicAccess": True,
    "endpointPrivateAccess": False,
    "publicAccessCidrs": ["0.0.0.0/0"],
    "securityGroupIds": [],
}


def create_cluster(state: EksState, request: Json, where: Where) -> Json:
    name = request["name"]
    for problem in _problems(state, request):
        raise invalid_parameter(problem)
    if any(record["name"] == name for record in state.of(where)):
        raise in_use(f"Cluster already exists with name: {name}")
    if state.named(name):
        raise invalid_request(f"This engine has one Kubernetes API for a name, and {name} is another region's")
    network = {**_NETWORK, **request["resourcesVpcConfig"]}
    vpc_id = (state.account.subnet(network["subnetIds"][0]) or {})["VpcId"]
    suffix = state.identifier(8)
    group = state.account.create_group(
        vpc_id=vpc_id, name=f"eks-cluster-sg-{name}-{suffix}", description="EKS created security group"
    )
    groups = [*network["securityGroupIds"], group]
    interfaces = [
        state.account.attach(subnet_id=subnet, group_ids=groups, description=f"Amazon EKS {name}")
        for subnet in network["subnetIds"]
    ]
    access = {"bootstrapClusterCreatorAdminPermissions": True, "authenticationMode": "CONFIG_MAP"}
    record = {
        "name": name,
        "arn": where.arn(f"cluster/{name}"),
        "createdAt": state.now(),
        "version": request.get("version", _DEFAULT_VERSION),
        "roleArn": request["roleArn"],
        "resourcesVpcConfig": {**network, "clusterSecurityGroupId": group, "vpcId": vpc_id},
        "kubernetesNetworkConfig": {
            "serviceIpv4Cidr": "10.100.0.0/16",
            "ipFamily": "ipv4",
            "elasticLoadBalancing": {"enabled": False},
            **(request.get("kubernetesNetworkConfig") or {}),
        },
        "logging": _logging(request.get("logging")),
        "identity": {"oidc": {"issuer": f"https://oidc.eks.{where.region}.amazonaws.com/id/{suffix.upper() * 4}"}},
        "status": "CREATING",
        "platformVersion": "eks.1",
        "tags": dict(request.get("tags") or {}),
        "encryptionConfig": request.get("encryptionConfig") or [],
        "health": {"issues": []},
        "accessConfig": {**access, **(request.get("accessConfig") or {})},
        "upgradePolicy": request.get("upgradePolicy") or {"supportType": "EXTENDED"},
        "deletionProtection": bool(request.get("deletionProtection", False)),
        **{key: request[key] for key in ("computeConfig", "storageConfig", "zonalShiftConfig") if key in request},
        "_account": where.account,
        "_region": where.region,
        "_interfaces": interfaces,
        "_ready": state.later(CREATE_SECONDS),
        "_updates": {},
        "_entries": {},
        "_addons": {},
        "_associations": {},
    }
    state.clusters[record["arn"]] = record
    state.start(name, state.kubernetes.create)
    return {"cluster": shown(record)}


def _problems(state: EksState, request: Json) -> Iterator[str]:
    """The reasons to refuse a CreateCluster request, in the order in which EKS reports them."""
    network = request["resourcesVpcConfig"]
    yield from _role_problems(state.account, request["roleArn"])
    yield from _name_and_version_problems(request)
    yield from _network_problems(state.account, network)
    yield from _endpoint_problems(network)
    yield from _encryption_problems(state.account, request.get("encryptionConfig") or [])
    yield from _access_problems(request.get("accessConfig") or {})


def _role_problems(account: Account, role: str) -> Iterator[str]:
    trusts_eks = account.trusts(role, "eks.amazonaws.com")
    if trusts_eks is None:
        yield f"The role {role} does not exist"
    elif not trusts_eks:
        yield f"Role with arn: {role}, could not be assumed because the trusted entity is not correct"


def _name_and_version_problems(request: Json) -> Iterator[str]:
    if not re.fullmatch(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}", request["name"]):
        yield "The cluster name must begin with a letter or digit and have at most 100 letters, digits, - and _"
    version = request.get("version", _DEFAULT_VERSION)
    if version not in VERSIONS:
        yield f"unsupported Kubernetes version {version}"


def _network_problems(account: Account, network: Json) -> Iterator[str]:
    subnets = {identifier: account.subnet(identifier) for identifier in network.get("subnetIds") or []}
    groups = {identifier: account.security_group(identifier) for identifier in network.get("securityGroupIds") or []}
    yield from _missing("subnet ID", subnets)
    if len({subnet["AvailabilityZone"] for subnet in _existing(subnets)}) < 2:
        yield "Subnets specified must be in at least two different AZs"
    yield from _missing("security group", groups)
    if len({item["VpcId"] for item in (*_existing(subnets), *_existing(groups))}) > 1:
        yield "Subnets and security groups must be in the same VPC"


def _missing(kind: str, found: Mapping[str, Json | None]) -> Iterator[str]:
    for identifier, item in found.items():
        if item is None:
            yield f"The {kind} '{identifier}' does not exist"


def _existing(found: Mapping[str, Json | None]) -> list[Json]:
    return [item for item in found.values() if item is not None]


def _endpoint_problems(network: Json) -> Iterator[str]:
    public = network.get("endpointPublicAccess", True)
    private = network.get("endpointPrivateAccess", False)
    if not public and not private:
        yield "Private and public endpoint access cannot be false"


def _encryption_problems(account: Account, encryptions: list[Json]) -> Iterator[str]:
    for encryption in encryptions:
        key = encryption["provider"]["keyArn"]
        if not account.key_exists(key):
            yield f"The key {key} does not exist"


def _access_problems(access: Json) -> Iterator[str]:
    mode = access.get("authenticationMode", "CONFIG_MAP")
    if mode not in _MODES:
        yield f"unsupported authentication mode {mode}"
    if mode == "CONFIG_MAP" and not access.get("bootstrapClusterCreatorAdminPermissions", True):
        yield "bootstrapClusterCreatorAdminPermissions must be true if cluster authentication mode is set to CONFIG_MAP"


def describe_cluster(state: EksState, request: Json, where: Where) -> Json:
    return {"cluster": shown(state.cluster(request["name"], where))}


def list_clusters(state: EksState, request: Json, where: Where) -> Json:
    return page(sorted(record["name"] for record in state.of(where)), request, "clusters")


def delete_cluster(state: EksState, request: Json, where: Where) -> Json:
    record = state.cluster(request["name"], where)
    name = record["name"]
    if record["status"] in ("CREATING", "UPDATING"):
        raise in_use(f"Cluster is {record['status']}: {name}")
    if record["deletionProtection"]:
        raise invalid_request(f"Cluster {name} has deletion protection enabled")
    if used := state.account.hyperpod_clusters(record["arn"]):
        # AWS does not document its behaviour. Deleting the control plane of a HyperPod cluster is a mistake in any
        # case.
        raise in_use(f"Cluster has HyperPod clusters attached: {', '.join(used)}")
    if record["status"] != "DELETING":
        record |= {"status": "DELETING", "_ready": state.later(DELETE_SECONDS)}
        state.stop(name)
    return {"cluster": shown(record)}


def update_cluster_version(state: EksState, request: Json, where: Where) -> Json:
    record = _at_rest(state, request, where)
    old, new = record["version"], request["version"]
    if new not in VERSIONS:
        raise invalid_parameter(f"unsupported Kubernetes version {new}")
    if VERSIONS.index(new) - VERSIONS.index(old) != 1:
        raise invalid_parameter(f"Unsupported Kubernetes minor version update from {old} to {new}")
    record["version"] = new
    return _update(state, record, "VersionUpdate", {"Version": new})


def update_cluster_config(state: EksState, request: Json, where: Where) -> Json:
    record = _at_rest(state, request, where)
    changed = sorted(set(request) - {"name", "clientRequestToken"})
    if len(changed) != 1:
        raise invalid_parameter(f"Only one type of update can be allowed, got {', '.join(changed) or 'none'}")
    (kind,) = changed
    value = request[kind]
    match kind:
        case "logging":
            before, value = record["logging"], _logging(value)
            if before == value:
                raise invalid_parameter("No changes needed for the logging config provided")
        case "accessConfig":
            value = {**record[kind], **value}
            old, new = (_MODES.index(config["authenticationMode"]) for config in (record[kind], value))
            if new < old:
                raise invalid_parameter("Unsupported authentication mode update: it can only move towards API")
        case "resourcesVpcConfig":
            value = {**record[kind], **value}
            if set(value["subnetIds"]) != set(record[kind]["subnetIds"]):
                _move(state, record, value)
        case "deletionProtection":
            value = bool(value)
        case _:
            value = {**(record.get(kind) or {}), **value}
    record[kind] = value
    return _update(state, record, "ConfigUpdate", {kind: str(value)})


def describe_update(state: EksState, request: Json, where: Where) -> Json:
    record = state.cluster(request["name"], where)
    if request["updateId"] not in record["_updates"]:
        raise not_found(f"No update found for id {request['updateId']}")
    return {"update": record["_updates"][request["updateId"]]}


def _at_rest(state: EksState, request: Json, where: Where) -> Json:
    record = state.cluster(request["name"], where)
    if record["status"] != "ACTIVE":
        raise in_use(f"Cannot {record['name']} because cluster is currently {record['status']}")
    return record


def _update(state: EksState, record: Json, kind: str, params: dict[str, str]) -> Json:
    update = {
        "id": state.identifier(32),
        "status": "InProgress",
        "type": kind,
        "params": [{"type": key[0].upper() + key[1:], "value": value} for key, value in params.items()],
        "createdAt": state.now(),
        "errors": [],
    }
    record["_updates"][update["id"]] = update
    record |= {"status": "UPDATING", "_ready": state.later(UPDATE_SECONDS)}
    return {"update": update}


def _move(state: EksState, record: Json, network: Json) -> None:
    subnets = {identifier: state.account.subnet(identifier) for identifier in network["subnetIds"]}
    if any(subnet is None or subnet["VpcId"] != network["vpcId"] for subnet in subnets.values()):
        raise invalid_parameter("Subnets must exist and be in the cluster's VPC")
    if len({(subnet or {})["AvailabilityZone"] for subnet in subnets.values()}) < 2:
        raise invalid_parameter("Subnets specified must be in at least two different AZs")
    for interface in record["_interfaces"]:
        state.account.detach(interface)
    groups = [*network["securityGroupIds"], network["clusterSecurityGroupId"]]
    record["_interfaces"] = [
        state.account.attach(subnet_id=subnet, group_ids=groups, description=f"Amazon EKS {record['name']}")
        for subnet in subnets
    ]


def _logging(wanted: Json) -> Json:
    given = (wanted or {}).get("clusterLogging") or []
    enabled = [kind for item in given if item.get("enabled") for kind in item.get("types") or []]
    on, off = ([kind for kind in _LOG_TYPES if (kind in enabled) is side] for side in (True, False))
    return {"clusterLogging": [{"types": types, "enabled": types is on} for types in (on, off) if types]}


def settle(state: EksState, record: Json) -> None:
    """Update a cluster's status to the current time."""
    if (found := state.started(record["name"])) is not None:
        api, problem = found
        if api is None:
            record |= {"status": "FAILED", "health": {"issues": [{"code": "InternalFailure", "message": problem}]}}
            return
        record["endpoint"] = api.url
        record["certificateAuthority"] = {"data": base64.b64encode(api.certificate_authority).decode()}
    if state.now() < record["_ready"] or record["status"] not in ("CREATING", "UPDATING", "DELETING"):
        return
    if record["status"] == "DELETING":
        if not state.stopped(record["name"]):
            return
        for interface in record["_interfaces"]:
            state.account.detach(interface)
        state.account.delete_group(record["resourcesVpcConfig"]["clusterSecurityGroupId"])
        del state.clusters[record["arn"]]
    elif "endpoint" in record:
        record["status"] = "ACTIVE"
        for update in record["_updates"].values():
            update["status"] = "Successful"


def start_again(state: EksState, record: Json) -> None:
    """Restore the clusters of an earlier engine. Their APIs start without anyone waiting for them."""
    if record["status"] == "CREATING" and "endpoint" not in record:
        state.start(record["name"], state.kubernetes.create)
    elif record["status"] not in ("DELETING", "FAILED"):
        state.start(record["name"], state.kubernetes.get)
