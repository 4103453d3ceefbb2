"""Amazon EKS as a service of the engine: REST requests, which the operations of `eks_clusters` and similar modules
answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.journal import Journal
from cdk_hyperpod_local.engine.seam import services as requests
from cdk_hyperpod_local.engine.services import eks_access, eks_addons, eks_clusters, rest_routes
from cdk_hyperpod_local.engine.services.eks_state import EksError, EksState, Where, arn_of, everything, not_found
from cdk_hyperpod_local.engine.services.json_service import JsonService, failure, success

Json = Any
Operation = Callable[[EksState, Json, Where], Json]


def _tag(state: EksState, request: Json, where: Where) -> Json:
    _tagged(state, request)["tags"].update(request["tags"])
    return {}


def _untag(state: EksState, request: Json, where: Where) -> Json:
    tags = _tagged(state, request)["tags"]
    for key in request["tagKeys"]:
        tags.pop(key, None)
    return {}


def _list_tags(state: EksState, request: Json, where: Where) -> Json:
    return {"tags": _tagged(state, request)["tags"]}


def _tagged(state: EksState, request: Json) -> Json:
    for cluster in state.clusters.values():
        for record in everything(cluster):
            if arn_of(record) == request["resourceArn"]:
                return record
    raise not_found(f"The resource {request['resourceArn']} does not exist")


OPERATIONS: Mapping[str, Operation] = {
    "AssociateAccessPolicy": eks_access.associate_access_policy,
    "CreateAccessEntry": eks_access.create_access_entry,
    "CreateAddon": eks_addons.create_addon,
    "CreateCluster": eks_clusters.create_cluster,
    "CreatePodIdentityAssociation": eks_addons.create_pod_identity_association,
    "DeleteAccessEntry": eks_access.delete_access_entry,
    "DeleteAddon": eks_addons.delete_addon,
    "DeleteCluster": eks_clusters.delete_cluster,
    "DeletePodIdentityAssociation": eks_addons.delete_pod_identity_association,
    "DescribeAccessEntry": eks_access.describe_access_entry,
    "DescribeAddon": eks_addons.describe_addon,
    "DescribeCluster": eks_clusters.describe_cluster,
    "DescribePodIdentityAssociation": eks_addons.describe_pod_identity_association,
    "DescribeUpdate": eks_clusters.describe_update,
    "DisassociateAccessPolicy": eks_access.disassociate_access_policy,
    "ListAccessEntries": eks_access.list_access_entries,
    "ListAccessPolicies": eks_access.list_access_policies,
    "ListAddons": eks_addons.list_addons,
    "ListAssociatedAccessPolicies": eks_access.list_associated_access_policies,
    "ListClusters": eks_clusters.list_clusters,
    "ListPodIdentityAssociations": eks_addons.list_pod_identity_associations,
    "ListTagsForResource": _list_tags,
    "TagResource": _tag,
    "UntagResource": _untag,
    "UpdateAccessEntry": eks_access.update_access_entry,
    "UpdateAddon": eks_addons.update_addon,
    "UpdateClusterConfig": eks_clusters.update_cluster_config,
    "UpdateClusterVersion": eks_clusters.update_cluster_version,
    "UpdatePodIdentityAssociation": eks_addons.update_pod_identity_association,
}
"""Every operation that is served."""

_PASSED_TO = {
    "CreateCluster": "eks.amazonaws.com",
    "CreatePodIdentityAssociation": "pods.eks.amazonaws.com",
    "UpdatePodIdentityAssociation": "pods.eks.amazonaws.com",
}


class EksService(JsonService):
    def __init__(self, state: EksState, journal: Journal) -> None:
        super().__init__("eks", self._reply, journal)
        self.state = state

    # -- state ---------------------------------------------------------------------------------------------------------

    def get_state(self) -> Json:
        with self.lock:
            return {"clusters": self.state.clusters, "drawn": self.state.drawn}

    def load_persisted_state(self, data: Json) -> None:
        with self.lock:
            self.state.clusters, self.state.drawn = data["clusters"], data["drawn"]
            for record in self.state.clusters.values():
                eks_clusters.start_again(self.state, record)

    def reset(self) -> None:
        with self.lock:
            for record in self.state.clusters.values():
                self.state.stop(record["name"])
            self.state.clusters = {}

    # -- requests ------------------------------------------------------------------------------------------------------

    async def handle_request(
        self, method: str, path: str, headers: dict[str, str], body: bytes, query: Json
    ) -> requests.Reply:
        try:
            found = rest_routes.read("eks", method, path, body, query)
        except ValueError as error:
            return failure("InvalidRequestException", str(error))
        if found is None:
            return failure("InvalidRequestException", f"no operation is {method} {path}")
        operation, request = found
        if operation in _PASSED_TO and "roleArn" in request:
            context = {"iam:PassedToService": _PASSED_TO[operation]}
            if message := requests.denied(headers, query, "iam:PassRole", request["roleArn"], context):
                return failure("AccessDeniedException", message, 403)
        with self.lock:
            caller = requests.caller(headers, query)
            return self._reply(operation, json.dumps(request).encode(), caller, seam.account(), seam.region())

    def observe_path(self, method: str, path: str, headers: Json, body: bytes, query: Json, reply: Json) -> None:
        """Record a request that came in over HTTP."""
        try:
            found = rest_routes.read("eks", method, path, body, query)
        except ValueError:
            found = None
        operation, request = found or (f"{method} {path}", {})
        self._note(requests.caller(headers, query), operation, json.dumps(request).encode(), reply[0], reply[2])

    def _reply(self, operation: str, body: bytes, caller: str, account: str, region: str) -> requests.Reply:
        serve = OPERATIONS.get(operation)
        if serve is None:
            return failure("InvalidRequestException", f"{operation} is not modelled by this engine")
        try:
            self._settle()
            return success(serve(self.state, json.loads(body), Where(account=account, region=region)))
        except EksError as error:
            return failure(error.code, error.message, error.status)
        except KeyError as missing:
            return failure("InvalidParameterException", f"{missing.args[0]} is required")

    def _settle(self) -> None:
        for record in list(self.state.clusters.values()):
            eks_clusters.settle(self.state, record)
            eks_addons.settle(self.state, record)

    # -- what others have to know --------------------------------------------------------------------------------------

    def cluster(self, arn: str) -> Json | None:
        """The current state of a cluster."""
        with self.lock:
            self._settle()
            return self.state.clusters.get(arn)

    def endpoints(self) -> dict[str, str]:
        """ARN -> name of the clusters that have a Kubernetes API."""
        with self.lock:
            found = self.state.clusters.items()
            return {arn: cluster["name"] for arn, cluster in found if cluster["status"] in ("ACTIVE", "UPDATING")}

    def identify(self, cluster: str, caller: str) -> tuple[str, list[str]] | None:
        """User name and groups of this caller in the cluster of this name; None if no access entry admits the
        caller."""
        with self.lock:
            return eks_access.identify(self.state, cluster, caller)

    def tagged(self) -> Iterator[tuple[str, list[Json]]]:
        for cluster in list(self.state.clusters.values()):
            for record in everything(cluster):
                yield arn_of(record), [{"Key": key, "Value": value} for key, value in record["tags"].items()]

    def resource(self, operation: str, request: Json) -> str | None:
        """The ARN that policies name for this call."""
        where = Where(account=seam.account(), region=seam.region())
        name = request.get("clusterName") or request.get("name")
        if "resourceArn" in request:
            return str(request["resourceArn"])
        if operation in ("ListClusters", "ListAccessPolicies"):
            return "*"
        for cluster in self.state.of(where):
            if cluster["name"] != name or operation.startswith(("Create", "List")):
                continue
            record = _child(cluster, request)
            if record is not None:
                return arn_of(record)
        return where.arn(f"cluster/{name}") if name else None


def _child(cluster: Json, request: Json) -> Json | None:
    """The part of the cluster that the request is for."""
    if "associationId" in request:
        associations = cluster["_associations"].values()
        return next((item for item in associations if item["associationId"] == request["associationId"]), None)
    if "addonName" in request:
        return cluster["_addons"].get(request["addonName"])
    return cluster["_entries"].get(request.get("principalArn"))


def install(state: EksState, journal: Journal) -> EksService:
    """Replaces ministack's EKS, which runs k3s in docker or, without docker, nothing."""
    service = EksService(state, journal)
    requests.register_service("eks", service, target_prefix=None, tagged=service.tagged)
    requests.resolve_rest("eks", rest_routes.read, service.resource)
    return service
