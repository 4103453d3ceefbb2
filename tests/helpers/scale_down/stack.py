"""A stack with prepare, the cluster and finalize, deployed step by step with the simulated HyperPod.

It acts as CloudFormation and CDK's provider framework: events in the order of the dependencies, polls, at most an hour
for each custom resource, and a rollback of all changed resources if something failed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.scale_down.model.properties import FINALIZE, PREPARE
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import Provider, ScaleDownError
from cdk_hyperpod_local.hyperpod import (
    Behaviour,
    CallerKilled,
    ClusterHandler,
    Faults,
    HyperPod,
    ManualClock,
    Progress,
    Timings,
    replacement_reasons,
)
from cdk_hyperpod_local.hyperpod.cfn_handler import VanishedGroups
from cdk_hyperpod_local.hyperpod.samples import CONTROLLER, EKS_ARN, ROLE, VPC, group, run_until_quiet
from helpers.scale_down.controller import Controller
from helpers.scale_down.drainer import Drainer

STACK_ID = "arn:aws:cloudformation:us-west-2:000000000000:stack/train/0a1b2c"
LAMBDA = "lambda"
TYPES = {"prepare": PREPARE, "cluster": "AWS::SageMaker::Cluster", "finalize": FINALIZE}
Json = dict[str, Any]

DRAIN: Json = {
    "Bucket": "drains",
    "TimeoutMinutes": 25,
    "OnTimeout": "fail",
    "OnSilent": "fail",
    "MustBeSaved": True,
}
"""As the construct sends it."""

__all__ = [
    "CONTROLLER",
    "DRAIN",
    "FINALIZE",
    "PREPARE",
    "ROLE",
    "STACK_ID",
    "Behaviour",
    "Faults",
    "Stack",
    "Template",
    "Timings",
    "group",
    "run_until_quiet",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A template: the cluster, with prepare and finalize beside it."""

    groups: tuple[Json, ...]
    name: str = "train"
    nodes_to_delete: tuple[str, ...] = ()
    groups_to_delete: tuple[str, ...] = ()
    autoscaled: tuple[str, ...] = ()
    max_nodes: int = 1_000
    continuous: bool = True
    vpc: Json = field(default_factory=lambda: dict(VPC))
    tags: Mapping[str, str] = field(default_factory=dict)
    retry: str = ""
    drain: Mapping[str, Any] | None = None
    patching_off: Mapping[str, Any] = field(default_factory=dict)
    eks: bool = False
    """Under EKS, without the controller."""

    @property
    def cluster(self) -> Json:
        """Properties of AWS::SageMaker::Cluster."""
        tags = {**self.tags, "cdk-hyperpod:stack-id": STACK_ID}
        properties: Json = {
            "ClusterName": self.name,
            "InstanceGroups": [*self.groups] if self.eks else [CONTROLLER, *self.groups],
            "VpcConfig": self.vpc,
            "Orchestrator": {"Eks": {"ClusterArn": EKS_ARN}} if self.eks else {"Slurm": {}},
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(tags.items())],
        }
        return properties | ({"NodeProvisioningMode": "Continuous"} if self.continuous else {})

    @property
    def finalize(self) -> Json:
        """Properties of Custom::HyperPodGroupRemoval."""
        cluster = self.cluster
        rest = {
            key: value for key, value in cluster.items() if key not in ("InstanceGroups", "VpcConfig", "Orchestrator")
        }
        return {
            "ServiceToken": "arn",
            "ClusterName": self.name,
            "Groups": [json.dumps(each) for each in cluster["InstanceGroups"]],
            "AutoscaledGroups": list(self.autoscaled),
            "NodesToDelete": list(self.nodes_to_delete),
            "InstanceGroupsToDelete": list(self.groups_to_delete),
            "MaxNodes": str(self.max_nodes),
            "Digest": json.dumps(rest, sort_keys=True),
            "Retry": self.retry,
            **({} if self.drain is None else {"Drain": json.dumps(self.drain)}),
            **({"PatchingOff": json.dumps(self.patching_off)} if self.patching_off else {}),
        }

    @property
    def prepare(self) -> Json:
        """Properties of Custom::HyperPodScaleDown; numbers as CloudFormation hands them over."""
        create_only = {key: self.cluster[key] for key in ("VpcConfig", "Orchestrator")}
        return {**self.finalize, "CreateOnly": json.dumps(create_only)}


Ending = Literal["complete", "rolled back", "rollback failed"]
_PAGE = 2
"""Events of a page; on AWS there are about 100."""


class Stack:
    """One stack on one HyperPod."""

    def __init__(
        self,
        template: Template,
        *,
        behaviour: Behaviour | None = None,
        timings: Timings | None = None,
        vanished: VanishedGroups = "delete_present",
        seed: int = 0,
        poll: float = 30.0,
    ) -> None:
        """The cluster exists and is quiet. Unlikely behaviour begins afterwards."""
        self.clock = ManualClock()
        self.name = template.name
        self.hyperpod = HyperPod(clock=self.clock, seed=seed, timings=timings)
        self.agent = Controller(self.clock.now, lambda: self.hyperpod.nodes(template.name), self._address)
        """Of a Slurm cluster whose nodes are drained."""
        self.drainer = Drainer(self.clock.now, lambda: self.hyperpod.nodes(template.name))
        """Of a cluster with EKS whose nodes are drained."""
        self.template: Template | None = None
        self.status = "CREATE_IN_PROGRESS"
        self.updated: float | None = None
        self.events: list[Json] = []
        """Oldest first."""
        self.events_fail, self.events_fail_until = "", 0.0
        self.status_fails, self.status_fails_until = "", 0.0
        self.looks_at_events = 0
        self.status_late = self.events_late = 0.0
        """How many seconds old CloudFormation's own reads are."""
        self.shows: Callable[[str], str | None] = lambda properties: properties
        """What the events show of a resource's properties."""
        self._sent = template
        """The template that CloudFormation deploys, or returns to."""
        self._arn = ""
        self._failed = template
        self._touched: list[str] = []
        self.attributes: dict[str, Json] = {}
        """The attributes of each resource type that a template can read."""
        self.crashes: list[BaseException] = []
        """What ended the function, apart from its own message."""
        self._cancel: tuple[str, int] | None = None
        self.given_up: list[Json] = []
        """Requests whose answers are no longer awaited, while CDK's state machine continues to poll."""
        self.reasons: list[str] = []
        self.log: list[str] = []
        self.poll = poll
        self.disturbance = Faults()
        """Faults during polls."""
        self.polling = False
        """A poll of a custom resource is in progress."""
        self.handler = ClusterHandler(self.hyperpod, vanished_groups=vanished)
        self.client = self.hyperpod.client(principal=LAMBDA)
        self.provider = Provider(
            lambda: self.client,
            lambda: self,
            s3=lambda: self.agent,
            functions=lambda: self.drainer,
            now=self.now,
            sleep=self.clock.advance,
            log=self.log.append,
        )
        assert self.deploy(template) == "complete", self.reasons
        run_until_quiet(self.hyperpod)
        self.hyperpod.behaviour = behaviour or Behaviour()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)

    def _address(self, node_id: str) -> str:
        asked = {"ClusterName": self.name, "NodeId": node_id}
        return str(
            self.hyperpod.call("DescribeClusterNode", asked, principal="agent")["NodeDetails"]["PrivatePrimaryIp"]
        )

    def describe_stacks(self, *, StackName: str) -> Json:
        """CloudFormation's client, as far as the provider needs it."""
        if StackName != STACK_ID:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": "no such stack"}}, "DescribeStacks")
        if self.clock.now() < self.status_fails_until:
            raise ClientError({"Error": {"Code": self.status_fails, "Message": "not now"}}, "DescribeStacks")
        stack: Json = {"StackStatus": self.status}
        if self.status_late:
            own = [event for event in self._seen(self.status_late) if event["PhysicalResourceId"] == STACK_ID]
            stack["StackStatus"] = own[-1]["ResourceStatus"]
        if self.updated is not None and self.updated <= self.clock.now() - self.status_late:
            stack["LastUpdatedTime"] = datetime.fromtimestamp(self.updated, UTC)
        return {"Stacks": [stack]}

    def describe_stack_events(self, *, StackName: str, NextToken: str = "0") -> Json:
        """Also CloudFormation's client."""
        if self.clock.now() < self.events_fail_until:
            raise ClientError({"Error": {"Code": self.events_fail, "Message": "not now"}}, "DescribeStackEvents")
        assert StackName == STACK_ID
        start = int(NextToken)
        self.looks_at_events += start == 0
        events = self._seen(self.events_late)
        more = {"NextToken": str(start + _PAGE)} if start + _PAGE < len(events) else {}
        return {"StackEvents": events[::-1][start : start + _PAGE], **more}

    def get_template(self, *, StackName: str) -> Json:
        """Also CloudFormation's client: the template of the operation in progress, without intrinsic functions."""
        assert StackName == STACK_ID
        steps = {"prepare": self._sent.prepare, "finalize": self._sent.finalize}
        resources = {TYPES[step].rpartition(":")[2]: {"Properties": found} for step, found in steps.items()}
        return {"TemplateBody": {"Resources": resources}}

    def _seen(self, late: float) -> list[Json]:
        """Events that are at least this many seconds old; 0: all of them."""
        return [event for event in self.events if not late or event["Timestamp"].timestamp() <= self.clock.now() - late]

    # -- CloudFormation --

    def deploy(
        self,
        template: Template,
        *,
        fail: Literal["", "before", "after"] = "",
        cancel: tuple[str, int] | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Ending:
        """Deploy; `fail`: some other resource fails right before or right after the cluster. `cancel`: a type of resource,
        and after how many of its polls the update is cancelled, or some other resource fails. `meanwhile`: what happens
        before a rollback begins."""
        self._cancel = cancel
        old = self.template
        self.updated = self.now().timestamp() if old else None
        self.reasons = []
        self._is("UPDATE_IN_PROGRESS" if old else "CREATE_IN_PROGRESS")
        self._touched = []
        try:
            for step in ("prepare", "before", "cluster", "after", "finalize"):
                if step == fail:
                    raise ScaleDownError("another resource failed")
                self._touched.append(step)
                self._step(step, template, old)
        except ScaleDownError as error:
            self.reasons.append(str(error))
            if old is None:
                return "rollback failed"
            meanwhile()
            self._failed = template
            return self.roll_back()
        self.template = template
        self._is("UPDATE_COMPLETE" if old else "CREATE_COMPLETE")
        return "complete"

    def roll_back(self) -> Ending:
        """Undo the last, failed deployment. A failed rollback continues where it was."""
        assert self.template is not None
        self._cancel = None
        self._is("UPDATE_ROLLBACK_IN_PROGRESS")
        self.clock.advance(5)
        try:
            while self._touched:
                self._step(self._touched[0], self.template, self._failed)
                self._touched.pop(0)
        except ScaleDownError as error:
            self.reasons.append(str(error))
            self._is("UPDATE_ROLLBACK_FAILED")
            return "rollback failed"
        self._is("UPDATE_ROLLBACK_COMPLETE")
        return "rolled back"

    def _is(self, status: str) -> None:
        self.status = status
        self._event("AWS::CloudFormation::Stack", STACK_ID, status)

    def _event(self, kind: str, physical_id: str, status: str, properties: Json | None = None) -> None:
        text = None if properties is None else self.shows(json.dumps(properties))
        self.events.append(
            {
                "EventId": f"event-{len(self.events)}",
                **({} if text is None else {"ResourceProperties": text}),
                "ResourceType": kind,
                "LogicalResourceId": kind.rpartition(":")[2],
                "PhysicalResourceId": physical_id,
                "ResourceStatus": status,
                "Timestamp": self.now(),
            }
        )

    def _step(self, step: str, new: Template, old: Template | None) -> None:
        """An unchanged resource is not updated, and has no event."""
        if step not in TYPES or (old is not None and getattr(old, step) == getattr(new, step)):
            return
        what = (TYPES[step], self._arn if step == "cluster" else step)
        verb = "UPDATE" if old else "CREATE"
        self._sent, properties = new, getattr(new, step)
        if step == "cluster":
            self._event(*what, f"{verb}_IN_PROGRESS", properties)
        try:
            self._change(step, new, old)
        except ScaleDownError:
            self._event(*what, f"{verb}_FAILED", properties)
            raise
        self._event(*what, f"{verb}_COMPLETE", properties)

    def _change(self, step: str, new: Template, old: Template | None) -> None:
        match step:
            case "prepare":
                self.custom(PREPARE, new.prepare, old.prepare if old else None)
            case "finalize":
                self.custom(FINALIZE, new.finalize, old.finalize if old else None)
            case "cluster" if old is None:
                self._cluster(self.handler.start("create", properties=new.cluster))
                self._arn = self.hyperpod.cluster(new.name).arn
            case "cluster" if old is not None:
                if replacement_reasons(old.cluster, new.cluster):
                    raise AssertionError("the cluster would have been replaced")
                self._cluster(
                    self.handler.start(
                        "update", properties=new.cluster, old_properties=old.cluster, physical_id=self._arn
                    )
                )

    def _cluster(self, progress: Progress) -> None:
        for _ in range(2_000):
            if progress.status == "done":
                return
            if progress.status == "failed":
                raise ScaleDownError(f"cluster: {progress.message}")
            self.clock.advance(60)
            self.poll_given_up()
            progress = self.handler.poll(progress)
        raise AssertionError(f"the cluster never settled: {progress.message}")

    # -- the provider framework --

    def custom(
        self, kind: str, properties: Json, old: Json | None, *, request: str = "", recorded: bool = True
    ) -> None:
        """One custom resource from its event to its answer. Raises ScaleDownError if it fails. `recorded`: the stack has an event of it."""
        event: Json = {
            "RequestType": request or ("Update" if old else "Create"),
            "ResponseURL": "https://secret.example/",
            "StackId": STACK_ID,
            "ResourceType": kind,
            "LogicalResourceId": kind.rpartition(":")[2],
            "ResourceProperties": copy.deepcopy(properties),
        }
        if old:
            event |= {"OldResourceProperties": copy.deepcopy(old), "PhysicalResourceId": "physical"}
        began = self.clock.now()
        if recorded and event["RequestType"] != "Delete":
            status = f"{event['RequestType'].upper()}_IN_PROGRESS"
            self._event(kind, event.get("PhysicalResourceId", ""), status, properties)
        event |= json.loads(json.dumps(self._invoke(self.provider.on_event, event)))
        self.hyperpod.faults = self.disturbance
        try:
            self._poll(event, began)
        finally:
            self.hyperpod.faults = Faults()

    def _poll(self, event: Json, began: float) -> None:
        polls = 0
        while True:
            if self._cancel == (event["ResourceType"], polls):
                self.given_up.append(event)
                raise ScaleDownError("Resource update cancelled")
            polls += 1
            self.polling = True
            try:
                answer = self._invoke(self.provider.is_complete, copy.deepcopy(event))
            finally:
                self.polling = False
            if answer["IsComplete"]:
                self.attributes[event["ResourceType"]] = answer["Data"]
                return
            assert "Data" not in answer, "the framework refuses it before the end"
            self.clock.advance(self.poll)
            self.poll_given_up()
            assert self.clock.now() - began < 3_600, "CloudFormation's own limit was reached"

    def _invoke(self, function: Callable[[Json], Json], event: Json) -> Json:
        """As the framework does: if the function raised or was killed, the resource is FAILED, and is never polled
        again."""
        try:
            return function(event)
        except ScaleDownError:
            raise
        except (Exception, CallerKilled) as error:
            self.crashes.append(error)
            raise ScaleDownError(f"the function died: {error!r}") from error

    def poll_given_up(self) -> None:
        """One poll of every abandoned request. It must not change anything."""
        since = self.hyperpod.changes(principal=LAMBDA)
        for event in list(self.given_up):
            self.polling = True
            try:
                over = self._invoke(self.provider.is_complete, copy.deepcopy(event))["IsComplete"]
            except ScaleDownError:
                over = True
            finally:
                self.polling = False
            if over:
                self.given_up.remove(event)
        assert self.hyperpod.changes(principal=LAMBDA) == since, "a request that was given up changed something"
