"""EKS without an engine: its refusals, the lives of clusters and add-ons, and access to a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from cdk_hyperpod_local.engine.services import eks_access, eks_addons, eks_clusters
from cdk_hyperpod_local.engine.services.eks_state import CREATE_SECONDS, DELETE_SECONDS, EksError, EksState, Where

Json = Any
HERE = Where(account="000000000000", region="us-west-2")
ROLE = "arn:aws:iam::000000000000:role/"
ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


class Account:
    """Two zones in one VPC. The role `eks` trusts EKS, `pod` trusts pods; `nodes` is the number of joined nodes."""

    def __init__(self) -> None:
        self.nodes = 0
        self.hyperpod: list[str] = []
        self.interfaces: set[str] = set()
        self.groups = {"sg-1": "vpc-1", "sg-else": "vpc-2"}

    def subnet(self, subnet_id: str) -> Json | None:
        zones = {"subnet-a": "us-west-2a", "subnet-b": "us-west-2b", "subnet-a2": "us-west-2a"}
        return {"VpcId": "vpc-1", "AvailabilityZone": zones[subnet_id]} if subnet_id in zones else None

    def security_group(self, group_id: str) -> Json | None:
        return {"VpcId": self.groups[group_id]} if group_id in self.groups else None

    def create_group(self, *, vpc_id: str, name: str, description: str) -> str:
        self.groups["sg-cluster"] = vpc_id
        return "sg-cluster"

    def delete_group(self, group_id: str) -> None:
        del self.groups[group_id]

    def attach(self, *, subnet_id: str, group_ids: Sequence[str], description: str) -> str:
        self.interfaces.add(f"eni-{subnet_id}")
        return f"eni-{subnet_id}"

    def detach(self, interface_id: str) -> None:
        self.interfaces.remove(interface_id)

    def trusts(self, role_arn: str, service: str) -> bool | None:
        trusted = {"eks": "eks.amazonaws.com", "pod": "pods.eks.amazonaws.com", "lambda": "lambda.amazonaws.com"}
        name = role_arn.removeprefix(ROLE)
        return trusted[name] == service if name in trusted else None

    def principal_exists(self, arn: str) -> bool:
        return "nobody" not in arn

    def key_exists(self, arn: str) -> bool:
        return arn == "key"

    def hyperpod_clusters(self, arn: str) -> Sequence[str]:
        return self.hyperpod

    def running_nodes(self, arn: str) -> int:
        return self.nodes


class Api:
    url = "https://127.0.0.1:1"
    certificate_authority = b"authority"

    def __init__(self) -> None:
        self.made: list[str] = []

    def request(self, method: str, path: str, body: Json = None) -> tuple[int, Json]:
        assert method == "POST"
        self.made.append(body["metadata"]["name"])
        return 201, body


class Apis:
    def __init__(self) -> None:
        self.running: dict[str, Api] = {}
        self.broken = False

    def create(self, cluster: str) -> Api:
        if self.broken:
            raise OSError("no port left")
        self.running[cluster] = Api()
        return self.running[cluster]

    def get(self, cluster: str) -> Api | None:
        return self.running.get(cluster)

    def delete(self, cluster: str) -> None:
        self.running.pop(cluster, None)


class Rehearsed:
    """An EKS with a clock that only the test moves."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.account = Account()
        self.apis = Apis()
        self.state = EksState(account=self.account, kubernetes=self.apis, now=lambda: self.time)

    def call(self, operation: Callable[[EksState, Json, Where], Json], **request: Json) -> Json:
        self.settle()
        return operation(self.state, request, HERE)

    def settle(self) -> None:
        for record in list(self.state.clusters.values()):
            eks_clusters.settle(self.state, record)
            eks_addons.settle(self.state, record)

    def create(self, **changes: Json) -> Json:
        request = {
            "name": "one",
            "roleArn": f"{ROLE}eks",
            "version": "1.34",
            "resourcesVpcConfig": {"subnetIds": ["subnet-a", "subnet-b"], "securityGroupIds": ["sg-1"]},
            "encryptionConfig": [{"provider": {"keyArn": "key"}, "resources": ["secrets"]}],
            "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False},
            **changes,
        }
        return self.call(eks_clusters.create_cluster, **request)["cluster"]

    def cluster(self) -> Json:
        return self.call(eks_clusters.describe_cluster, name="one")["cluster"]

    def addon(self, name: str) -> Json:
        return self.call(eks_addons.describe_addon, clusterName="one", addonName=name)["addon"]

    def later(self, seconds: float) -> None:
        """The API servers start and end in threads, at any time."""
        self.time += seconds
        limit = time.monotonic() + 5
        futures: list[Future[Any]] = [*self.state._starting.values(), *self.state._ending.values()]
        while not all(future.done() for future in futures):
            assert time.monotonic() < limit
            time.sleep(0.01)


@pytest.fixture
def eks() -> Rehearsed:
    return Rehearsed()


@pytest.fixture
def active(eks: Rehearsed) -> Rehearsed:
    eks.create()
    eks.later(CREATE_SECONDS)
    assert eks.cluster()["status"] == "ACTIVE"
    return eks


# -- clusters ---------------------------------------------------------------------------------------------------------


def test_a_cluster_is_created_and_deleted(eks: Rehearsed) -> None:
    made = eks.create()
    assert made["status"] == "CREATING"
    eks.later(CREATE_SECONDS - 1)
    assert eks.cluster()["status"] == "CREATING"
    eks.later(1)
    cluster = eks.cluster()
    assert cluster["status"] == "ACTIVE"
    assert (cluster["endpoint"], cluster["certificateAuthority"]["data"]) == (Api.url, "YXV0aG9yaXR5")
    assert eks.account.interfaces == {"eni-subnet-a", "eni-subnet-b"}
    eks.call(eks_clusters.delete_cluster, name="one")
    assert eks.cluster()["status"] == "DELETING"
    eks.later(DELETE_SECONDS)
    with pytest.raises(EksError, match="No cluster found for name: one"):
        eks.cluster()
    assert (eks.account.interfaces, eks.apis.running, set(eks.account.groups)) == (set(), {}, {"sg-1", "sg-else"})


def test_cluster_whose_api_does_not_start_has_failed(eks: Rehearsed) -> None:
    eks.apis.broken = True
    eks.create()
    eks.later(CREATE_SECONDS)
    cluster = eks.cluster()
    assert (cluster["status"], cluster["health"]["issues"][0]["message"]) == ("FAILED", "OSError: no port left")


NETWORK = {"subnetIds": ["subnet-a", "subnet-b"]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"roleArn": f"{ROLE}missing"}, "does not exist"),
        ({"roleArn": f"{ROLE}lambda"}, "trusted entity is not correct"),
        ({"version": "1.19"}, "unsupported Kubernetes version"),
        ({"resourcesVpcConfig": {"subnetIds": ["subnet-a", "subnet-a2"]}}, "at least two different AZs"),
        ({"resourcesVpcConfig": {"subnetIds": ["subnet-a", "subnet-x"]}}, "subnet-x' does not exist"),
        ({"resourcesVpcConfig": {**NETWORK, "securityGroupIds": ["sg-x"]}}, "sg-x' does not exist"),
        ({"resourcesVpcConfig": {**NETWORK, "securityGroupIds": ["sg-else"]}}, "in the same VPC"),
        ({"resourcesVpcConfig": {**NETWORK, "endpointPublicAccess": False}}, "cannot be false"),
        ({"encryptionConfig": [{"provider": {"keyArn": "other"}}]}, "key other does not exist"),
        (
            {"accessConfig": {"authenticationMode": "CONFIG_MAP", "bootstrapClusterCreatorAdminPermissions": False}},
            "must be true",
        ),
    ],
)
def test_cluster_that_eks_would_refuse(eks: Rehearsed, changes: Json, reason: str) -> None:
    with pytest.raises(EksError, match=reason):
        eks.create(**changes)
    assert (eks.state.clusters, eks.account.interfaces) == ({}, set())


def test_cluster_under_hyperpod_nodes_stays(active: Rehearsed) -> None:
    active.account.hyperpod = ["training"]
    with pytest.raises(EksError, match="HyperPod clusters attached: training"):
        active.call(eks_clusters.delete_cluster, name="one")


def test_a_version_can_be_raised_by_one(active: Rehearsed) -> None:
    with pytest.raises(EksError, match="minor version update from"):
        active.call(eks_clusters.update_cluster_version, name="one", version="1.32")
    active.call(eks_clusters.update_cluster_version, name="one", version="1.35")
    with pytest.raises(EksError, match="currently UPDATING"):
        active.call(eks_clusters.update_cluster_config, name="one", deletionProtection=True)
    active.later(CREATE_SECONDS)
    assert (active.cluster()["status"], active.cluster()["version"]) == ("ACTIVE", "1.35")


def test_one_kind_of_change_at_a_time(active: Rehearsed) -> None:
    with pytest.raises(EksError, match="Only one type of update"):
        active.call(eks_clusters.update_cluster_config, name="one", deletionProtection=True, logging={})
    active.call(eks_clusters.update_cluster_config, name="one", deletionProtection=True)
    active.later(CREATE_SECONDS)
    with pytest.raises(EksError, match="deletion protection"):
        active.call(eks_clusters.delete_cluster, name="one")


# -- access -----------------------------------------------------------------------------------------------------------


def enter(eks: Rehearsed, role: str, **more: Json) -> Json:
    request = {"clusterName": "one", "principalArn": f"{ROLE}{role}", **more}
    return eks.call(eks_access.create_access_entry, **request)["accessEntry"]


def session(role: str) -> str:
    return f"arn:aws:sts::000000000000:assumed-role/{role}/me"


def test_an_access_entry_identifies_its_caller(active: Rehearsed) -> None:
    enter(active, "path/team", kubernetesGroups=["team-a"])
    enter(active, "admin")
    scope = {"type": "cluster"}
    named = {"clusterName": "one", "principalArn": f"{ROLE}admin", "policyArn": ADMIN_POLICY}
    active.call(eks_access.associate_access_policy, **named, accessScope=scope)

    def who(caller: str) -> tuple[str, list[str]] | None:
        return eks_access.identify(active.state, "one", caller)

    # A session's ARN has no path, but the entry's role has one.
    assert who(session("team")) == (session("team"), ["team-a"])
    assert who(session("admin")) == (session("admin"), ["system:masters"])
    assert who(session("stranger")) is None
    assert who(f"{ROLE}path/team") == (session("team").replace("/me", "/team"), ["team-a"])
    assert eks_access.identify(active.state, "other", session("team")) is None
    active.call(eks_access.disassociate_access_policy, **named)
    assert who(session("admin")) == (session("admin"), [])


def test_the_administrator_of_a_namespace_is_not_in_system_masters(active: Rehearsed) -> None:
    enter(active, "admin")
    named = {"clusterName": "one", "principalArn": f"{ROLE}admin", "policyArn": ADMIN_POLICY}
    scope = {"type": "namespace", "namespaces": ["a"]}
    active.call(eks_access.associate_access_policy, **named, accessScope=scope)
    assert eks_access.identify(active.state, "one", session("admin")) == (session("admin"), [])


@pytest.mark.parametrize(
    ("role", "more", "reason"),
    [
        ("nobody", {}, "invalid principal"),
        ("team", {"kubernetesGroups": ["system:masters"]}, "cannot start with system:"),
        ("team", {"type": "HYPERPOD_LINUX", "kubernetesGroups": ["a"]}, "can't set a user name or groups"),
    ],
)
def test_access_entry_that_eks_would_refuse(active: Rehearsed, role: str, more: Json, reason: str) -> None:
    with pytest.raises(EksError, match=reason):
        enter(active, role, **more)


def test_access_entries_need_a_mode_with_api(eks: Rehearsed) -> None:
    eks.create(accessConfig={"authenticationMode": "CONFIG_MAP"})
    eks.later(CREATE_SECONDS)
    with pytest.raises(EksError, match="authentication mode"):
        enter(eks, "team")


# -- add-ons ----------------------------------------------------------------------------------------------------------


def add(eks: Rehearsed, name: str, **more: Json) -> None:
    eks.call(eks_addons.create_addon, clusterName="one", addonName=name, **more)


def test_add_ons_with_pods_wait_for_a_node(active: Rehearsed) -> None:
    add(active, "vpc-cni")
    add(active, "coredns")
    active.later(eks_addons.ADDON_SECONDS)
    assert (active.addon("vpc-cni")["status"], active.addon("coredns")["status"]) == ("ACTIVE", "CREATING")
    active.account.nodes = 1
    assert active.addon("coredns")["status"] == "ACTIVE"


def test_add_on_without_a_node_is_degraded_until_one_comes(active: Rehearsed) -> None:
    add(active, "coredns")
    active.later(eks_addons.NODELESS_SECONDS)
    addon = active.addon("coredns")
    assert (addon["status"], addon["health"]["issues"][0]["code"]) == ("DEGRADED", "InsufficientNumberOfReplicas")
    active.account.nodes = 1
    assert active.addon("coredns")["status"] == "ACTIVE"


def test_training_operator_needs_cert_manager_first_and_brings_its_kind(active: Rehearsed) -> None:
    active.account.nodes = 1
    name = "amazon-sagemaker-hyperpod-training-operator"
    add(active, name)
    active.later(eks_addons.ADDON_SECONDS)
    assert active.addon(name)["status"] == "CREATE_FAILED"
    active.call(eks_addons.delete_addon, clusterName="one", addonName=name)
    add(active, "cert-manager")
    active.later(eks_addons.ADDON_SECONDS)
    add(active, name)
    assert active.apis.running["one"].made == []
    active.later(eks_addons.ADDON_SECONDS)
    assert active.addon(name)["status"] == "ACTIVE"
    assert active.apis.running["one"].made == ["hyperpodpytorchjobs.sagemaker.amazonaws.com"]


@pytest.mark.parametrize(
    ("name", "more", "reason"),
    [
        ("made-up", {}, "made-up specified is not supported"),
        ("coredns", {"addonVersion": "latest"}, "version specified is not supported"),
        ("coredns", {"serviceAccountRoleArn": f"{ROLE}missing"}, "does not exist"),
        ("amazon-sagemaker-hyperpod-taskgovernance", {"configurationValues": '{"a":1}'}, "does not take any"),
        (
            "amazon-sagemaker-hyperpod-training-operator",
            {"podIdentityAssociations": [{"serviceAccount": "a", "roleArn": f"{ROLE}pod"}]},
            "not supported for addon version",
        ),
        (
            "aws-fsx-csi-driver",
            {"podIdentityAssociations": [{"serviceAccount": "a", "roleArn": f"{ROLE}eks"}]},
            "pods.eks.amazonaws.com",
        ),
    ],
)
def test_add_on_that_eks_would_refuse(active: Rehearsed, name: str, more: Json, reason: str) -> None:
    with pytest.raises(EksError, match=reason):
        add(active, name, **more)
    assert active.call(eks_addons.list_addons, clusterName="one") == {"addons": []}


def test_add_on_takes_its_associations_along(active: Rehearsed) -> None:
    active.account.nodes = 1
    associations = [{"serviceAccount": "fsx-csi-controller-sa", "roleArn": f"{ROLE}pod"}]
    add(active, "aws-fsx-csi-driver", podIdentityAssociations=associations)

    def listed() -> list[Json]:
        return list(active.call(eks_addons.list_pod_identity_associations, clusterName="one")["associations"])

    (association,) = listed()
    assert active.addon("aws-fsx-csi-driver")["podIdentityAssociations"] == [association["associationArn"]]
    named = {"clusterName": "one", "associationId": association["associationId"]}
    with pytest.raises(EksError, match="belongs to an add-on"):
        active.call(eks_addons.delete_pod_identity_association, **named)
    twice = {"namespace": association["namespace"], "serviceAccount": association["serviceAccount"]}
    with pytest.raises(EksError, match="already exists"):
        active.call(eks_addons.create_pod_identity_association, clusterName="one", roleArn=f"{ROLE}pod", **twice)
    active.call(eks_addons.delete_addon, clusterName="one", addonName="aws-fsx-csi-driver")
    active.later(eks_addons.ADDON_SECONDS)
    assert listed() == []
