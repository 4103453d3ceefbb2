"""Access entries: the Kubernetes identity of each IAM principal in a cluster, and its EKS access policies."""

from __future__ import annotations

import re

from cdk_hyperpod_local.engine.services.eks_state import (
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

CLUSTER_ADMIN = "AmazonEKSClusterAdminPolicy"
POLICIES = (
    "AmazonEKSAdminPolicy",
    "AmazonEKSAdminViewPolicy",
    CLUSTER_ADMIN,
    "AmazonEKSEditPolicy",
    "AmazonEKSViewPolicy",
)
_POLICY_ARN = "arn:aws:eks::aws:cluster-access-policy/"
_NODE_TYPES = ("EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2", "HYBRID_LINUX", "HYPERPOD_LINUX")
_RESERVED = ("system:", "eks:", "aws:", "amazon:", "iam:")
_PRINCIPAL = re.compile(r"arn:aws[a-z-]*:iam::(?P<account>\d{12}):(?P<kind>role|user)/(?P<name>.+)")
_SESSION = re.compile(r"arn:aws[a-z-]*:sts::(?P<account>\d{12}):assumed-role/(?P<role>[^/]+)/(?P<session>.+)")


def create_access_entry(state: EksState, request: Json, where: Where) -> Json:
    cluster = state.active(request["clusterName"], where)
    principal, kind = request["principalArn"], request.get("type", "STANDARD")
    found = _PRINCIPAL.fullmatch(principal)
    if cluster["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
        raise invalid_request(
            "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation."
        )
    if not found or not state.account.principal_exists(principal):
        raise invalid_parameter("The specified principalArn is invalid: invalid principal.")
    if kind not in ("STANDARD", *_NODE_TYPES):
        raise invalid_parameter(f"The specified type is invalid: {kind}")
    if principal in cluster["_entries"]:
        raise in_use("The specified access entry resource is already in use on this cluster.")
    _check(request, kind)
    identifier = f"{found['kind']}/{found['account']}/{found['name'].rsplit('/', 1)[-1]}/{state.identifier(32)}"
    record = {
        "clusterName": cluster["name"],
        "principalArn": principal,
        "kubernetesGroups": list(request.get("kubernetesGroups") or (["system:nodes"] if kind != "STANDARD" else [])),
        "accessEntryArn": where.arn(f"access-entry/{cluster['name']}/{identifier}"),
        "createdAt": state.now(),
        "modifiedAt": state.now(),
        "tags": dict(request.get("tags") or {}),
        "username": request.get("username") or _username(found, kind),
        "type": kind,
        "_policies": {},
    }
    cluster["_entries"][principal] = record
    return {"accessEntry": shown(record)}


def _username(principal: re.Match[str], kind: str) -> str:
    if kind != "STANDARD":
        return "system:node:{{EC2PrivateDNSName}}" if kind != "HYPERPOD_LINUX" else "system:node:{{SessionName}}"
    if principal["kind"] == "user":
        return principal[0]
    role = principal["name"].rsplit("/", 1)[-1]
    return f"arn:aws:sts::{principal['account']}:assumed-role/{role}/{{{{SessionName}}}}"


def _check(request: Json, kind: str) -> None:
    groups, username = request.get("kubernetesGroups") or [], request.get("username") or ""
    if kind != "STANDARD" and (groups or username):
        raise invalid_parameter(f"You can't set a user name or groups for an access entry of type {kind}")
    for group in groups:
        if group.startswith(_RESERVED):
            prefix = group.partition(":")[0]
            raise invalid_parameter(f"The kubernetes group name {group} is invalid, it cannot start with {prefix}:")
    if username.startswith(_RESERVED):
        raise invalid_parameter(f"The username {username} is invalid, it cannot start with a reserved prefix")


def describe_access_entry(state: EksState, request: Json, where: Where) -> Json:
    return {"accessEntry": shown(_entry(state, request, where))}


def list_access_entries(state: EksState, request: Json, where: Where) -> Json:
    policy = request.get("associatedPolicyArn")
    entries = state.cluster(request["clusterName"], where)["_entries"]
    found = [principal for principal, entry in entries.items() if policy is None or policy in entry["_policies"]]
    return page(found, request, "accessEntries")


def update_access_entry(state: EksState, request: Json, where: Where) -> Json:
    record = _entry(state, request, where)
    _check(request, record["type"])
    record |= {key: request[key] for key in ("kubernetesGroups", "username") if key in request}
    record["modifiedAt"] = state.now()
    return {"accessEntry": shown(record)}


def delete_access_entry(state: EksState, request: Json, where: Where) -> Json:
    record = _entry(state, request, where)
    del state.cluster(request["clusterName"], where)["_entries"][record["principalArn"]]
    return {}


def associate_access_policy(state: EksState, request: Json, where: Where) -> Json:
    record = _entry(state, request, where)
    policy, scope = request["policyArn"], request["accessScope"]
    if record["type"] != "STANDARD":
        raise invalid_request("Access policies can only be associated with access entries of type STANDARD")
    if policy.removeprefix(_POLICY_ARN) not in POLICIES:
        raise invalid_parameter(f"The policyArn parameter is not valid: {policy}")
    namespaces = list(scope.get("namespaces") or [])
    if (scope.get("type") == "namespace") != bool(namespaces):
        raise invalid_parameter("Namespaces go with the access scope namespace, and only with it")
    now = state.now()
    association = {
        "policyArn": policy,
        "accessScope": {"type": scope["type"], "namespaces": namespaces},
        "associatedAt": record["_policies"].get(policy, {}).get("associatedAt", now),
        "modifiedAt": now,
    }
    record["_policies"][policy] = association
    return {**_named(record), "associatedAccessPolicy": association}


def disassociate_access_policy(state: EksState, request: Json, where: Where) -> Json:
    record = _entry(state, request, where)
    if record["_policies"].pop(request["policyArn"], None) is None:
        raise not_found(f"The policy {request['policyArn']} is not associated with {record['principalArn']}")
    return {}


def list_associated_access_policies(state: EksState, request: Json, where: Where) -> Json:
    record = _entry(state, request, where)
    return {**_named(record), "associatedAccessPolicies": list(record["_policies"].values())}


def list_access_policies(state: EksState, request: Json, where: Where) -> Json:
    return {"accessPolicies": [{"name": name, "arn": f"{_POLICY_ARN}{name}"} for name in POLICIES]}


def _entry(state: EksState, request: Json, where: Where) -> Json:
    cluster, principal = state.cluster(request["clusterName"], where), request["principalArn"]
    if principal not in cluster["_entries"]:
        raise not_found(f"The specified principalArn could not be found: {principal}")
    return cluster["_entries"][principal]


def _named(record: Json) -> Json:
    return {"clusterName": record["clusterName"], "principalArn": record["principalArn"]}


def identify(state: EksState, cluster_name: str, caller: str) -> tuple[str, list[str]] | None:
    """User name and groups of a caller (ARN of a role, of a role's session, or of a user) in the cluster.

    EKS's own authorizer evaluates its access policies, but Kubernetes only knows groups. So the cluster administrator's
    policy becomes the group system:masters, and the other policies grant nothing.
    """
    cluster = state.named(cluster_name)
    if cluster is None:
        return None
    session = _SESSION.fullmatch(caller)
    for entry in cluster["_entries"].values():
        if not _is(entry["principalArn"], caller, session):
            continue
        groups = list(entry["kubernetesGroups"])
        admin = entry["_policies"].get(f"{_POLICY_ARN}{CLUSTER_ADMIN}")
        if admin and admin["accessScope"]["type"] == "cluster":
            groups.append("system:masters")
        # As EKS does: a user name contains no @ of a session's name.
        name = (session["session"] if session else caller.rpartition("/")[2]).replace("@", "-")
        return str(entry["username"]).replace("{{SessionName}}", name), groups
    return None


def _is(principal: str, caller: str, session: re.Match[str] | None) -> bool:
    """A session's ARN does not contain the path of its role."""
    found = _PRINCIPAL.fullmatch(principal)
    if session is None or found is None:
        return principal == caller
    same_role = found["name"].rsplit("/", 1)[-1] == session["role"]
    return found["kind"] == "role" and found["account"] == session["account"] and same_role
