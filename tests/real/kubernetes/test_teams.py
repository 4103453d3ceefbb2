"""Permissions of team members, as a real API server decides them.

Members act through their group, as with EKS's access entries.
"""

from __future__ import annotations

import dataclasses

import pytest

from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.kubernetes.jobs import job_manifests
from cdk_hyperpod.kubernetes.teams import team_manifests
from helpers.kubernetes.apiserver.client import Client
from helpers.kubernetes.apiserver.objects import install
from helpers.kubernetes.samples import ELASTIC, GOVERNED

JOBS = "hyperpodpytorchjobs.sagemaker.amazonaws.com"


@pytest.fixture(scope="module")
def own() -> str:
    return "rbac-own"


@pytest.fixture(scope="module")
def member(admin: Client, own: str) -> Client:
    install(admin, Team(name="rbac-other", quota={"ml.p5.48xlarge": 8}))
    return install(admin, Team(name=own, quota={"ml.p5.48xlarge": 8}))


WORK = [
    *((verb, JOBS) for verb in ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")),
    ("get", f"{JOBS}/status"),
    ("create", "jobs.batch"),
    ("create", "pods"),
    ("get", "pods/log"),
    ("create", "pods/exec"),
    ("create", "pods/portforward"),
    ("create", "configmaps"),
    ("create", "secrets"),
    ("create", "services"),
    ("create", "serviceaccounts"),
    ("create", "deployments.apps"),
    ("patch", "deployments.apps/scale"),
    ("list", "replicasets.apps"),
    ("create", "jobsets.jobset.x-k8s.io"),
    ("create", "persistentvolumeclaims"),
    ("create", "poddisruptionbudgets.policy"),
    ("list", "events"),
    ("get", "resourcequotas"),
    ("get", "limitranges"),
]
LIMITS = [
    *((verb, "resourcequotas") for verb in ("create", "update", "patch", "delete")),
    *((verb, "limitranges") for verb in ("create", "update", "patch", "delete")),
    ("update", "resourcequotas/status"),
    ("create", "roles.rbac.authorization.k8s.io"),
    ("patch", "rolebindings.rbac.authorization.k8s.io"),
    ("bind", "roles.rbac.authorization.k8s.io"),
    ("create", "serviceaccounts/token"),
    ("create", "pods/eviction"),
    ("create", "replicasets.apps"),
    ("patch", "pods/status"),
    # With these a member could receive other teams' traffic.
    ("patch", "services/status"),
    ("create", "endpoints"),
    ("create", "endpointslices.discovery.k8s.io"),
    ("delete", "namespaces"),
    ("patch", "namespaces"),
    ("update", "namespaces"),
]
CLUSTER = [
    ("watch", "namespaces"),
    ("list", "nodes"),
    ("patch", "nodes"),
    ("create", "priorityclasses.scheduling.k8s.io"),
    ("list", "persistentvolumes"),
    ("impersonate", "groups"),
    ("list", "secrets"),
    ("list", "pods"),
]


ALL = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
OTHER_WORK = {
    "training": {
        "statefulsets.apps": ALL,
        "statefulsets.apps/scale": ("get", "update", "patch"),
        "cronjobs.batch": ALL,
        "horizontalpodautoscalers.autoscaling": ALL,
        "horizontalpodautoscalers.autoscaling/status": ("get",),
    },
    "ray": {
        "rayjobs.ray.io": ALL,
        "rayclusters.ray.io": ALL,
        "rayservices.ray.io": ALL,
        "rayjobs.ray.io/status": ("get",),
    },
}
NEVER = [
    *(
        (verb, f"{kind}/status")
        for kind in ("statefulsets.apps", "cronjobs.batch", "rayjobs.ray.io")
        for verb in ALL[3:]
    ),
    ("create", "controllerrevisions.apps"),
    ("create", "daemonsets.apps"),
    ("create", "replicasets.apps"),
    ("create", "networkpolicies.networking.k8s.io"),
    ("create", "rolebindings.rbac.authorization.k8s.io"),
    ("patch", "resourcequotas"),
]


@pytest.mark.parametrize("work", OTHER_WORK)
def test_other_work_is_allowed_to_the_team_that_does_it(admin: Client, member: Client, own: str, work: str) -> None:
    name = f"does-{work}"
    (other,) = {*OTHER_WORK} - {work}
    doing = install(admin, Team(name=name, quota={"ml.p5.48xlarge": 1}, work=(work,)))  # type: ignore[arg-type]
    for resource, verbs in OTHER_WORK[work].items():
        for verb in verbs:
            assert doing.may(verb, resource, name), (verb, resource)
            assert not member.may(verb, resource, own), (verb, resource)
            assert not doing.may(verb, resource, own), (verb, resource)
            assert not doing.may(verb, resource), (verb, resource)
    for resource in OTHER_WORK[other]:
        assert not doing.may("create", resource, name), resource
    for verb, resource in NEVER:
        assert not doing.may(verb, resource, name), (verb, resource)
    assert doing.may("create", JOBS, name), "what every team may"
    for namespace in (own, "kube-system"):
        assert not doing.may("list", "secrets", namespace)
        assert not doing.may("create", "pods/exec", namespace)
    assert not doing.may("list", "nodes")


def test_a_team_sees_nodes_if_its_file_says_so(admin: Client) -> None:
    seeing = install(admin, Team(name="sees-nodes", quota={"ml.p5.48xlarge": 1}, see_nodes=True))
    assert seeing.get("/api/v1/nodes").status == 200
    assert seeing.may("get", "nodes", name="a")
    for verb in ("watch", "create", "update", "patch", "delete"):
        assert not seeing.may(verb, "nodes")
    for resource in ("nodes/status", "nodes/proxy", "nodes/log", "nodes/metrics"):
        assert not any(seeing.may(verb, resource) for verb in ALL), resource
    assert not seeing.may("list", "pods")


@pytest.mark.parametrize(("verb", "resource"), WORK)
def test_a_member_works_in_the_own_namespace_alone(member: Client, own: str, verb: str, resource: str) -> None:
    assert member.may(verb, resource, own)
    assert not member.may(verb, resource, "rbac-other")
    assert not member.may(verb, resource, "kube-system")


@pytest.mark.parametrize(("verb", "resource"), LIMITS)
def test_a_member_cannot_widen_the_limits(member: Client, own: str, verb: str, resource: str) -> None:
    assert not member.may(verb, resource, own)


@pytest.mark.parametrize(("verb", "resource"), CLUSTER)
def test_a_member_has_nothing_outside_of_namespaces(member: Client, verb: str, resource: str) -> None:
    assert not member.may(verb, resource)


def test_a_member_sees_the_own_namespace_alone(member: Client, own: str) -> None:
    assert member.get(f"/api/v1/namespaces/{own}").status == 200
    assert member.get("/api/v1/namespaces/rbac-other").status == 403


def test_a_member_is_found_in_a_namespace_as_hyp_finds_it(member: Client, own: str) -> None:
    """It lists all namespaces, and checks for each whether its caller may list jobs there."""
    listed = [item["metadata"]["name"] for item in member.get("/api/v1/namespaces?limit=200").body["items"]]
    assert [name for name in listed if member.may("list", JOBS, name)] == [own]


def test_a_member_submits_the_rendered_job(admin: Client, member: Client, own: str) -> None:
    (job,) = job_manifests(dataclasses.replace(ELASTIC, namespace=own))
    assert member.apply(job).status == 201
    stored = admin.get(f"/apis/sagemaker.amazonaws.com/v1/namespaces/{own}/hyperpodpytorchjobs/llama").body
    assert stored["spec"] == job["spec"]


def test_everything_that_goes_with_a_job(member: Client, own: str) -> None:
    for manifest in job_manifests(dataclasses.replace(GOVERNED, namespace=own, name="whole")):
        assert member.apply(manifest).status == 201


def test_in_another_namespace_the_job_is_forbidden(member: Client) -> None:
    (job,) = job_manifests(dataclasses.replace(ELASTIC, namespace="rbac-other"))
    answer = member.create(job)
    assert (answer.status, answer.message) == (
        403,
        (
            'hyperpodpytorchjobs.sagemaker.amazonaws.com is forbidden: User "someone-in-rbac-own" cannot create resource '
            '"hyperpodpytorchjobs" in API group "sagemaker.amazonaws.com" in the namespace "rbac-other"'
        ),
    )


def test_a_role_in_no_team_has_no_permission(admin: Client, own: str) -> None:
    stranger = admin.as_member("stranger", "rbac-own")
    assert not any(stranger.may(verb, resource, own) for verb, resource in WORK)


def test_a_role_in_two_teams_works_in_both(admin: Client, own: str, member: Client) -> None:
    both = admin.as_member("lead", *member.groups, "rbac-other-namespace-level-group")
    assert both.may("create", JOBS, own)
    assert both.may("create", JOBS, "rbac-other")


def test_under_task_governance_a_team_sees_its_own_queue(admin: Client) -> None:
    governed = install(admin, Team(name="g", quota={"ml.p5.48xlarge": 1}), task_governance=True)
    queues = "clusterqueues.kueue.x-k8s.io"
    assert governed.may("get", queues, name="hyperpod-ns-g-clusterqueue")
    assert not governed.may("get", queues, name="hyperpod-ns-h-clusterqueue")
    assert not governed.may("list", queues)
    assert not governed.may("update", queues, name="hyperpod-ns-g-clusterqueue")
    assert governed.may("list", "workloadpriorityclasses.kueue.x-k8s.io")
    assert governed.may("list", "workloads.kueue.x-k8s.io", "hyperpod-ns-g")
    assert not governed.may("patch", "workloads.kueue.x-k8s.io", "hyperpod-ns-g")
    assert governed.may("get", "workloads.kueue.x-k8s.io/status", "hyperpod-ns-g")
    assert not governed.may("patch", "workloads.kueue.x-k8s.io/status", "hyperpod-ns-g")
    assert not governed.may("patch", "localqueues.kueue.x-k8s.io", "hyperpod-ns-g")
    assert governed.may("create", JOBS, "hyperpod-ns-g")
    assert not governed.may("create", JOBS, "g")


def test_a_team_may_be_let_at_its_workloads(admin: Client) -> None:
    team = Team(name="as-in-the-chart", quota={"ml.p5.48xlarge": 1}, patch_workloads=True)
    governed = install(admin, team, task_governance=True)
    assert governed.may("patch", "workloads.kueue.x-k8s.io", "hyperpod-ns-as-in-the-chart")
    assert not governed.may("patch", "workloads.kueue.x-k8s.io/status", "hyperpod-ns-as-in-the-chart")


def test_applying_a_team_again_changes_nothing(admin: Client) -> None:
    team = Team(name="again", quota={"ml.p5.48xlarge": 1})
    install(admin, team)
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/again/roles/team-member"
    before = admin.get(path).body["metadata"]["resourceVersion"]
    assert [admin.apply(manifest).status for manifest in team_manifests(team, task_governance=False)] == [200] * 8
    assert admin.get(path).body["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize("name", ["Team_A", "a.b", "-a", "a-", "a" * 64])
def test_names_that_are_refused_are_refused_by_the_server_too(admin: Client, name: str) -> None:
    (namespace, *_) = team_manifests(Team(name=name), task_governance=False)
    assert admin.create(namespace, dry_run=True).status == 422
