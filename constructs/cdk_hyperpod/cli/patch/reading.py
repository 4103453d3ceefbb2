"""What `patch` reads of HyperPod and of the stack. Every call is counted, because looks are as far apart as their calls allow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ..._lambda.hyperpod.common import api
from ...names import cluster_stack_name
from .. import aws, live, tables
from ..deployment.deployed_stack import tagged_stack
from ..live import Target
from ..nodes.events import event_reasons
from ..nodes.watch_view import is_under_way
from .model import SYSTEM_UPDATING, Group, Node, Plan

_MOST_EVENTS = 20


@dataclass
class Calls:
    """Clients that count their calls."""

    clients: Callable[[str], Any]
    made: int = 0

    def client(self, service: str) -> Any:
        """A client of the service."""
        return _Counted(self, self.clients(service))


@dataclass
class _Counted:
    _calls: Calls
    _client: Any

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(**given: Any) -> Any:
            self._calls.made += 1
            return found(**given)

        return call


@dataclass
class Reader:
    """Reads the cluster, its groups, and its stack."""

    target: Target
    _stack: str = ""
    _listed: dict[str, tuple[Node, ...]] = field(default_factory=dict)

    def describe(self) -> live.Reply:
        """DescribeCluster. Raises LiveError."""
        return live.describe(self.target)

    def list_all(self, described: live.Reply) -> None:
        """List the nodes of all groups."""
        self._keep(live.nodes(self.target, described))

    def list_group(self, described: live.Reply, group: str) -> None:
        """List the nodes of one group."""
        self._listed[group] = ()
        self._keep(live.nodes(self.target, described, group))

    def listed(self, group: str) -> tuple[Node, ...]:
        """Its nodes, as they were listed last."""
        return self._listed.get(group, ())

    def _keep(self, nodes: Iterable[live.Node]) -> None:
        found: dict[str, list[Node]] = {}
        for node in nodes:
            found.setdefault(node.group, []).append(_node(node))
        self._listed |= {name: tuple(of_group) for name, of_group in found.items()}

    def groups(self, described: live.Reply) -> list[Group]:
        """The groups, with their nodes as they were listed last."""
        kinds = live.node_types(self.target, described)
        found = [
            read_group(
                group, kinds.get(str(group["InstanceGroupName"])), self._listed.get(str(group["InstanceGroupName"]), ())
            )
            for group in live.groups(described)
        ]
        if described["ClusterStatus"] != SYSTEM_UPDATING or any(group.is_updating for group in found):
            return found
        return [replace(group, cluster_updates=True) for group in found]

    def deployment(self, described: live.Reply) -> str:
        """The stack that a deployment is changing, with its status. Empty: none."""
        if not self._stack:
            self._stack = cluster_stack_name(self.target.name)
            found = self._describe_stack()
            if found is None:
                # Another app has the cluster.
                sagemaker = self.target.client("sagemaker")
                self._stack = tagged_stack(api.read_tags(sagemaker, str(described["ClusterArn"]))) or self._stack
                found = self._describe_stack()
        else:
            found = self._describe_stack()
        if found is None or not is_under_way(found):
            return ""
        return tables.shown(f"{found['StackName']} ({found['StackStatus']})")

    def _describe_stack(self) -> live.Reply | None:
        from botocore.exceptions import ClientError  # type: ignore[import-untyped]

        try:
            (found,) = self.target.client("cloudformation").describe_stacks(StackName=self._stack)["Stacks"]
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise
        stack: live.Reply = found
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

    def reasons(self, described: live.Reply, group: str, since: float) -> list[str]:
        """What HyperPod's events say about a failure in the group, newest first, and why they could not be read."""
        if not live.is_continuous(described):
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


def read_group(reply: Mapping[str, Any], node_type: str | None, nodes: tuple[Node, ...]) -> Group:
    """A group of DescribeCluster."""
    return Group(
        name=str(reply["InstanceGroupName"]),
        status=_text(reply.get("Status")) or "InService",
        software=_text(reply.get("SoftwareUpdateStatus")),
        current=reply.get("CurrentCount") or 0,
        target=reply.get("TargetCount") or 0,
        minimum=reply.get("MinCount") or 0,
        node_type=node_type,
        image_id=_text(reply.get("CurrentImageId")),
        image=_text(reply.get("CurrentImageReleaseVersion")),
        image_status=_text(reply.get("ImageVersionStatus")),
        on_desired=reply.get("TargetStateCount"),
        coming=tuple(
            image for each in ("DesiredImageId", "DesiredImageReleaseVersion") if (image := _text(reply.get(each)))
        ),
        nodes=nodes,
    )


def _node(node: live.Node) -> Node:
    return Node(
        id=_text(node.instance_id) or "",
        status=_text(node.status) or "",
        host=node.host,
        image=_text(node.image),
        image_status=_text(node.image_status),
        updated=_seconds(node.updated),
        launched=_seconds(node.launched),
    )


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
