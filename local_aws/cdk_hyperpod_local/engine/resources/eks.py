"""AWS::EKS::Cluster, AWS::EKS::AccessEntry, AWS::EKS::Addon and AWS::EKS::PodIdentityAssociation."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from cdk_hyperpod_local.engine.resources.base import Created, Json, RefusedError, ResourceType
from cdk_hyperpod_local.engine.resources.waiting import until
from cdk_hyperpod_local.engine.services.eks import EksService
from cdk_hyperpod_local.engine.services.json_service import ServiceError

_SERVICE = "Eks"
_CODES = {
    "ResourceInUseException": "AlreadyExists",
    "ResourceNotFoundException": "NotFound",
    "InvalidParameterException": "InvalidRequest",
    "InvalidRequestException": "InvalidRequest",
}
_CLUSTER_REPLACING = (
    ("KubernetesNetworkConfig", "ServiceIpv4Cidr"),
    ("KubernetesNetworkConfig", "IpFamily"),
    ("AccessConfig", "BootstrapClusterCreatorAdminPermissions"),
)
_CLUSTER_CHANGING = (
    "AccessConfig", "ComputeConfig", "DeletionProtection", "Logging", "ResourcesVpcConfig", "StorageConfig",
    "UpgradePolicy", "ZonalShiftConfig",
)  # fmt: skip


def types(eks: EksService) -> tuple[ResourceType, ...]:
    client = _Client(eks)
    return (
        _Clusters(client).type(),
        _AccessEntries(client).type(),
        _Addons(client).type(),
        _Associations(client).type(),
    )


class _Client:
    """Calls EKS as a resource handler does."""

    def __init__(self, eks: EksService) -> None:
        self._eks = eks

    def call(self, operation: str, request: Json) -> Json:
        try:
            return self._eks.call(operation, request)
        except ServiceError as error:
            raise RefusedError(error.message, service=_SERVICE, code=_CODES.get(error.code, error.code)) from None

    def find(self, operation: str, request: Json) -> Json | None:
        """The reply; None if the resource does not exist."""
        try:
            return self._eks.call(operation, request)
        except ServiceError as error:
            if error.code == "ResourceNotFoundException":
                return None
            raise

    def status(self, operation: str, request: Json, key: str) -> str | None:
        found = self.find(operation, request)
        return str(found[key]["status"]) if found else None

    def retag(self, arn: str, old: Json, new: Json) -> None:
        before, after = tags(old), tags(new)
        removed = sorted(set(before) - set(after))
        if removed:
            self.call("UntagResource", {"resourceArn": arn, "tagKeys": removed})
        if before != after:
            self.call("TagResource", {"resourceArn": arn, "tags": after})


def tags(properties: Json) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in properties.get("Tags") or []}


def camel(value: Json) -> Json:
    """A template's property names in the form of EKS's API."""
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: camel(item) for key, item in value.items()}
    return [camel(item) for item in value] if isinstance(value, list) else value


class _Clusters:
    def __init__(self, client: _Client) -> None:
        self._client = client

    def type(self) -> ResourceType:
        return ResourceType(
            name="AWS::EKS::Cluster",
            create=self._create,
            update=self._update,
            delete=self._delete,
            read=self._read,
            read_properties=("Name", "Version", "RoleArn"),
            tag_property="Tags",
            name_property="Name",
            blocking=True,
        )

    def _create(self, logical_id: str, properties: Json, stack_name: str) -> Created:
        name = properties.get("Name") or f"{logical_id}-{uuid.uuid4().hex[:12]}"
        known = ("Version", "RoleArn", "KubernetesNetworkConfig", "EncryptionConfig", *_CLUSTER_CHANGING)
        request = {"name": name, "tags": tags(properties)}
        for key in known:
            if key in properties:
                request |= camel({key: _wire(key, properties[key])})
        self._client.call("CreateCluster", request)
        try:
            self._wait(name)
        except RefusedError:
            self._delete(name, properties)
            raise
        return name, self._attributes(name)

    def _update(self, physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
        if any((old.get(part) or {}).get(key) != (new.get(part) or {}).get(key) for part, key in _CLUSTER_REPLACING):
            return self._create(logical_id, new, stack_name)
        if old.get("Version") != new.get("Version") and "Version" in new:
            self._client.call("UpdateClusterVersion", {"name": physical_id, "version": new["Version"]})
            self._wait(physical_id)
        for key in _CLUSTER_CHANGING:
            if key in new and old.get(key) != new[key]:
                changed = camel({key: _wire(key, new[key])})
                if key == "AccessConfig":
                    changed["accessConfig"].pop("bootstrapClusterCreatorAdminPermissions", None)
                self._client.call("UpdateClusterConfig", {"name": physical_id, **changed})
                self._wait(physical_id)
        self._client.retag(self._describe(physical_id)["arn"], old, new)
        return physical_id, self._attributes(physical_id)

    def _delete(self, physical_id: str, properties: Json) -> None:
        if self._status(physical_id) is None:
            return
        self._client.call("DeleteCluster", {"name": physical_id})
        until(lambda: self._status(physical_id) is None, f"{physical_id} is still there", service=_SERVICE)

    def _read(self, physical_id: str, properties: Json) -> Json | None:
        found = self._client.find("DescribeCluster", {"name": physical_id})
        return {key[0].upper() + key[1:]: value for key, value in found["cluster"].items()} if found else None

    def _wait(self, name: str) -> None:
        until(lambda: self._status(name) in ("ACTIVE", "FAILED"), f"{name} is not ACTIVE", service=_SERVICE)
        cluster = self._describe(name)
        if cluster["status"] == "FAILED":
            raise RefusedError(cluster["health"]["issues"][0]["message"], service=_SERVICE, code="NotStabilized")

    def _status(self, name: str) -> str | None:
        return self._client.status("DescribeCluster", {"name": name}, "cluster")

    def _describe(self, name: str) -> Json:
        return self._client.call("DescribeCluster", {"name": name})["cluster"]

    def _attributes(self, name: str) -> Json:
        cluster = self._describe(name)
        return {
            "Id": name,
            "Arn": cluster["arn"],
            "Endpoint": cluster["endpoint"],
            "CertificateAuthorityData": cluster["certificateAuthority"]["data"],
            "ClusterSecurityGroupId": cluster["resourcesVpcConfig"]["clusterSecurityGroupId"],
            "EncryptionConfigKeyArn": next((it["provider"]["keyArn"] for it in cluster["encryptionConfig"]), ""),
            "OpenIdConnectIssuerUrl": cluster["identity"]["oidc"]["issuer"],
        }


def _wire(key: str, value: Json) -> Json:
    """Properties whose template form differs from the API's by more than the case of a letter."""
    if key != "Logging":
        return value
    types = [item["Type"] for item in (value.get("ClusterLogging") or {}).get("EnabledTypes") or []]
    return {"ClusterLogging": [{"Types": types, "Enabled": True}]}


class _AccessEntries:
    def __init__(self, client: _Client) -> None:
        self._client = client

    def type(self) -> ResourceType:
        return ResourceType(
            name="AWS::EKS::AccessEntry",
            create=self._create,
            update=self._update,
            delete=self._delete,
            tag_property="Tags",
        )

    def _create(self, logical_id: str, properties: Json, stack_name: str) -> Created:
        keys = ("ClusterName", "PrincipalArn", "KubernetesGroups", "Username", "Type")
        request = camel({key: properties[key] for key in keys if key in properties})
        made = self._client.call("CreateAccessEntry", {**request, "tags": tags(properties)})["accessEntry"]
        try:
            for policy in properties.get("AccessPolicies") or []:
                self._client.call("AssociateAccessPolicy", {**_entry(properties), **camel(policy)})
        except RefusedError:
            self._delete("", properties)
            raise
        return f"{properties['PrincipalArn']}|{properties['ClusterName']}", {"AccessEntryArn": made["accessEntryArn"]}

    def _update(self, physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
        changed = {key: new.get(key) for key in ("KubernetesGroups", "Username") if old.get(key) != new.get(key)}
        if changed:
            wanted = {**changed, "KubernetesGroups": new.get("KubernetesGroups") or []}
            self._client.call(
                "UpdateAccessEntry", {**_entry(new), **camel({k: v for k, v in wanted.items() if v is not None})}
            )
        before, after = ({item["PolicyArn"]: item for item in part.get("AccessPolicies") or []} for part in (old, new))
        for arn in sorted(set(before) - set(after)):
            self._client.call("DisassociateAccessPolicy", {**_entry(new), "policyArn": arn})
        for arn, policy in after.items():
            if before.get(arn) != policy:
                self._client.call("AssociateAccessPolicy", {**_entry(new), **camel(policy)})
        arn = str(self._client.call("DescribeAccessEntry", _entry(new))["accessEntry"]["accessEntryArn"])
        self._client.retag(arn, old, new)
        return physical_id, {"AccessEntryArn": arn}

    def _delete(self, physical_id: str, properties: Json) -> None:
        self._client.find("DeleteAccessEntry", _entry(properties))


def _entry(properties: Json) -> Json:
    return {"clusterName": properties["ClusterName"], "principalArn": properties["PrincipalArn"]}


class _Addons:
    def __init__(self, client: _Client) -> None:
        self._client = client

    def type(self) -> ResourceType:
        return ResourceType(
            name="AWS::EKS::Addon",
            create=self._create,
            update=self._update,
            delete=self._delete,
            read=self._read,
            read_properties=("AddonName", "ClusterName"),
            tag_property="Tags",
            blocking=True,
        )

    def _create(self, logical_id: str, properties: Json, stack_name: str) -> Created:
        self._client.call("CreateAddon", {**self._request(properties), "tags": tags(properties)})
        try:
            return self._rest(properties)
        except RefusedError:
            self._delete("", properties)
            raise

    def _update(self, physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
        request = self._request(new)
        if request != self._request(old):
            self._client.call("UpdateAddon", request)
        made = self._rest(new)
        self._client.retag(made[1]["Arn"], old, new)
        return made

    def _delete(self, physical_id: str, properties: Json) -> None:
        if self._client.find("DeleteAddon", _addon(properties)):
            until(lambda: self._status(properties) is None, f"{properties['AddonName']} stays", service=_SERVICE)

    def _read(self, physical_id: str, properties: Json) -> Json | None:
        found = self._client.find("DescribeAddon", _addon(properties))
        return {key[0].upper() + key[1:]: value for key, value in found["addon"].items()} if found else None

    def _request(self, properties: Json) -> Json:
        keys = (
            "AddonVersion", "ConfigurationValues", "PodIdentityAssociations", "ResolveConflicts", "ServiceAccountRoleArn",
        )  # fmt: skip
        return {**_addon(properties), **camel({key: properties[key] for key in keys if key in properties})}

    def _rest(self, properties: Json) -> Created:
        """Wait until the add-on is at rest.

        DEGRADED counts as created: AWS's own templates for HyperPod create CoreDNS beside the EKS cluster, before any
        node exists.
        """
        busy = ("CREATING", "UPDATING")
        until(lambda: self._status(properties) not in busy, f"{properties['AddonName']} is busy", service=_SERVICE)
        addon = self._client.call("DescribeAddon", _addon(properties))["addon"]
        if addon["status"] not in ("ACTIVE", "DEGRADED"):
            issues = "; ".join(f"{issue['code']}: {issue['message']}" for issue in addon["health"]["issues"])
            raise RefusedError(
                f"Addon {addon['addonName']} is {addon['status']}: {issues}", service=_SERVICE, code="NotStabilized"
            )
        return f"{properties['ClusterName']}|{properties['AddonName']}", {"Arn": addon["addonArn"]}

    def _status(self, properties: Json) -> str | None:
        return self._client.status("DescribeAddon", _addon(properties), "addon")


def _addon(properties: Json) -> Json:
    return {"clusterName": properties["ClusterName"], "addonName": properties["AddonName"]}


class _Associations:
    def __init__(self, client: _Client) -> None:
        self._client = client

    def type(self) -> ResourceType:
        return ResourceType(
            name="AWS::EKS::PodIdentityAssociation",
            create=self._create,
            update=self._update,
            delete=self._delete,
            tag_property="Tags",
        )

    def _create(self, logical_id: str, properties: Json, stack_name: str) -> Created:
        request = camel({key: value for key, value in properties.items() if key != "Tags"})
        call: Callable[[str, Json], Json] = self._client.call
        made = call("CreatePodIdentityAssociation", {**request, "tags": tags(properties)})["association"]
        return _associated(made)

    def _update(self, physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
        keys = ("RoleArn", "TargetRoleArn", "DisableSessionTags", "Policy")
        request = {**_association(physical_id, new), **camel({key: new[key] for key in keys if key in new})}
        made = self._client.call("UpdatePodIdentityAssociation", request)["association"]
        self._client.retag(physical_id, old, new)
        return _associated(made)

    def _delete(self, physical_id: str, properties: Json) -> None:
        self._client.find("DeletePodIdentityAssociation", _association(physical_id, properties))


def _association(arn: str, properties: Json) -> Json:
    return {"clusterName": properties["ClusterName"], "associationId": arn.rpartition("/")[2]}


def _associated(made: Json) -> Created:
    arn, identifier = str(made["associationArn"]), made["associationId"]
    return arn, {"AssociationArn": arn, "AssociationId": identifier}
