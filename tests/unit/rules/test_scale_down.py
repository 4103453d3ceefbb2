"""Rules of what a deployment may take away: each refuses one thing, and is silent about what lies next to it."""

from __future__ import annotations

from typing import Any

import pytest

from cdk_hyperpod import InstanceGroup
from cdk_hyperpod.config import ScaleDownConfig
from cdk_hyperpod.rules import check_scale_down
from cdk_hyperpod.typed.judge import check_config
from helpers.judging import judge

GROUPS = (InstanceGroup(name="head", instance_count=1), InstanceGroup(name="work", instance_count=4))
NODES = tuple(f"i-{n:017x}" for n in range(17))
NODE_ID = "must be an instance id such as i-0123456789abcdef0"


@pytest.mark.parametrize(
    ("bad", "messages", "good"),
    [
        pytest.param({"nodes_to_delete": ("i-123",)}, [f"scale_down.nodes_to_delete[0]: {NODE_ID}, got 'i-123'; change it"], {"nodes_to_delete": ("i-01234567",)}, id="node id: short"),
        pytest.param({"nodes_to_delete": (NODES[0].upper(),)}, [f"scale_down.nodes_to_delete[0]: {NODE_ID}, got 'I-{'0' * 17}'; change it"], {"nodes_to_delete": NODES[:1]}, id="node id: upper case"),
        pytest.param({"nodes_to_delete": (NODES[0], NODES[1], NODES[0])}, [f"scale_down.nodes_to_delete: '{NODES[0]}' is there twice; name it once"], {"nodes_to_delete": NODES[:2]}, id="a node twice"),
        pytest.param({"max_nodes": 6759}, ["scale_down.max_nodes: must be 0 to 6758, got 6759; change it"], {"max_nodes": 0}, id="max_nodes"),
        pytest.param({"instance_groups_to_delete": ("work",)}, ["scale_down.instance_groups_to_delete: the group 'work' is to be deleted, and is still in instance_groups; remove it from one of the two"], {"instance_groups_to_delete": ("old",)}, id="a group kept and deleted"),
        pytest.param({"instance_groups_to_delete": ("old", "old")}, ["scale_down.instance_groups_to_delete: 'old' is there twice; name it once"], {"instance_groups_to_delete": ("old", "older")}, id="a group twice"),
        pytest.param({"instance_groups_to_delete": ("o l d",)}, ["scale_down.instance_groups_to_delete[0]: must be 1 to 63 letters, digits and hyphens, no hyphen at either end, got 'o l d'; change it"], {"instance_groups_to_delete": ("o-l-d",)}, id="a group's name"),
    ],
)  # fmt: skip
def test_rule(bad: dict[str, Any], messages: list[str], good: dict[str, Any]) -> None:
    def said(settings: dict[str, Any]) -> list[str]:
        value = ScaleDownConfig(**settings)
        return [*map(str, check_config(value, "scale_down", lambda known: check_scale_down(known, GROUPS)))]

    assert said(bad) == messages
    assert said(good) == []


def test_more_ids_than_max_nodes_may_stand_there() -> None:
    """Ids of nodes that are gone may stay, and only the live cluster tells which are: the deployment judges the limit."""
    assert judge({"scale_down": {"nodes_to_delete": list(NODES), "max_nodes": 1}}) == []


def test_a_node_id_that_is_wrong_hides_no_other_mistake() -> None:
    messages = judge({"scale_down": {"nodes_to_delete": [5, "i-1", NODES[0], NODES[0]]}})

    assert messages == [
        f"scale_down.nodes_to_delete: '{NODES[0]}' is there twice; name it once",
        "scale_down.nodes_to_delete[0]: must be text, got 5; put it in quotes",
        f"scale_down.nodes_to_delete[1]: {NODE_ID}, got 'i-1'; change it",
    ]
