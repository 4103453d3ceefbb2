"""Rules of what a deployment may take away: each refuses one thing, and is silent about what lies next to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cdk_hyperpod import InstanceGroup
from cdk_hyperpod.config import ScaleDownConfig
from cdk_hyperpod.rules import check_scale_down
from cdk_hyperpod.typed.validation import check_config
from helpers.findings import Found, found
from helpers.validating import validate

GROUPS = (InstanceGroup(name="head", instance_count=1), InstanceGroup(name="work", instance_count=4))
NODES = tuple(f"i-{n:017x}" for n in range(17))


@pytest.mark.parametrize(
    ("bad", "expected", "good"),
    [
        pytest.param({"nodes_to_delete": ("i-123",)}, [("value-malformed", "scale_down.nodes_to_delete[0]")], {"nodes_to_delete": ("i-01234567",)}, id="node id: short"),
        pytest.param({"nodes_to_delete": (NODES[0].upper(),)}, [("value-malformed", "scale_down.nodes_to_delete[0]")], {"nodes_to_delete": NODES[:1]}, id="node id: upper case"),
        pytest.param({"nodes_to_delete": (NODES[0], NODES[1], NODES[0])}, [("value-duplicated", "scale_down.nodes_to_delete")], {"nodes_to_delete": NODES[:2]}, id="a node twice"),
        pytest.param({"max_nodes": 6759}, [("value-out-of-range", "scale_down.max_nodes")], {"max_nodes": 0}, id="max_nodes"),
        pytest.param({"instance_groups_to_delete": ("work",)}, [("group-kept-and-deleted", "scale_down.instance_groups_to_delete")], {"instance_groups_to_delete": ("old",)}, id="a group kept and deleted"),
        pytest.param({"instance_groups_to_delete": ("old", "old")}, [("value-duplicated", "scale_down.instance_groups_to_delete")], {"instance_groups_to_delete": ("old", "older")}, id="a group twice"),
        pytest.param({"instance_groups_to_delete": ("o l d",)}, [("value-malformed", "scale_down.instance_groups_to_delete[0]")], {"instance_groups_to_delete": ("o-l-d",)}, id="a group's name"),
    ],
)  # fmt: skip
def test_an_invalid_setting_has_its_findings_and_a_valid_one_has_no_error(
    bad: dict[str, Any], expected: Found, good: dict[str, Any]
) -> None:
    def said(settings: dict[str, Any]) -> Found:
        value = ScaleDownConfig(**settings)
        return found(check_config(value, "scale_down", lambda known: check_scale_down(known, GROUPS)))

    assert said(bad) == expected
    assert said(good) == []


@pytest.mark.parametrize("kind", [tuple, list, deque])
def test_any_sequence_of_nodes_is_the_same_frozen_value(kind: Callable[[Sequence[str]], Sequence[str]]) -> None:
    value = ScaleDownConfig(nodes_to_delete=kind(NODES[:2]), instance_groups_to_delete=kind(["old"]))

    assert value == ScaleDownConfig(nodes_to_delete=NODES[:2], instance_groups_to_delete=("old",))
    assert hash(value) and not [*check_config(value, "scale_down", lambda known: check_scale_down(known, GROUPS))]


def test_more_ids_than_max_nodes_may_stand_there() -> None:
    """Ids of nodes that are gone may stay, and only the live cluster shows which are, so the deployment checks the limit."""
    assert validate({"scale_down": {"nodes_to_delete": list(NODES), "max_nodes": 1}}) == []


def test_a_node_id_that_is_wrong_hides_no_other_mistake() -> None:
    expected = validate({"scale_down": {"nodes_to_delete": [5, "i-1", NODES[0], NODES[0]]}})

    assert expected == [
        ("value-duplicated", "scale_down.nodes_to_delete"),
        ("value-of-wrong-type", "scale_down.nodes_to_delete[0]"),
        ("value-malformed", "scale_down.nodes_to_delete[1]"),
    ]
