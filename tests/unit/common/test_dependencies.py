"""Which of the app's resources can come before the cluster, and which permission makes a policy come after it."""

from __future__ import annotations

from typing import Any

import pytest

from cdk_hyperpod._common.dependencies import cause_of_lateness
from cdk_hyperpod._common.order import reachable

GRAPH = {"Function": {"Role", "Cluster"}, "Cluster": {"Role"}, "Bucket": {"Key"}, "Loop": {"Back"}, "Back": {"Loop"}}


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (set(), set()),
        ({"Key"}, {"Key"}),
        ({"Bucket"}, {"Bucket", "Key"}),
        ({"Function"}, {"Function", "Role", "Cluster"}),
        ({"Loop"}, {"Loop", "Back"}),
        ({"Bucket", "Cluster"}, {"Bucket", "Key", "Cluster", "Role"}),
    ],
)
def test_reachable_includes_the_start_and_ends_in_a_circle(start: set[str], found: set[str]) -> None:
    assert reachable(GRAPH, start) == found


def allow(*names: str) -> dict[str, Any]:
    return {"Action": "a:B", "Resource": [{"Ref": name} for name in names]}


@pytest.mark.parametrize(
    ("statements", "cause"),
    [
        ([allow("Bucket")], None),
        ([allow("Cluster")], None),
        ([allow("Cluster", "Function")], None),
        ([allow("Bucket"), allow("Cluster")], "Cluster"),
        ([allow("Bucket"), allow("Function")], "Function"),
        ([allow("Bucket", "Function")], "Function"),
        ([allow("Bucket"), {"Action": "a:B"}], None),
    ],
    ids=str,
)
def test_a_policy_is_late_if_one_permission_waits_for_the_cluster_and_another_need_not(
    statements: list[dict[str, Any]], cause: str | None
) -> None:
    assert cause_of_lateness({"Statement": statements}, "Cluster", GRAPH) == cause
