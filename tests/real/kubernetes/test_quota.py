"""Quotas and defaults, as a real API server enforces them."""

from __future__ import annotations

import dataclasses

import pytest

from cdk_hyperpod.config.jobs import ElasticPolicy
from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.facts.instance_types import catalogue
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.quotas import AWS_EXAMPLE_HARD
from cdk_hyperpod.kubernetes.replicas import replica_resources
from cdk_hyperpod.kubernetes.teams import quota_hard
from cdk_hyperpod.rules.jobs import check_job
from helpers.kubernetes.apiserver.client import Client, await_answer
from helpers.kubernetes.apiserver.objects import await_usable, install, kind_of, pod, pods_of, requesting
from helpers.kubernetes.samples import ELASTIC


def test_eight_nodes_hold_eight_replicas_and_not_one_more(admin: Client) -> None:
    member = install(admin, Team(name="eight", quota={"ml.p5.48xlarge": 8}))
    pods = pods_of(dataclasses.replace(ELASTIC, namespace="eight"))
    assert [member.create(one).status for one in pods] == [201] * 8
    pods[0]["metadata"]["name"] = "one-more"
    answer = member.create(pods[0])
    all_of = "limits.memory={memory},requests.cpu={cpu},requests.memory={memory},requests.nvidia.com/gpu={gpus},"
    all_of += "requests.vpc.amazonaws.com/efa={efa}"
    full = all_of.format(cpu=1432, memory="15120Gi", gpus=64, efa=256)
    amounts = [all_of.format(cpu=179, memory="1890Gi", gpus=8, efa=32), full, full]
    assert (answer.status, answer.message) == (
        403,
        (
            'pods "one-more" is forbidden: exceeded quota: team-quota, '
            f"requested: {amounts[0]}, used: {amounts[1]}, limited: {amounts[2]}"
        ),
    )


def test_room_comes_back_when_a_replica_ends(admin: Client) -> None:
    member = install(admin, Team(name="comes-back", quota={"ml.trn1.32xlarge": 1}))
    first, second = pods_of(
        dataclasses.replace(
            ELASTIC,
            namespace="comes-back",
            instance_type="ml.trn1.32xlarge",
            elastic_policy=ElasticPolicy(min_replicas=1, max_replicas=2, replica_increment_step=1),
        )
    )
    assert member.create(first).status == 201
    assert member.create(second).status == 403
    assert member.delete(first).status == 200
    await_answer(lambda: member.create(second), lambda answer: answer.status == 201, "room for another replica")


def test_a_team_of_cpu_nodes_gets_no_gpu(admin: Client) -> None:
    member = install(admin, Team(name="cpu-only", quota={"ml.m5.4xlarge": 4}))
    answer = member.create(pod("cpu-only", "thief", container=requesting(**{"nvidia.com/gpu": "1"})))
    assert (answer.status, answer.message) == (
        403,
        (
            'pods "thief" is forbidden: exceeded quota: team-quota, requested: requests.nvidia.com/gpu=1, '
            "used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=0"
        ),
    )


def test_with_the_guides_memory_two_nodes_of_eight_can_be_filled(admin: Client) -> None:
    team = Team(name="as-in-the-guide", quota={"ml.p5.48xlarge": 8}, hard=AWS_EXAMPLE_HARD)
    member = install(admin, team)
    job = dataclasses.replace(ELASTIC, namespace=team.name)
    assert [member.create(one).status for one in pods_of(job)][:3] == [201, 201, 403]
    # The check reports this before anything is sent.
    (finding,) = check_job(job, hard=quota_hard(team))
    assert finding.remedy == "lower it to at most 2, or raise the quota"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("bare-device", "nvidia.com/gpu"),
        ("bare-kind", "count/jobs"),
        ("one-job", "count/hyperpodpytorchjob.sagemaker.amazonaws.com"),
    ],
)
def test_a_key_that_nothing_is_counted_by_is_accepted_and_not_enforced(admin: Client, name: str, key: str) -> None:
    """The reason why `hard` refuses such a key."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team-quota", "namespace": name},
        "spec": {"hard": {key: "0"}},
    }
    admin.apply_all([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, quota])
    await_usable(admin, name, quotas=["team-quota"])
    greedy = pod(name, "greedy", container=requesting(**{"nvidia.com/gpu": "8"}))
    assert admin.create(greedy).status == 201
    metadata = {"name": "greedy", "namespace": name}
    template = {"spec": {**greedy["spec"], "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    assert admin.create(job).status == 201
    ours = {"apiVersion": "sagemaker.amazonaws.com/v1", "kind": "HyperPodPyTorchJob", "metadata": metadata}
    assert admin.create(ours).status == 201


def test_defaults_are_put_into_a_pod_that_says_nothing(admin: Client) -> None:
    member = install(admin, Team(name="silent", quota={"ml.m5.4xlarge": 1}, default_vcpus=2, default_memory_gib=8))
    answer = member.create(pod("silent", "notebook"))
    assert answer.status == 201
    assert answer.body["spec"]["containers"][0]["resources"] == {
        "limits": {"memory": "8Gi"},
        "requests": {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "1Gi"},
    }
    used = admin.get("/api/v1/namespaces/silent/resourcequotas/team-quota").body["status"]["used"]
    assert {key: used[key] for key in ("requests.cpu", "limits.memory")} == {
        "requests.cpu": "2",
        "limits.memory": "8Gi",
    }


def test_without_the_defaults_the_quota_would_refuse_it(admin: Client) -> None:
    """The reason why a team with a quota has a LimitRange."""
    member = install(admin, Team(name="strict", quota={"ml.m5.4xlarge": 1}))
    path = "/api/v1/namespaces/strict/limitranges/team-defaults"
    assert admin.request("DELETE", path).status == 200
    refused = await_answer(
        lambda: member.create(pod("strict", "silent"), dry_run=True), lambda answer: answer.status == 403, "the refusal"
    )
    # Newer versions also name the containers.
    message = refused.message.replace(" for: main", "").replace("; ", ",")
    assert message == (
        'pods "silent" is forbidden: failed quota: team-quota: must specify limits.memory,requests.cpu,requests.memory'
    )


@pytest.mark.parametrize(("name", "amount"), [("cpu", "4"), ("memory", "8Gi")])
def test_a_request_of_memory_beyond_the_default_needs_a_limit_and_one_of_cpu_none(
    admin: Client, name: str, amount: str
) -> None:
    member = install(admin, Team(name=f"half-said-{name}", quota={"ml.m5.4xlarge": 1}))
    answer = member.create(pod(f"half-said-{name}", "p", container={"resources": {"requests": {name: amount}}}))
    if name == "cpu":
        assert (answer.status, answer.body["spec"]["containers"][0]["resources"]["limits"]) == (201, {"memory": "4Gi"})
        return
    # Newer versions also name the limit.
    assert (answer.status, answer.message.removesuffix(" of 4Gi")) == (
        422,
        (
            'Pod "p" is invalid: spec.containers[0].resources.requests: Invalid value: "8Gi": must be less than or equal '
            "to memory limit"
        ),
    )


def test_where_limits_of_cpu_are_asked_for_there_is_a_default(admin: Client) -> None:
    member = install(admin, Team(name="limited", quota={"ml.m5.4xlarge": 1}, hard={"limits.cpu": "14"}))
    answer = member.create(pod("limited", "p"))
    assert (answer.status, answer.message) == (201, "")
    assert answer.body["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1"


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical"])
def test_a_pod_cannot_have_the_priority_of_the_system(admin: Client, name: str) -> None:
    """Also for a team without a quota of its own."""
    member = install(admin, Team(name=f"not-{name}"))
    answer = member.create(pod(f"not-{name}", "p", priorityClassName=name))
    assert (answer.status, answer.message) == (
        403,
        'pods "p" is forbidden: exceeded quota: no-other-priorities, requested: pods=1, used: pods=0, limited: pods=0',
    )
    assert member.create(pod(f"not-{name}", "p")).status == 201


@pytest.mark.parametrize(
    ("kind", "key"), [("LoadBalancer", "services.loadbalancers"), ("NodePort", "services.nodeports")]
)
def test_a_service_opens_no_port_to_the_network(admin: Client, kind: str, key: str) -> None:
    namespace = f"closed-{kind.lower()}"
    member = install(admin, Team(name=namespace, quota={"ml.m5.4xlarge": 1}))
    answer = member.create(service(namespace, kind))
    assert answer.status == 403
    assert answer.message.startswith('services "entry" is forbidden: exceeded quota: team-quota, ')
    assert f"{key}=1" in answer.message.partition(", used: ")[0]
    assert member.create(service(namespace, "ClusterIP")).status == 201


def test_a_team_gets_the_load_balancers_that_it_is_allowed(admin: Client) -> None:
    member = install(admin, Team(name="open", hard={"services.loadbalancers": "1", "services.nodeports": "1"}))
    assert member.create(service("open", "LoadBalancer")).status == 201
    assert member.create(service("open", "LoadBalancer", name="second")).status == 403


def test_a_pod_that_requests_nothing_is_refused(admin: Client) -> None:
    """It would count nothing in the quota, and make Karpenter create a node."""
    member = install(admin, Team(name="nothing", quota={"ml.m5.4xlarge": 1}))
    answer = member.create(pod("nothing", "p", container=requesting(cpu="0", memory="0")))
    assert answer.status == 403
    assert "minimum cpu usage per Container is 50m, but request is 0" in answer.message
    assert "minimum memory usage per Container is 10Mi, but request is 0" in answer.message


def test_the_init_container_of_kubeflows_operator_is_not_too_small(admin: Client) -> None:
    member = install(admin, Team(name="kubeflow-jobs", quota={"ml.m5.4xlarge": 1}))
    resources = {"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "20Mi"}}
    first = {"name": "init-pytorch", "image": "none", "resources": resources}
    assert member.create(pod("kubeflow-jobs", "p", initContainers=[first])).status == 201


def test_a_kind_that_comes_after_the_quota_is_refused_until_it_is_counted(admin: Client) -> None:
    """An operator that is installed after the teams. docs/team-quotas.md says how long it takes on EKS."""
    install(admin, Team(name="early", hard={"count/hyperpodpytorchjobs.late.example.com": "1"}))
    admin.apply_all([kind_of("late.example.com", "v1", "HyperPodPyTorchJob")])
    kind: Manifest = {"apiVersion": "late.example.com/v1", "kind": "HyperPodPyTorchJob"}
    first, second = (kind | {"metadata": {"namespace": "early", "name": name}} for name in ("first", "second"))
    refusal = await_answer(lambda: admin.create(first), lambda answer: answer.status != 404, "the kind")
    assert (refusal.status, refusal.message.partition(" is forbidden: ")[2]) == (
        403,
        "status unknown for quota: team-quota, resources: count/hyperpodpytorchjobs.late.example.com",
    )
    await_answer(lambda: admin.create(first), lambda answer: answer.status == 201, "the first", limit_s=180)
    assert "exceeded quota: team-quota" in admin.create(second).message


def service(namespace: str, kind: str, name: str = "entry") -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": kind, "ports": [{"port": 80}]},
    }


@pytest.mark.parametrize("count", [1, 7])
def test_the_server_reads_every_types_amounts_as_they_are_written(admin: Client, count: int) -> None:
    """Quantities are in their canonical form, so that reading them back shows no change."""
    for name in catalogue():
        hard = quota_hard(Team(name="t", quota={name: count}))
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": "default"},
            "spec": {"hard": hard},
        }
        answer = admin.create(quota, dry_run=True)
        assert (name, answer.status, answer.body["spec"]["hard"]) == (name, 201, hard)
        resources = replica_resources(dataclasses.replace(ELASTIC, instance_type=name))
        whole = admin.create(pod("default", "p", container=requesting(**resources)), dry_run=True)
        assert (name, whole.status) == (name, 201)
        assert whole.body["spec"]["containers"][0]["resources"]["requests"] == resources
