"""Add-ons and pod identity associations of EKS clusters."""

from __future__ import annotations

import json
import re

from cdk_hyperpod_local.engine.kubernetes import training_operator
from cdk_hyperpod_local.engine.services.eks_state import (
    EksState,
    Json,
    Where,
    in_use,
    invalid_parameter,
    not_found,
    page,
    shown,
)

ADDON_SECONDS = 60.0
NODELESS_SECONDS = 900.0
"""How long EKS waits for a node for an add-on's pods before the add-on becomes DEGRADED."""
TASK_GOVERNANCE = "amazon-sagemaker-hyperpod-taskgovernance"
_TRAINING_OPERATOR = "amazon-sagemaker-hyperpod-training-operator"
_DEFAULT_VERSIONS = {
    "vpc-cni": "v1.20.4-eksbuild.2",
    "kube-proxy": "v1.34.1-eksbuild.2",
    "eks-pod-identity-agent": "v1.3.10-eksbuild.2",
    "coredns": "v1.12.4-eksbuild.1",
    "cert-manager": "v1.19.1-eksbuild.1",
    "metrics-server": "v0.8.0-eksbuild.3",
    "aws-ebs-csi-driver": "v1.53.0-eksbuild.1",
    "aws-efs-csi-driver": "v2.1.15-eksbuild.1",
    "aws-fsx-csi-driver": "v1.6.0-eksbuild.1",
    "aws-mountpoint-s3-csi-driver": "v2.2.0-eksbuild.1",
    TASK_GOVERNANCE: "v1.6.1-eksbuild.1",
    _TRAINING_OPERATOR: "v1.3.0-eksbuild.1",
    "amazon-sagemaker-hyperpod-observability": "v1.2.0-eksbuild.1",
    "amazon-sagemaker-hyperpod-inference": "v2.1.0-eksbuild.1",
    "amazon-sagemaker-spaces": "v1.0.0-eksbuild.1",
}
_ONLY_DAEMON_SETS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""Healthy without a node, because they run one pod for each node."""
_MOVING = ("CREATING", "UPDATING", "DELETING", "DEGRADED")
"""A degraded add-on recovers by itself."""
_NAMESPACES = {"amazon-sagemaker-hyperpod-observability": "hyperpod-observability"}
_NEEDS = {_TRAINING_OPERATOR: "cert-manager"}


def create_addon(state: EksState, request: Json, where: Where) -> Json:
    cluster = state.active(request["clusterName"], where)
    name = request["addonName"]
    if name not in _DEFAULT_VERSIONS:
        raise invalid_parameter(f"Addon {name} specified is not supported in {cluster['version']} kubernetes version")
    if name in cluster["_addons"]:
        raise in_use(f"Addon already exists: {name}")
    version = request.get("addonVersion", _DEFAULT_VERSIONS[name])
    _check(state, request, name, version)
    record = {
        "addonName": name,
        "clusterName": cluster["name"],
        "status": "CREATING",
        "addonVersion": version,
        "health": {"issues": []},
        "addonArn": where.arn(f"addon/{cluster['name']}/{name}/{state.identifier(32)}"),
        "createdAt": state.now(),
        "modifiedAt": state.now(),
        "tags": dict(request.get("tags") or {}),
        **{key: request[key] for key in ("serviceAccountRoleArn", "configurationValues") if key in request},
        "_ready": state.later(ADDON_SECONDS),
        "_limit": state.later(NODELESS_SECONDS),
    }
    _own_associations(state, cluster, record, request.get("podIdentityAssociations") or [], where)
    cluster["_addons"][name] = record
    return {"addon": _shown(cluster, record)}


def _check(state: EksState, request: Json, name: str, version: str) -> None:
    if not re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", version):
        raise invalid_parameter(f"Addon version specified is not supported: {version}")
    if name == TASK_GOVERNANCE and request.get("configurationValues") not in (None, "", "{}"):
        # Its configuration schema is empty (`aws eks describe-addon-configuration`, v1.6.1).
        raise invalid_parameter(f"ConfigurationValue provided in request is not supported: {name} does not take any")
    if not _is_json_object(request.get("configurationValues") or "{}"):
        raise invalid_parameter(
            f"ConfigurationValue provided in request is not supported: Json schema validation failed for {name}"
        )
    if request.get("resolveConflicts", "NONE") not in ("NONE", "OVERWRITE", "PRESERVE"):
        raise invalid_parameter("resolveConflicts must be one of NONE, OVERWRITE, PRESERVE")
    role = request.get("serviceAccountRoleArn")
    if role and state.account.trusts(role, "") is None:
        raise invalid_parameter(f"The role {role} does not exist")
    associations = request.get("podIdentityAssociations") or []
    if associations and name == _TRAINING_OPERATOR:
        # v1.2.1 refused it. Its association has to be created separately, before the add-on.
        raise invalid_parameter(f"Pod Identity feature is not supported for addon version {version}")
    for association in associations:
        _check_role(state, association["roleArn"])


def _is_json_object(text: str) -> bool:
    """EKS also validates the add-on's own schema, which is not known here. (It takes YAML too.)"""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def describe_addon(state: EksState, request: Json, where: Where) -> Json:
    cluster = state.cluster(request["clusterName"], where)
    return {"addon": _shown(cluster, _addon(cluster, request["addonName"]))}


def list_addons(state: EksState, request: Json, where: Where) -> Json:
    return page(sorted(state.cluster(request["clusterName"], where)["_addons"]), request, "addons")


def update_addon(state: EksState, request: Json, where: Where) -> Json:
    cluster = state.active(request["clusterName"], where)
    record = _addon(cluster, request["addonName"])
    if record["status"] in ("CREATING", "UPDATING", "DELETING"):
        raise in_use(f"Addon {record['addonName']} is {record['status']}")
    _check(state, request, record["addonName"], request.get("addonVersion", record["addonVersion"]))
    changed = ("addonVersion", "serviceAccountRoleArn", "configurationValues")
    record |= {key: request[key] for key in changed if key in request}
    record |= {
        "status": "UPDATING",
        "modifiedAt": state.now(),
        "_ready": state.later(ADDON_SECONDS),
        "_limit": state.later(NODELESS_SECONDS),
    }
    if "podIdentityAssociations" in request:
        _disown(cluster, record)
        _own_associations(state, cluster, record, request["podIdentityAssociations"], where)
    update = {"id": state.identifier(32), "status": "InProgress", "type": "AddonUpdate", "createdAt": state.now()}
    return {"update": {**update, "params": [], "errors": []}}


def delete_addon(state: EksState, request: Json, where: Where) -> Json:
    cluster = state.cluster(request["clusterName"], where)
    record = _addon(cluster, request["addonName"])
    record |= {"status": "DELETING", "_ready": state.later(ADDON_SECONDS)}
    return {"addon": _shown(cluster, record)}


def _addon(cluster: Json, name: str) -> Json:
    if name not in cluster["_addons"]:
        raise not_found(f"No addon: {name} found in cluster: {cluster['name']}")
    return cluster["_addons"][name]


def _shown(cluster: Json, record: Json) -> Json:
    own = [arn for arn, item in cluster["_associations"].items() if item.get("ownerArn") == record["addonArn"]]
    return {**shown(record), **({"podIdentityAssociations": own} if own else {})}


def settle(state: EksState, cluster: Json) -> None:
    """Update the status of a cluster's add-ons to the current time."""
    for record in list(cluster["_addons"].values()):
        if record["status"] not in _MOVING or state.now() < record["_ready"]:
            continue
        name = record["addonName"]
        if record["status"] == "DELETING":
            _disown(cluster, record)
            del cluster["_addons"][name]
            continue
        missing = _NEEDS.get(name)
        if missing and cluster["_addons"].get(missing, {}).get("status") != "ACTIVE":
            record["status"] = "UPDATE_FAILED" if record["status"] == "UPDATING" else "CREATE_FAILED"
            _blame(record, "ConfigurationConflict", f"{name} needs the add-on {missing}, which is not there")
        elif name in _ONLY_DAEMON_SETS or state.account.running_nodes(cluster["arn"]):
            _bring_kinds(state, cluster["name"], name)
            record |= {"status": "ACTIVE", "health": {"issues": []}}
        elif state.now() >= record["_limit"]:
            record["status"] = "DEGRADED"
            _blame(record, "InsufficientNumberOfReplicas", "no nodes available to schedule pods")


def _bring_kinds(state: EksState, cluster: str, addon: str) -> None:
    """The custom resource definitions, and their objects, remain when the add-on is deleted.

    What EKS does is not documented.
    """
    api = state.kubernetes.get(cluster) if addon == _TRAINING_OPERATOR else None
    if api is not None:
        training_operator.install(api)


def _blame(record: Json, code: str, message: str) -> None:
    record["health"] = {"issues": [{"code": code, "message": message, "resourceIds": []}]}


# -- pod identity -----------------------------------------------------------------------------------------------------


def create_pod_identity_association(state: EksState, request: Json, where: Where) -> Json:
    cluster = state.active(request["clusterName"], where)
    return {"association": shown(_associate(state, cluster, request, where))}


def _associate(state: EksState, cluster: Json, request: Json, where: Where, **more: str) -> Json:
    _check_role(state, request["roleArn"])
    namespace, account = request["namespace"], request["serviceAccount"]
    for other in cluster["_associations"].values():
        if (other["namespace"], other["serviceAccount"]) == (namespace, account):
            raise in_use(f"Association already exists: {other['associationId']}")
    identifier = f"a-{state.identifier(17)}"
    record = {
        "clusterName": cluster["name"],
        "namespace": namespace,
        "serviceAccount": account,
        "roleArn": request["roleArn"],
        "associationArn": where.arn(f"podidentityassociation/{cluster['name']}/{identifier}"),
        "associationId": identifier,
        "tags": dict(request.get("tags") or {}),
        "createdAt": state.now(),
        "modifiedAt": state.now(),
        "disableSessionTags": bool(request.get("disableSessionTags", False)),
        **{key: request[key] for key in ("targetRoleArn", "policy") if request.get(key)},
        **more,
    }
    cluster["_associations"][record["associationArn"]] = record
    return record


def _check_role(state: EksState, role: str) -> None:
    if not state.account.trusts(role, "pods.eks.amazonaws.com"):
        raise invalid_parameter(
            f"Trust policy of role {role} does not let pods.eks.amazonaws.com assume it, or there is no such role"
        )


def describe_pod_identity_association(state: EksState, request: Json, where: Where) -> Json:
    return {"association": shown(_association(state, request, where))}


def list_pod_identity_associations(state: EksState, request: Json, where: Where) -> Json:
    cluster = state.cluster(request["clusterName"], where)
    keys = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId", "ownerArn")
    return {
        "associations": [
            {key: record[key] for key in keys if key in record}
            for record in cluster["_associations"].values()
            if all(request.get(key) in (None, record[key]) for key in ("namespace", "serviceAccount"))
        ]
    }


def update_pod_identity_association(state: EksState, request: Json, where: Where) -> Json:
    record = _association(state, request, where)
    if "roleArn" in request:
        _check_role(state, request["roleArn"])
    changed = ("roleArn", "targetRoleArn", "disableSessionTags", "policy")
    record |= {key: request[key] for key in changed if key in request}
    record["modifiedAt"] = state.now()
    return {"association": shown(record)}


def delete_pod_identity_association(state: EksState, request: Json, where: Where) -> Json:
    record = _association(state, request, where)
    if "ownerArn" in record:
        raise in_use(f"Association {record['associationId']} belongs to an add-on")
    del state.cluster(request["clusterName"], where)["_associations"][record["associationArn"]]
    return {"association": shown(record)}


def _association(state: EksState, request: Json, where: Where) -> Json:
    cluster = state.cluster(request["clusterName"], where)
    for record in cluster["_associations"].values():
        if record["associationId"] == request["associationId"]:
            return record
    raise not_found(f"No association with id {request['associationId']} in cluster {cluster['name']}")


def _own_associations(state: EksState, cluster: Json, addon: Json, wanted: list[Json], where: Where) -> None:
    namespace = _NAMESPACES.get(addon["addonName"], "kube-system")
    for item in wanted:
        _associate(state, cluster, {**item, "namespace": namespace}, where, ownerArn=addon["addonArn"])


def _disown(cluster: Json, addon: Json) -> None:
    kept = {arn: item for arn, item in cluster["_associations"].items() if item.get("ownerArn") != addon["addonArn"]}
    cluster["_associations"] = kept
