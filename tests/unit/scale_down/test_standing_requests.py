"""What a request knows of its own first look, and what it makes of HyperPod's replies that contradict each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.model.properties import PREPARE
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import Provider, ScaleDownError
from cdk_hyperpod_local.hyperpod.samples import VPC
from helpers.scale_down.clusters import node_id
from helpers.scale_down.stack import STACK_ID, Template, group

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)


class HyperPod:
    """A group p5 whose nodes have the statuses that are written here; both reads show it as it is when they are made."""

    def __init__(self, *statuses: str, target: int, current: int | None = None, continuous: bool = True) -> None:
        self.statuses = list(statuses)
        self.target, self.current = target, len(statuses) if current is None else current
        self.continuous = continuous
        self.minutes = 0.0
        self.asked: list[list[str]] = []
        self.recorded: Mapping[str, Any] = {}
        """What CloudFormation's events show of the properties."""

    def describe_cluster(self, **_: Any) -> Mapping[str, Any]:
        p5 = {
            "InstanceGroupName": "p5",
            "Status": "InService",
            "CurrentCount": self.current,
            "TargetCount": self.target,
        }
        mode = {"NodeProvisioningMode": "Continuous"} if self.continuous else {}
        here = {"ClusterArn": "arn:x", "ClusterStatus": "InService", "VpcConfig": VPC}
        return {**here, "InstanceGroups": [p5], **mode}

    def list_cluster_nodes(self, **_: Any) -> Mapping[str, Any]:
        found = [
            {
                "InstanceGroupName": "p5",
                "InstanceId": node_id(number),
                "InstanceStatus": {"Status": status},
                "LaunchTime": BEGAN - timedelta(days=1) + timedelta(minutes=number),
            }
            for number, status in enumerate(self.statuses, start=1)
        ]
        return {"ClusterNodeSummaries": found}

    def list_tags(self, **_: Any) -> Mapping[str, Any]:
        return {"Tags": [{"Key": "cdk-hyperpod:stack-id", "Value": STACK_ID}]}

    def batch_delete_cluster_nodes(self, **asked: Any) -> Mapping[str, Any]:
        self.asked.append(list(asked["NodeIds"]))
        return {}

    def describe_stacks(self, **_: Any) -> Mapping[str, Any]:
        return {"Stacks": [{"StackStatus": "UPDATE_IN_PROGRESS"}]}

    def describe_stack_events(self, **_: Any) -> Mapping[str, Any]:
        status = {"ResourceStatus": "UPDATE_IN_PROGRESS", "Timestamp": BEGAN - timedelta(minutes=2)}
        prepare = {
            "ResourceType": PREPARE,
            "LogicalResourceId": "Prepare",
            "ResourceProperties": json.dumps(self.recorded),
        }
        of_stack = {"ResourceType": "AWS::CloudFormation::Stack", "PhysicalResourceId": STACK_ID, "EventId": "0a1b2c"}
        return {"StackEvents": [prepare | status, of_stack | status]}


class Request:
    """An update of the group's count, first looked at when it is made."""

    def __init__(self, hyperpod: Any, *, count: int) -> None:
        self.provider = Provider(
            lambda: hyperpod,
            lambda: hyperpod,
            s3=lambda: hyperpod,
            functions=lambda: hyperpod,
            now=lambda: BEGAN + timedelta(minutes=hyperpod.minutes),
            sleep=lambda _: None,
            log=lambda _: None,
        )
        self.event: dict[str, Any] = {
            "RequestType": "Update",
            "StackId": STACK_ID,
            "ResourceType": PREPARE,
            "LogicalResourceId": "Prepare",
            "ResourceProperties": Template(groups=(group("p5", count),)).prepare,
            "OldResourceProperties": Template(groups=(group("p5", 8),)).prepare,
        }
        hyperpod.recorded = self.event["ResourceProperties"]
        self.event |= self.provider.on_event(self.event)

    def poll(self) -> bool:
        return bool(self.provider.is_complete(self.event)["IsComplete"])


def test_list_that_shows_taken_nodes_as_they_were_costs_no_other_node() -> None:
    hyperpod = HyperPod(*["Running"] * 8, target=8)
    request = Request(hyperpod, count=6)
    assert not request.poll()
    hyperpod.statuses[2] = "Failure"  # It would go first, were the two others not chosen already.
    assert not request.poll()
    assert hyperpod.asked == [[node_id(8), node_id(7)]] * 2


def test_node_that_boots_between_the_two_reads_hides_no_ended_one() -> None:
    """CurrentCount leaves out the booting node and holds an ended one; whichever read comes first, the wait goes on."""

    class Boots(HyperPod):
        def boots(self) -> None:
            if "Pending" in self.statuses:
                self.statuses, self.current = ["Running"] * 6, 7

        def describe_cluster(self, **asked: Any) -> Mapping[str, Any]:
            reply = super().describe_cluster(**asked)
            self.boots()
            return reply

        def list_cluster_nodes(self, **asked: Any) -> Mapping[str, Any]:
            reply = super().list_cluster_nodes(**asked)
            self.boots()
            return reply

    hyperpod = Boots(*["Running"] * 8, target=8)
    request = Request(hyperpod, count=6)
    hyperpod.statuses, hyperpod.target, hyperpod.current = [*["Running"] * 5, "Pending"], 6, 6
    assert not request.poll()


@pytest.mark.parametrize("continuous", [True, False])
def test_target_has_half_an_hour_to_fall_with_nodes_that_went_late(continuous: bool) -> None:
    """A node may be in use, or its group busy, for a while; nothing tells when it was taken."""
    hyperpod = HyperPod(*["Running"] * 8, target=8, continuous=continuous)
    request = Request(hyperpod, count=6)
    hyperpod.statuses, hyperpod.current, hyperpod.minutes = ["Running"] * 6, 6, 29
    assert not request.poll()
    hyperpod.target = 6
    assert request.poll()
    hyperpod.target, hyperpod.minutes = 8, 31
    if continuous:
        hyperpod.update_cluster = lambda **asked: {}  # type: ignore[attr-defined]
        assert not request.poll()
    else:
        with pytest.raises(ScaleDownError, match=r"\[target-does-not-fall\]"):
            request.poll()
