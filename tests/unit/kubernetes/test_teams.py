"""Teams: their objects, and everything for which they are refused, by full message."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from cdk_hyperpod.config.teams import AcceleratorPartition, PriorityClass, Share, Team
from cdk_hyperpod.errors import Finding
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.teams import access_groups, group_name, namespace_name, pod_security_labels, team_manifests
from cdk_hyperpod.rules.teams import check_priority_classes, check_teams
from cdk_hyperpod.typed.build import structure
from helpers.findings import Found, found
from helpers.kubernetes.samples import BORROWER, NEURON, PRIORITIES, RESEARCH, WORKER
from helpers.synthesis import CONFIGS
from helpers.validating import REMOVED, changed, findings_of

CLUSTER = {"ml.p5.48xlarge": 10, "ml.trn1.32xlarge": 4, "ml.g6.12xlarge": 3}
ROLE = "arn:aws:iam::111122223333:role/research"


def findings(
    *teams: Team, nodes: Mapping[str, int | None] | None = CLUSTER, governed: bool = False, autoscaling: bool = False
) -> Found:
    return found(check_teams(teams, nodes=nodes, task_governance=governed, autoscaling=autoscaling))


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
    assert [key for key in hard if key.startswith(("requests.", "limits."))] == ["requests.storage"]


@pytest.mark.parametrize("governed", [False, True])
@pytest.mark.parametrize(
    "team", [RESEARCH, NEURON, WORKER, Team(name="free", patch_workloads=True)], ids=lambda team: team.name
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
    # The Deployments' controller makes ReplicaSets, as many as the member's revisionHistoryLimit says.
    made.append(("replicasets", "apps"))
    assert [f"{name}.{group}" for name, group in made if not hard.keys() & names_in_a_quota(name, group)] == []


def test_the_order_of_work_in_the_file_changes_nothing() -> None:
    turned = dataclasses.replace(WORKER, work=WORKER.work[::-1])
    assert team_manifests(turned, task_governance=False) == team_manifests(WORKER, task_governance=False)


def test_no_team_sees_nodes_unless_the_file_says_so() -> None:
    def roles(team: Team) -> list[str]:
        manifests = team_manifests(team, task_governance=False)
        return [item["metadata"]["name"] for item in manifests if item["kind"] == "ClusterRoleBinding"]

    assert roles(Team(name="t", work=("training", "ray"))) == ["t-team-member"]
    assert roles(Team(name="t", see_nodes=True)) == ["t-team-member", "t-node-reader"]


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


P5 = "teams[t].quota.ml.p5.48xlarge"
MIG = AcceleratorPartition(type="mig-1g.10gb", count=7)


def part(**of_a_node: Any) -> dict[str, Any]:
    return {"quota": {"ml.p5.48xlarge": Share(**of_a_node)}}


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"name": "Team_A"}, ("value-malformed", "teams[Team_A].name")),
        ({"name": "a" * 41}, ("value-malformed", "teams[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa].name")),
        ({"name": "kube-system"}, ("namespace-reserved", "teams[kube-system].name")),
        ({"name": "default"}, ("namespace-reserved", "teams[default].name")),
        ({"name": "aws-hyperpod"}, ("namespace-reserved", "teams[aws-hyperpod].name")),
        ({"name": "hyperpod-ns-x"}, ("namespace-reserved", "teams[hyperpod-ns-x].name")),
        ({"namespace": "kube-public"}, ("namespace-reserved", "teams[t].namespace")),
        ({"namespace": "kueue-system"}, ("namespace-reserved", "teams[t].namespace")),
        ({"namespace": "-x"}, ("value-malformed", "teams[t].namespace")),
        ({"quota": {"ml.p5.48xlarge": 0}}, ("quota-nodes-out-of-range", "teams[t].quota.ml.p5.48xlarge")),
        (
            {"quota": {"ml.p5.48xlarge": 11}},
            ("shares-above-cluster", "teams"),
        ),
        ({"borrow_limit": 0}, ("value-out-of-range", "teams[t].borrow_limit")),
        ({"borrow_limit": 501}, ("value-out-of-range", "teams[t].borrow_limit")),
        (
            {"borrow_limit": 50, "absolute_borrow_limits": {"ml.p5.48xlarge": 1}},
            ("borrow-limits-both", "teams[t].borrow_limit"),
        ),
        (
            {"quota": {}, "borrow_limit": 50},
            ("borrow-without-quota", "teams[t]"),
        ),
        (
            {"absolute_borrow_limits": {"ml.p5.48xlarge": -1}},
            ("quota-nodes-out-of-range", "teams[t].absolute_borrow_limits.ml.p5.48xlarge"),
        ),
        (
            {"hard": {"nvidia.com/gpu": "8"}},
            ("quota-key-device", "teams[t].hard.nvidia.com/gpu"),
        ),
        (
            {"role_arns": ("research",)},
            ("value-malformed", "teams[t].role_arns[0]"),
        ),
        ({"role_arns": (ROLE, ROLE)}, ("value-duplicated", "teams[t].role_arns")),
        (
            {"patch_workloads": True},
            ("task-governance-required", "teams[t].patch_workloads"),
        ),
        ({"fair_share_weight": 101}, ("value-out-of-range", "teams[t].fair_share_weight")),
        (
            {"pod_security": "baselin"},
            ("value-misspelled", "teams[t].pod_security"),
        ),
        (
            {"hard": {"limits.cpu": "179"}},
            ("quota-of-cpu-limits", "teams[t].hard"),
        ),
        (
            {"priority_classes": ("urgent", "system-x")},
            ("value-malformed", "teams[t].priority_classes[1]"),
        ),
        ({"priority_classes": ("a", "a")}, ("value-duplicated", "teams[t].priority_classes")),
        ({"default_vcpus": 0}, ("value-out-of-range", "teams[t].default_vcpus")),
        (
            {"default_vcpus": 180},
            ("default-above-quota", "teams[t].default_vcpus"),
        ),
        ({"default_vcpus": 193}, ("value-out-of-range", "teams[t].default_vcpus")),
        (
            {"quota": {}, "hard": {"limits.memory": "3Gi"}},
            ("default-above-quota", "teams[t].default_memory_gib"),
        ),
        ({"default_memory_gib": 0}, ("value-out-of-range", "teams[t].default_memory_gib")),
        ({"work": ("trainin",)}, ("value-misspelled", "teams[t].work[0]")),
        ({"work": ("inference",)}, ("value-not-a-choice", "teams[t].work[0]")),
        ({"work": ("training", "training")}, ("value-duplicated", "teams[t].work")),
        ({"work": ("ray",)}, ("work-needs-kuberay", "teams[t].work")),
        ({"see_nodes": "yes"}, ("value-of-wrong-type", "teams[t].see_nodes")),
        (part(), ("quota-part-empty", f"{P5}")),
        (part(accelerators=0), ("value-out-of-range", f"{P5}.accelerators")),
        (part(vcpus=-1), ("value-out-of-range", f"{P5}.vcpus")),
        (part(accelerators=4, accelerator_partition=MIG), ("quota-part-both", f"{P5}.accelerator_partition")),
        (
            part(accelerator_partition=AcceleratorPartition(type="mig-1g.5gb", count=1)),
            ("quota-partition-not-of-type", f"{P5}.accelerator_partition.type"),
        ),
        (part(accelerators=81), ("shares-above-cluster", "teams")),
        ({"quota": {"ml.p5.48xlarge": 0.5}}, ("value-of-wrong-type", P5)),
        ({"lend": False}, ("task-governance-required", "teams[t].lend")),
        ({"preempt_team_tasks": "never"}, ("task-governance-required", "teams[t].preempt_team_tasks")),
    ],
)
def test_a_team_that_is_refused(change: dict[str, Any], finding: tuple[str, str]) -> None:
    assert findings(dataclasses.replace(Team(name="t", quota={"ml.p5.48xlarge": 1}), **change)) == [finding]


@pytest.mark.parametrize(
    ("key", "value", "least"),
    [
        ("persistentvolumeclaims", "0", 1),
        ("count/persistentvolumeclaims", "0", 1),
        ("count/serviceaccounts", "1", 2),
        ("requests.storage", "2399Gi", "2400Gi"),
    ],
)
def test_a_quota_has_room_for_what_a_deployment_makes(key: str, value: str, least: int | str) -> None:
    """Kubernetes would refuse it, and the stack would roll back."""

    def words(hard: Mapping[str, str]) -> Found:
        team = dataclasses.replace(RESEARCH, hard=hard, pod_role_arn=ROLE)
        return found(check_teams([team], nodes=CLUSTER, task_governance=False, autoscaling=False, file_system_gib=2400))

    assert words({key: value}) == [("quota-without-room", f"teams[research].hard.{key}")]
    assert words({key: str(least)}) == []
    assert findings(dataclasses.replace(RESEARCH, hard={key: value})) == [], "nothing of the kind is made"


def test_parts_of_a_node_share_it() -> None:
    half, node = {"ml.p5.48xlarge": Share(accelerators=4)}, {"ml.p5.48xlarge": 1}
    one = {"ml.p5.48xlarge": 1}
    assert findings(Team(name="a", quota=half), Team(name="b", quota=half), nodes=one) == []
    above = [("shares-above-cluster", "teams")]
    assert (
        findings(Team(name="a", quota=half), Team(name="b", quota=half), Team(name="c", quota=half), nodes=one) == above
    )
    assert findings(Team(name="a", quota=half), Team(name="b", quota=node), nodes=one) == above
    few = {"ml.p5.48xlarge": Share(accelerators=8, vcpus=40, memory_gib=400)}
    rest = {"ml.p5.48xlarge": Share(vcpus=152)}
    assert findings(Team(name="a", quota=few), Team(name="b", quota=rest), nodes=one) == []


def test_a_part_of_a_node_without_accelerators_has_none() -> None:
    nodes = {"ml.m5.4xlarge": 1}
    assert findings(Team(name="t", quota={"ml.m5.4xlarge": Share(vcpus=8)}), nodes=nodes) == []
    assert findings(Team(name="t", quota={"ml.m5.4xlarge": Share(accelerators=1)}), nodes=nodes) == [
        ("quota-part-without-accelerators", "teams[t].quota.ml.m5.4xlarge.accelerators")
    ]


def test_gpus_without_mig_are_not_divided() -> None:
    quota = {"ml.g6.12xlarge": Share(accelerator_partition=MIG)}
    assert findings(Team(name="t", quota=quota)) == [
        ("quota-partition-unsupported", "teams[t].quota.ml.g6.12xlarge.accelerator_partition")
    ]


def test_a_team_that_borrows_must_lend() -> None:
    team = Team(name="t", quota={"ml.p5.48xlarge": 1}, lend=False, borrow_limit=50)
    assert findings(team, governed=True) == [("borrow-without-lending", "teams[t].lend")]
    assert findings(dataclasses.replace(team, borrow_limit=None), governed=True) == []


def test_ceilings_may_exceed_the_cluster() -> None:
    half = {"ml.p5.48xlarge": 5}
    assert findings(Team(name="a", quota=half, borrow_limit=100), Team(name="b", quota=half, borrow_limit=100)) == []


def test_shares_above_the_cluster_are_an_error() -> None:
    assert findings(*(Team(name=name, quota={"ml.p5.48xlarge": 6}) for name in "ab")) == [
        ("shares-above-cluster", "teams")
    ]


def test_defaults_may_be_all_that_the_ceiling_holds() -> None:
    """What a team may borrow counts too: its ResourceQuota holds it."""
    team = Team(name="t", quota={"ml.g6.12xlarge": 1}, borrow_limit=200, default_vcpus=132, default_memory_gib=471)
    assert findings(team) == []
    assert [path for _, path in findings(dataclasses.replace(team, borrow_limit=None))] == [
        "teams[t].default_vcpus",
        "teams[t].default_memory_gib",
    ]


def test_shares_of_instance_types_with_unknown_counts_are_not_compared() -> None:
    assert findings(Team(name="a", quota={"ml.p5.48xlarge": 1000}), nodes=None, autoscaling=True) == []
    assert findings(Team(name="a", quota={"ml.p5.48xlarge": 1000}), nodes={"ml.p5.48xlarge": None}) == []
    assert findings(Team(name="a", quota={"ml.p5e.48xlarge": 1}), nodes={"ml.p5.48xlarge": None}) == [
        ("instance-type-not-in-cluster", "teams[a].quota.ml.p5e.48xlarge")
    ]


def test_a_quota_is_needed_where_nodes_are_provisioned() -> None:
    assert findings(Team(name="free")) == [("quota-missing", "teams[free].quota")]
    assert findings(Team(name="free", hard={"requests.nvidia.com/gpu": "8"})) == []
    assert findings(Team(name="free"), autoscaling=True) == [("quota-missing-with-autoscaling", "teams[free].quota")]


def test_a_limit_of_pods_is_no_quota() -> None:
    refused = [("quota-missing-with-autoscaling", "teams[free].quota")]
    assert findings(Team(name="free", hard={"pods": "10"}), autoscaling=True) == refused


def test_task_governance_needs_shares_and_its_own_namespaces() -> None:
    assert findings(Team(name="free", namespace="mine"), governed=True) == [
        ("namespace-of-task-governance", "teams[free].namespace"),
        ("quota-missing-with-task-governance", "teams[free].quota"),
    ]


def test_a_compute_quota_holds_15_types() -> None:
    nodes = {f"ml.{family}.{size}xlarge": 1 for family in ("m5", "c5", "r6i", "m6i") for size in (2, 4, 12, 24)}
    (finding,) = findings(Team(name="t", quota=nodes), nodes=nodes, governed=True)
    assert finding == ("quota-types-too-many", "teams[t].quota")
    assert findings(Team(name="t", quota=nodes), nodes=nodes) == []


def test_names_and_namespaces_are_unique() -> None:
    quota = {"ml.p5.48xlarge": 1}
    assert findings(
        Team(name="a", quota=quota), Team(name="a", quota=quota), Team(name="b", namespace="a", quota=quota)
    ) == [
        ("team-name-duplicated", "teams[1].name"),
        ("namespace-duplicated", "teams[b].namespace"),
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
    assert found(noted) == [
        ("setting-misspelled", "teams[t].quotas"),
        ("setting-misspelled", "teams[t].role_arn"),
    ]


@pytest.mark.parametrize(
    ("classes", "finding"),
    [
        (
            [PriorityClass(name="system-x", value=1)],
            ("value-malformed", "priority_classes[system-x].name"),
        ),
        (
            [PriorityClass(name="x", value=1_000_000_001)],
            ("value-out-of-range", "priority_classes[x].value"),
        ),
        (
            [PriorityClass(name="x", value=value) for value in (1, 2)],
            ("priority-class-duplicated", "priority_classes"),
        ),
    ],
)
def test_priority_classes_that_are_refused(classes: list[PriorityClass], finding: tuple[str, str]) -> None:
    assert found(check_priority_classes(classes)) == [finding]


def test_priority_classes_that_are_fine() -> None:
    assert not [*check_priority_classes(PRIORITIES)]


EKS: Mapping[str, Any] = yaml.safe_load((CONFIGS / "eks.yaml").read_text("utf-8"))


@pytest.mark.parametrize(
    ("wrong", "finding"),
    [
        ({"accelerators": "4"}, ("value-of-wrong-type", "accelerators")),
        ({"accelerators": 4, "vcpus": 1.5}, ("value-of-wrong-type", "vcpus")),
        ({"accelerator_partition": 7}, ("value-not-settings", "accelerator_partition")),
        (
            {"accelerator_partition": {"type": "mig-1g.11gb", "count": 7}},
            ("value-misspelled", "accelerator_partition.type"),
        ),
        ({"accelerator_partition": {"type": "mig-1g.10gb"}}, ("setting-missing", "accelerator_partition.count")),
    ],
)
def test_a_part_of_a_node_with_a_wrong_value_has_one_error(wrong: dict[str, Any], finding: tuple[str, str]) -> None:
    """What cannot be computed is not compared with the cluster, and the chart of the file is not looked for."""
    code, place = finding
    changes = {"teams.0.quota": {"ml.p5.48xlarge": wrong}, "eks.dependencies_chart": "installed"}
    removed = dict.fromkeys(("eks.dependencies_chart_digest", "eks.image_registry"), REMOVED)
    findings = findings_of(yaml.safe_dump(changed(changes | removed, EKS)))
    assert found(findings) == [(code, f"teams[research].quota.ml.p5.48xlarge.{place}")]


def test_partitions_that_no_compute_quota_accepts_are_not_offered() -> None:
    """AWS's SDK partitions the GPUs of this type, and AWS's API has none of its profiles."""
    quota = {"ml.p6-b300.48xlarge": Share(accelerator_partition=MIG)}
    assert findings(Team(name="t", quota=quota), nodes={"ml.p6-b300.48xlarge": 1}) == [
        ("quota-partition-unsupported", "teams[t].quota.ml.p6-b300.48xlarge.accelerator_partition")
    ]
