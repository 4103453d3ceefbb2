"""What `patch` reads of HyperPod and of the stack, besides what `live` does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..._lambda.hyperpod.common import api
from ..._lambda.hyperpod.kernel.cluster_reading import counts, group_status, own_groups
from ...facts.instance_types import catalogue
from ...names import cluster_stack_name
from .. import aws, live, tables
from ..deployment.deployed_stack import tagged_stack
from ..live import Node, Target
from ..nodes.events import event_reasons
from ..nodes.watch_view import is_under_way
from .model import Group, Plan

_MOST_EVENTS = 20


@dataclass
class Reader:
    """Reads the cluster, its groups, and its stack."""

    target: Target
    _stack: str = ""

    def groups(self, described: live.Reply, only: str | None = None) -> list[Group]:
        """The groups with their nodes, of which each 100 cost a call. `only`: the nodes of this group alone are listed."""
        listed: dict[str, list[Node]] = {}
        for node in live.nodes(self.target, described, only):
            listed.setdefault(node.group, []).append(node)
        kinds = live.node_types(self.target, described)
        return [
            read_group(group, kinds.get(name), listed.get(name, ()))
            for group in own_groups(described)
            for name in [str(group["InstanceGroupName"])]
        ]

    def group(self, described: live.Reply, name: str) -> Group | None:
        """One group with its nodes. None: it does not exist any more."""
        return next((group for group in self.groups(described, name) if group.name == name), None)

    def deployment(self, described: live.Reply) -> str:
        """The stack that a deployment is changing, with its status. Empty: none."""
        found = self._describe_stack(self._stack or cluster_stack_name(self.target.name))
        if found is None and not self._stack:
            # Another app has the cluster.
            sagemaker = self.target.client("sagemaker")
            self._stack = tagged_stack(api.read_tags(sagemaker, str(described["ClusterArn"]))) or ""
            found = self._describe_stack(self._stack) if self._stack else None
        self._stack = self._stack or cluster_stack_name(self.target.name)
        return tables.shown(f"{found['StackName']} ({found['StackStatus']})") if found and is_under_way(found) else ""

    def _describe_stack(self, name: str) -> live.Reply | None:
        try:
            stack: live.Reply = self.target.client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
        except api.CALL_ERRORS as error:
            if "does not exist" in str(error):
                return None
            raise
        return stack

    def may_update(self, described: live.Reply) -> tuple[bool | None, str]:
        """Whether the credentials may call UpdateClusterSoftware, as far as IAM can simulate it. None: unknown, and why.

        A role's path, conditions and policies of the organization are not in the simulation.
        """
        try:
            caller = str(self.target.client("sts").get_caller_identity().get("Arn", ""))
            principal = _principal(caller)
            if principal is None:
                return None, f"IAM simulates no permissions of {caller or 'your credentials'}"
            (found,) = self.target.client("iam").simulate_principal_policy(
                PolicySourceArn=principal,
                ActionNames=["sagemaker:UpdateClusterSoftware"],
                ResourceArns=[str(described["ClusterArn"])],
            )["EvaluationResults"]
        except api.CALL_ERRORS as error:
            return None, aws.sentence(error)
        if found["EvalDecision"] == "allowed":
            return True, ""
        missing = found.get("MissingContextValues")
        return (None, f"a condition depends on {', '.join(missing)}") if missing else (False, "")

    def wrong_images(self, plans: Iterable[Plan]) -> tuple[dict[str, str], str]:
        """Group -> why it cannot run its AMI, which HyperPod would refuse only after the drain; and why that is unknown."""
        by_ami: dict[str, list[Plan]] = {}
        for plan in plans:
            if plan.is_needed and plan.wanted.startswith("ami-"):
                by_ami.setdefault(plan.wanted, []).append(plan)
        wrong: dict[str, str] = {}
        for ami, of_ami in by_ami.items():
            try:
                found = self.target.client("ec2").describe_images(ImageIds=[ami]).get("Images")
            except api.CALL_ERRORS as error:
                if not api.code(error).startswith("InvalidAMIID."):
                    return wrong, aws.sentence(error)
                found = None
            have = str(found[0].get("Architecture", "")) if found else None
            wrong |= {plan.group: why for plan in of_ami if (why := self._why_wrong(plan, have))}
        return wrong, ""

    def _why_wrong(self, plan: Plan, have: str | None) -> str:
        if have is None:
            return f"EC2 has no image {plan.wanted} for your account in {self.target.region}"
        needs = {catalogue()[name].architecture for name in plan.instance_types if name in catalogue()}
        wrong = sorted(needs - {have}) if have else []
        return f"{plan.wanted} is built for {have}, and the group's instance type needs {wrong[0]}" if wrong else ""

    def missing_alarms(self, plans: Iterable[Plan]) -> list[str]:
        """Alarms of `rolling` that CloudWatch does not have. One call for a hundred names."""
        names = sorted({name for plan in plans if plan.is_needed for name in _alarm_names(plan.rolling)})
        known: set[str] = set()
        for start in range(0, len(names), 100):
            reply = self.target.client("cloudwatch").describe_alarms(
                AlarmNames=names[start : start + 100], AlarmTypes=["MetricAlarm", "CompositeAlarm"]
            )
            known |= {
                alarm["AlarmName"] for kind in ("MetricAlarms", "CompositeAlarms") for alarm in reply.get(kind) or ()
            }
        return [name for name in names if name not in known]

    def reasons(self, group: str, since: float) -> list[str]:
        """What HyperPod's events say about a failure in the group, newest first, and why they could not be read."""
        if not live.is_continuous(live.describe(self.target)):
            return []
        sagemaker = self.target.client("sagemaker")
        try:
            events = sagemaker.list_cluster_events(
                ClusterName=self.target.name,
                InstanceGroupName=group,
                EventTimeAfter=datetime.fromtimestamp(since),
                SortBy="EventTime",
                SortOrder="Descending",
                MaxResults=_MOST_EVENTS,
            ).get("Events")
            grave = [event for event in events or () if event.get("EventLevel") in ("Error", "Warn")]
            return [self._reason(sagemaker, event) for event in grave[:3]]
        except api.CALL_ERRORS as error:
            return [f"HyperPod's events were not read: {aws.sentence(error)}"]

    def _reason(self, sagemaker: Any, event: Mapping[str, Any]) -> str:
        reply = sagemaker.describe_cluster_event(ClusterName=self.target.name, EventId=event["EventId"])
        details = (reply.get("EventDetails") or {}).get("EventDetails") or {}
        found = "; ".join(dict.fromkeys(event_reasons(details.get("EventMetadata") or {})))
        node = event.get("InstanceId")
        return tables.shown(
            f"{f'{node}: ' if node else ''}{event.get('Description', '')}{f' ({found})' if found else ''}"
        )


def _alarm_names(rolling: Mapping[str, Any] | None) -> list[str]:
    return [alarm["AlarmName"] for alarm in (rolling or {}).get("AutoRollbackConfiguration") or ()]


def _principal(caller: str) -> str | None:
    """The user or the role of a caller's ARN. None: neither."""
    role = re.fullmatch(r"arn:([a-z-]+):sts::(\d{12}):assumed-role/([^/]+)/.+", caller)
    if role:
        return f"arn:{role[1]}:iam::{role[2]}:role/{role[3]}"
    return caller if ":user/" in caller else None


def _text(value: object) -> str | None:
    """A text of AWS as a part of a line. None: there is none."""
    return tables.shown(value, 100) if value else None


def read_group(reply: Mapping[str, Any], node_type: str | None, nodes: Sequence[Node]) -> Group:
    """A group of DescribeCluster. Without CurrentCount, the list has to have as many nodes as are wanted."""
    return Group(
        name=str(reply["InstanceGroupName"]),
        status=tables.shown(group_status(reply), 100),
        software=_text(reply.get("SoftwareUpdateStatus")),
        current=counts(reply)[0],
        minimum=reply.get("MinCount") or 0,
        node_type=node_type,
        image_id=_text(reply.get("CurrentImageId")),
        image=_text(reply.get("CurrentImageReleaseVersion")),
        image_status=_text(reply.get("ImageVersionStatus")),
        on_desired=reply.get("TargetStateCount"),
        coming=tuple(
            image for each in ("DesiredImageId", "DesiredImageReleaseVersion") if (image := _text(reply.get(each)))
        ),
        nodes=tuple(nodes),
    )
