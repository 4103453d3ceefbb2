"""The policy of a team that borrows, evaluated by a real CEL engine.

CI's Kubernetes API is 1.20 and has no such policies. tests/real/kubernetes/test_queue_policy.py gives the same cases to a newer one.
"""

from __future__ import annotations

import dataclasses

import pytest

from cdk_hyperpod.config.teams import Share, Team
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.teams import group_name, team_manifests
from helpers.kubernetes.admission import evaluated
from helpers.kubernetes.queued import BORROWS, CASES, NAMESPACE, OWNER, Case

POLICIES = [item for item in team_manifests(BORROWS, task_governance=True) if "AdmissionPolicy" in item["kind"]]
POLICY, BINDING = POLICIES[:2]
SCALES = {item["spec"]["paramKind"]["kind"]: item for item in POLICIES if "paramKind" in item["spec"]}
MEMBER = [group_name(NAMESPACE), "system:authenticated"]
CONTROLLER = ["system:serviceaccounts", "system:authenticated"]


def refusals(manifest: Manifest, groups: list[str], operation: str = "CREATE") -> list[str]:
    """The messages of the policy, as the API server evaluates it."""
    request = {"operation": operation, "userInfo": {"username": "somebody", "groups": groups}}
    return evaluated(POLICY["spec"], {"object": manifest, "request": request})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_workload_that_requests_accelerators_needs_a_queue(case: Case) -> None:
    messages = refusals(case.manifest, MEMBER if case.by_a_member else CONTROLLER)
    assert (len(messages) == 0) == case.admitted, messages


def test_only_a_members_change_is_checked() -> None:
    """A controller changes what existed before the policy."""
    job = next(case.manifest for case in CASES if case.name == "Job without a queue")
    assert len(refusals(job, MEMBER, "UPDATE")) == 1
    assert refusals(job, CONTROLLER, "UPDATE") == []
    ending = {**job, "metadata": {**job["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert refusals(ending, MEMBER, "UPDATE") == []


def test_a_member_of_another_group_is_no_member() -> None:
    made = next(case.manifest for case in CASES if case.name == "pod of a controller")
    assert made["metadata"]["ownerReferences"] == OWNER
    assert refusals(made, ["another-namespace-level-group"]) == []
    assert len(refusals(made, MEMBER)) == 1


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("groups", [MEMBER, CONTROLLER], ids=["member", "their autoscaler"])
@pytest.mark.parametrize(
    ("name", "replicas", "by_whom"),
    [
        ("without a queue", (1, 2), ""),
        ("without a queue", (0, 1), ""),
        ("without a queue", (2, 1), "both"),
        ("without a queue", (1, 0), "both"),
        ("with a queue", (1, 2), "both"),
        ("without accelerators", (1, 200), "both"),
        # An operator's Deployment, such as that of an endpoint for inference.
        ("of a controller", (1, 2), "controller"),
    ],
)
def test_more_replicas_need_a_queue(
    kind: str, groups: list[str], name: str, replicas: tuple[int, int], by_whom: str
) -> None:
    target = next(case.manifest for case in CASES if case.name == f"{kind} {name}")
    refused = not scaled(target, replicas, groups)
    assert refused == (by_whom not in ("both", "member" if groups is MEMBER else "controller"))


def scaled(target: Manifest, replicas: tuple[int, int], groups: list[str]) -> bool:
    """Whether the API server lets somebody scale the target. Every object of its kind in the namespace is asked."""
    before, after = ({"kind": "Scale", "spec": {"replicas": count} if count else {}} for count in replicas)
    request = {"operation": "UPDATE", "name": target["metadata"]["name"], "userInfo": {"groups": groups}}
    others = [case.manifest for case in CASES if case.manifest["kind"] == target["kind"]]
    spec = SCALES[target["kind"]]["spec"]
    return not any(
        evaluated(spec, {"object": after, "oldObject": before, "request": request, "params": each}) for each in others
    )


def test_every_scale_that_a_member_may_change_is_matched() -> None:
    (role,) = (item for item in team_manifests(BORROWS, task_governance=True) if item["kind"] == "Role")
    scales = {
        (group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if resource.endswith("/scale")
    }
    rules = [item["spec"]["matchConstraints"]["resourceRules"] for item in SCALES.values()]
    assert scales == {("apps", rule["resources"][0]) for (rule,) in rules}
    for binding in POLICIES[3::2]:
        # Of the namespace of the request, and none is no error.
        assert binding["spec"]["paramRef"] == {"selector": {}, "parameterNotFoundAction": "Allow"}


def test_every_kind_that_makes_pods_and_that_a_member_may_create_is_matched() -> None:
    (role,) = (item for item in team_manifests(BORROWS, task_governance=True) if item["kind"] == "Role")
    without_pods = {
        "configmaps", "secrets", "services", "persistentvolumeclaims", "serviceaccounts", "poddisruptionbudgets",
        "horizontalpodautoscalers",
    }  # fmt: skip
    may_create = {
        (group, resource)
        for rule in role["rules"]
        if "create" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if "/" not in resource
    }
    matched = {
        (group, resource)
        for rule in POLICY["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {resource for _, resource in may_create - matched} == without_pods


@pytest.mark.parametrize(
    ("team", "governed", "has_policy"),
    [
        (BORROWS, True, True),
        (BORROWS, False, False),
        (dataclasses.replace(BORROWS, borrow_limit=None), True, False),
        (
            Team(
                name="t", quota={"ml.p5.48xlarge": 1}, absolute_borrow_limits={"ml.p5.48xlarge": Share(accelerators=4)}
            ),
            True,
            True,
        ),
    ],
    ids=["borrows", "without task governance", "borrows nothing", "absolute"],
)
def test_a_policy_is_for_a_team_that_borrows_under_task_governance(
    team: Team, governed: bool, has_policy: bool
) -> None:
    kinds = [item["kind"] for item in team_manifests(team, task_governance=governed)]
    assert ("ValidatingAdmissionPolicy" in kinds, "ValidatingAdmissionPolicyBinding" in kinds) == (
        has_policy,
        has_policy,
    )
    if has_policy:
        assert kinds.index("ValidatingAdmissionPolicyBinding") < kinds.index("Role"), "before the members get access"


def test_the_binding_is_of_the_policy_and_denies() -> None:
    assert BINDING["spec"] == {"policyName": POLICY["metadata"]["name"], "validationActions": ["Deny"]}
    selector = POLICY["spec"]["matchConstraints"]["namespaceSelector"]
    assert selector == {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
