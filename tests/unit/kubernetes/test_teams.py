"""Teams: their objects, and everything for which they are refused, by full message."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from cdk_hyperpod.config.teams import PriorityClass, Team
from cdk_hyperpod.errors import Finding
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.teams import access_groups, group_name, namespace_name, pod_security_labels, team_manifests
from cdk_hyperpod.rules.teams import check_priority_classes, check_teams
from cdk_hyperpod.typed.build import structure
from helpers.kubernetes.samples import BORROWER, NEURON, PRIORITIES, RESEARCH

CLUSTER = {"ml.p5.48xlarge": 10, "ml.trn1.32xlarge": 4, "ml.g6.12xlarge": 3}
ROLE = "arn:aws:iam::111122223333:role/research"


def findings(
    *teams: Team, nodes: Mapping[str, int | None] | None = CLUSTER, governed: bool = False, autoscaling: bool = False
) -> list[str]:
    return [*map(str, check_teams(teams, nodes=nodes, task_governance=governed, autoscaling=autoscaling))]


def kinds(manifests: tuple[Manifest, ...]) -> list[str]:
    return [manifest["kind"] for manifest in manifests]


def test_the_samples_are_accepted() -> None:
    assert findings(RESEARCH, NEURON, BORROWER) == []
    assert findings(RESEARCH, NEURON, governed=True) == []


def test_a_team_has_its_own_namespace_first() -> None:
    assert kinds(team_manifests(RESEARCH, task_governance=False)) == [
        "Namespace",
        "ResourceQuota",
        "ResourceQuota",
        "LimitRange",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ]


def test_pods_with_a_role_have_a_service_account() -> None:
    team = Team(name="t", pod_role_arn="arn:aws:iam::111122223333:role/pods")
    account = team_manifests(team, task_governance=False)[-1]
    assert (account["kind"], account["metadata"]["name"], account["metadata"]["namespace"]) == (
        "ServiceAccount",
        "team-pods",
        "t",
    )


def test_under_task_governance_hyperpod_makes_the_namespace() -> None:
    manifests = team_manifests(RESEARCH, task_governance=True)
    assert kinds(manifests) == [
        "ResourceQuota",
        "ResourceQuota",
        "LimitRange",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ]
    assert {manifest["metadata"].get("namespace") for manifest in manifests} == {"hyperpod-ns-research", None}


def test_without_a_quota_there_are_no_defaults_either() -> None:
    manifests = team_manifests(Team(name="free"), task_governance=False)
    rights = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
    assert kinds(manifests) == ["Namespace", "ResourceQuota", "ResourceQuota", *rights]
    hard = manifests[1]["spec"]["hard"]
    assert not [key for key in hard if key.startswith(("requests.", "limits."))]


@pytest.mark.parametrize("governed", [False, True])
@pytest.mark.parametrize(
    "team", [RESEARCH, NEURON, Team(name="free", patch_workloads=True)], ids=lambda team: team.name
)
def test_everything_that_a_member_may_make_is_counted(team: Team, governed: bool) -> None:
    """In the team's quota, by whichever of its names: the API server of all teams keeps the objects."""
    manifests = team_manifests(team, task_governance=governed)
    (hard,) = (item["spec"]["hard"] for item in manifests if item["metadata"]["name"] == "team-quota")
    made = [
        (resource, group)
        for role in manifests
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        if {"create", "*"} & {*rule["verbs"]}
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        # What is below an object, such as its scale, its status or a shell in it, is no object of its own.
        if "/" not in resource
    ]
    assert ("services", "") in made
    uncounted = [(name, group) for name, group in made if not hard.keys() & names_in_a_quota(name, group)]
    assert uncounted == []


def names_in_a_quota(resource: str, group: str) -> set[str]:
    return {f"count/{resource}.{group}"} if group else {resource, f"count/{resource}"}


def test_a_team_may_be_allowed_load_balancers() -> None:
    hard = {"services.loadbalancers": "2", "services.nodeports": "4"}
    quota = team_manifests(Team(name="t", hard=hard), task_governance=False)[1]["spec"]["hard"]
    assert quota | hard == quota


def test_the_namespace_enforces_a_pod_security_standard() -> None:
    label = "pod-security.kubernetes.io/enforce"
    for team, level in ((Team(name="t"), "baseline"), (Team(name="t", pod_security="restricted"), "restricted")):
        assert team_manifests(team, task_governance=False)[0]["metadata"]["labels"][label] == level
        assert pod_security_labels(team) == {label: level}


def test_names_follow_awss_chart() -> None:
    assert namespace_name(NEURON, task_governance=True) == "hyperpod-ns-neuron"
    assert namespace_name(BORROWER, task_governance=False) == "borrowers-corner"
    assert group_name("hyperpod-ns-neuron") == "hyperpod-ns-neuron-namespace-level-group"


def test_a_role_in_two_teams_is_in_two_groups() -> None:
    teams = [Team(name="a", role_arns=(ROLE, f"{ROLE}-lead")), Team(name="b", role_arns=(ROLE,))]
    assert access_groups(teams, task_governance=False) == {
        ROLE: ("a-namespace-level-group", "b-namespace-level-group"),
        f"{ROLE}-lead": ("a-namespace-level-group",),
    }


LABEL = "lower-case letters, digits and hyphens, no hyphen at either end"
RESERVED = "belongs to Kubernetes, EKS or HyperPod; use one of the team's own"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"name": "Team_A"}, f"teams[Team_A].name: must be 1 to 40 {LABEL}, got 'Team_A'; change it"),
        ({"name": "a" * 41}, f"teams[{'a' * 41}].name: must be 1 to 40 {LABEL}, got '{'a' * 41}'; change it"),
        ({"name": "kube-system"}, f"teams[kube-system].name: the namespace 'kube-system' {RESERVED}"),
        ({"name": "default"}, f"teams[default].name: the namespace 'default' {RESERVED}"),
        ({"name": "aws-hyperpod"}, f"teams[aws-hyperpod].name: the namespace 'aws-hyperpod' {RESERVED}"),
        ({"name": "hyperpod-ns-x"}, f"teams[hyperpod-ns-x].name: the namespace 'hyperpod-ns-x' {RESERVED}"),
        ({"namespace": "kube-public"}, f"teams[t].namespace: the namespace 'kube-public' {RESERVED}"),
        ({"namespace": "kueue-system"}, f"teams[t].namespace: the namespace 'kueue-system' {RESERVED}"),
        ({"namespace": "-x"}, f"teams[t].namespace: must be 1 to 63 {LABEL}, got '-x'; change it"),
        ({"quota": {"ml.p5.48xlarge": 0}}, "teams[t].quota.ml.p5.48xlarge: must be 1 to 6758 nodes, got 0; change it"),
        (
            {"quota": {"ml.p5.48xlarge": 11}},
            (
                "teams: the shares of ml.p5.48xlarge add up to 11 nodes (t 11), and the cluster has 10; "
                "lower a quota and let its team borrow (borrow_limit), or raise instance_count"
            ),
        ),
        ({"borrow_limit": 0}, "teams[t].borrow_limit: must be 1 to 500, got 0; change it"),
        ({"borrow_limit": 501}, "teams[t].borrow_limit: must be 1 to 500, got 501; change it"),
        (
            {"borrow_limit": 50, "absolute_borrow_limits": {"ml.p5.48xlarge": 1}},
            "teams[t].borrow_limit: absolute_borrow_limits is set too; keep one of them: percent of the share, or nodes",
        ),
        (
            {"quota": {}, "borrow_limit": 50},
            "teams[t]: borrows, and has no quota to borrow beyond; add a quota, or borrow nothing",
        ),
        (
            {"absolute_borrow_limits": {"ml.p5.48xlarge": -1}},
            "teams[t].absolute_borrow_limits.ml.p5.48xlarge: must be 1 to 6758 nodes, got -1; change it",
        ),
        (
            {"hard": {"nvidia.com/gpu": "8"}},
            (
                "teams[t].hard.nvidia.com/gpu: a quota is not enforced under 'nvidia.com/gpu': Kubernetes limits devices by "
                "what is requested; use requests.nvidia.com/gpu"
            ),
        ),
        (
            {"role_arns": ("research",)},
            (
                "teams[t].role_arns[0]: must be an IAM role's ARN such as arn:aws:iam::111122223333:role/research, "
                "and no service's own role, got 'research'; change it"
            ),
        ),
        ({"role_arns": (ROLE, ROLE)}, f"teams[t].role_arns: '{ROLE}' is there twice; name it once"),
        (
            {"patch_workloads": True},
            (
                "teams[t].patch_workloads: applies only under task governance, which is off; remove it, or turn "
                "task governance on"
            ),
        ),
        ({"fair_share_weight": 101}, "teams[t].fair_share_weight: must be 0 to 100, got 101; change it"),
        (
            {"pod_security": "baselin"},
            "teams[t].pod_security: must be one of privileged, baseline, restricted, got 'baselin'; did you mean baseline?",
        ),
        (
            {"hard": {"limits.cpu": "179"}},
            (
                "teams[t].hard: has limits.cpu, with which Kubernetes refuses every job of hyp: they declare no CPU limit; "
                "keep requests.cpu alone; what is requested is what is shared"
            ),
        ),
        (
            {"priority_classes": ("urgent", "system-x")},
            (
                "teams[t].priority_classes[1]: must be 1 to 63 lower-case letters, digits and hyphens, not beginning with "
                "system-, got 'system-x'; change it"
            ),
        ),
        ({"priority_classes": ("a", "a")}, "teams[t].priority_classes: 'a' is there twice; name it once"),
        ({"default_vcpus": 0}, "teams[t].default_vcpus: must be 1 to 192, got 0; change it"),
        (
            {"default_vcpus": 180},
            (
                "teams[t].default_vcpus: a container that declares nothing gets 180, and the team's quota holds 179 "
                "(requests.cpu); lower it, or raise the quota: Kubernetes would refuse every such pod"
            ),
        ),
        ({"default_vcpus": 193}, "teams[t].default_vcpus: must be 1 to 192, got 193; change it"),
        (
            {"quota": {}, "hard": {"limits.memory": "3Gi"}},
            (
                "teams[t].default_memory_gib: a container that declares nothing gets 4Gi, and the team's quota holds 3Gi "
                "(limits.memory); lower it, or raise the quota: Kubernetes would refuse every such pod"
            ),
        ),
        ({"default_memory_gib": 0}, "teams[t].default_memory_gib: must be 1 to 4096, got 0; change it"),
    ],
)
def test_a_team_that_is_refused(change: dict[str, Any], finding: str) -> None:
    assert findings(dataclasses.replace(Team(name="t", quota={"ml.p5.48xlarge": 1}), **change)) == [finding]


@pytest.mark.parametrize(
    ("key", "value", "what", "least"),
    [
        ("persistentvolumeclaims", "0", "the claim on the file system", 1),
        ("count/persistentvolumeclaims", "0", "the claim on the file system", 1),
        ("count/serviceaccounts", "1", "team-pods for pod_role_arn, beside Kubernetes' own default", 2),
    ],
)
def test_a_quota_has_room_for_what_a_deployment_makes(key: str, value: str, what: str, least: int) -> None:
    """Kubernetes would refuse it, and the stack would roll back."""

    def words(hard: Mapping[str, str]) -> list[str]:
        team = dataclasses.replace(RESEARCH, hard=hard, pod_role_arn=ROLE)
        return [
            str(finding)
            for finding in check_teams(
                [team], nodes=CLUSTER, task_governance=False, autoscaling=False, has_file_system=True
            )
        ]

    assert words({key: value}) == [
        f"teams[research].hard.{key}: is {value}, and the deployment makes {what}; raise it to {least} at least"
    ]
    assert words({key: str(least)}) == []
    assert findings(dataclasses.replace(RESEARCH, hard={key: value})) == [], "nothing of the kind is made"


def test_ceilings_may_exceed_the_cluster() -> None:
    half = {"ml.p5.48xlarge": 5}
    assert findings(Team(name="a", quota=half, borrow_limit=100), Team(name="b", quota=half, borrow_limit=100)) == []


def test_shares_may_not() -> None:
    assert findings(*(Team(name=name, quota={"ml.p5.48xlarge": 6}) for name in "ab")) == [
        (
            "teams: the shares of ml.p5.48xlarge add up to 12 nodes (a 6, b 6), and the cluster has 10; "
            "lower a quota and let its team borrow (borrow_limit), or raise instance_count"
        )
    ]


def test_defaults_may_be_all_that_the_ceiling_holds() -> None:
    """What a team may borrow counts too: its ResourceQuota holds it."""
    team = Team(name="t", quota={"ml.g6.12xlarge": 1}, borrow_limit=200, default_vcpus=132, default_memory_gib=471)
    assert findings(team) == []
    assert [finding.partition(":")[0] for finding in findings(dataclasses.replace(team, borrow_limit=None))] == [
        "teams[t].default_vcpus",
        "teams[t].default_memory_gib",
    ]


def test_shares_of_types_that_nobody_can_count_are_not_compared() -> None:
    assert findings(Team(name="a", quota={"ml.p5.48xlarge": 1000}), nodes=None, autoscaling=True) == []
    assert findings(Team(name="a", quota={"ml.p5.48xlarge": 1000}), nodes={"ml.p5.48xlarge": None}) == []
    assert findings(Team(name="a", quota={"ml.p5e.48xlarge": 1}), nodes={"ml.p5.48xlarge": None}) == [
        "teams[a].quota.ml.p5e.48xlarge: no instance group has ml.p5e.48xlarge; use ml.p5.48xlarge, or add a group"
    ]


def test_a_quota_is_needed_where_nodes_are_provisioned() -> None:
    assert findings(Team(name="free")) == [
        (
            "teams[free].quota: is missing: the team 'free' may take every node of the cluster; add one such as "
            "{ml.p5.48xlarge: 8}, or acknowledge that it has no ceiling"
        )
    ]
    assert findings(Team(name="free", hard={"requests.nvidia.com/gpu": "8"})) == []
    assert findings(Team(name="free"), autoscaling=True) == [
        (
            "teams[free].quota: is missing, and autoscaling is on: the team's requests could provision nodes without limit; "
            "add one such as {ml.p5.48xlarge: 8}"
        )
    ]


def test_a_limit_of_pods_is_no_quota() -> None:
    (finding,) = findings(Team(name="free", hard={"pods": "10"}), autoscaling=True)
    assert finding.startswith("teams[free].quota: is missing, and autoscaling is on")


def test_task_governance_needs_shares_and_its_own_namespaces() -> None:
    assert findings(Team(name="free", namespace="mine"), governed=True) == [
        (
            "teams[free].namespace: under task governance HyperPod makes the namespace hyperpod-ns-free, got 'mine'; "
            "remove it, or turn task governance off"
        ),
        "teams[free].quota: is missing, and task governance gives each team a share; add one such as {ml.p5.48xlarge: 8}",
    ]


def test_a_compute_quota_holds_15_types() -> None:
    nodes = {f"ml.{family}.{size}xlarge": 1 for family in ("m5", "c5", "r6i", "m6i") for size in (2, 4, 12, 24)}
    (finding,) = findings(Team(name="t", quota=nodes), nodes=nodes, governed=True)
    assert finding == "teams[t].quota: there are 16 instance types, and a compute quota holds 15; use fewer"
    assert findings(Team(name="t", quota=nodes), nodes=nodes) == []


def test_names_and_namespaces_are_unique() -> None:
    quota = {"ml.p5.48xlarge": 1}
    assert findings(
        Team(name="a", quota=quota), Team(name="a", quota=quota), Team(name="b", namespace="a", quota=quota)
    ) == [
        "teams[1].name: an earlier team has the name 'a' too; give each team a name of its own",
        "teams[b].namespace: the team 'a' has the namespace 'a' too; give each team a namespace of its own",
    ]


def test_all_findings_come_at_once() -> None:
    team = Team(name="kube-system", quota={"x": 0}, borrow_limit=0, hard={"cpu": "many"}, role_arns=("r",))
    assert len(findings(team)) == 7


def test_tokens_are_not_judged() -> None:
    """CDK's stand-ins for values that are known at deployment."""
    assert findings(Team(name="t", quota={"ml.p5.48xlarge": 1}, role_arns=("${Token[TOKEN.13]}",))) == []


def test_unknown_keys_of_a_team() -> None:
    noted: list[Finding] = []
    structure(Team, {"name": "t", "quotas": {}, "role_arn": "x"}, noted, "teams[t]")
    assert [*map(str, noted)] == [
        "teams[t].quotas: is not a setting; did you mean quota?",
        "teams[t].role_arn: is not a setting; did you mean role_arns?",
    ]


NAME = "must be 1 to 63 lower-case letters, digits and hyphens, not beginning with system-"


@pytest.mark.parametrize(
    ("classes", "finding"),
    [
        (
            [PriorityClass(name="system-x", value=1)],
            f"priority_classes[system-x].name: {NAME}, got 'system-x'; change it",
        ),
        (
            [PriorityClass(name="x", value=1_000_000_001)],
            "priority_classes[x].value: must be -1000000000 to 1000000000, got 1000000001; change it",
        ),
        (
            [PriorityClass(name="x", value=value) for value in (1, 2)],
            "priority_classes: 2 classes have the name 'x'; keep one of them",
        ),
    ],
)
def test_priority_classes_that_are_refused(classes: list[PriorityClass], finding: str) -> None:
    assert [*map(str, check_priority_classes(classes))] == [finding]


def test_priority_classes_that_are_fine() -> None:
    assert not [*check_priority_classes(PRIORITIES)]
