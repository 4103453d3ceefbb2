"""Somebody who may invoke the function, and writes events of its own.

One of a hundred polls comes after a forged one: with other properties or another state, of another stack or resource, or one of before.
It is never to change anything that CloudFormation did not ask for. It knows more than it could: the events of the real requests.
"""

from __future__ import annotations

import copy
import email.utils
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import ScaleDownError

from .function import FINALIZE, Calls, Request
from .hyperpod import Refused

if TYPE_CHECKING:
    from .lifetime import Lifetime

Json = dict[str, Any]
SHARE = 0.01


class Forger:
    """Forges events of one lifetime, with random numbers of its own."""

    def __init__(self, life: Lifetime) -> None:
        self.life = life
        self.dice = Random(f"{life.seed} forged events")
        self._seen: list[Json] = []
        """The last poll of each request that is over."""
        self._current: Json | None = None

    def before_poll(self, make: Callable[..., Any], request: Request, event: Mapping[str, Any]) -> None:
        """What the forger does before a poll of CloudFormation's request."""
        if self._current is not None and self._current.get("StartedAt") != event.get("StartedAt"):
            self._seen = [*self._seen[-3:], self._current]
        self._current = copy.deepcopy(dict(event))
        if self.dice.random() >= SHARE or not self.life.pod.exists or request.type == "Delete":
            return
        kind = self.dice.choice(list(KINDS))
        if kind in OTHER_PROPERTIES and request.rollback and self.life.switches.events_show != "whole":
            return  # Nothing confirms them in a rollback then (docs/adr/0019).
        forged = KINDS[kind](self, copy.deepcopy(dict(event)))
        if forged is None or forged == event:
            return
        self.life.tell(f"    a forged event: {kind}")
        self._send(make, request, forged, kind)

    def _send(self, make: Callable[..., Any], real: Request, event: Json, kind: str) -> None:
        old = event.get("OldResourceProperties")
        copied = Request(
            event["ResourceType"],
            event["RequestType"],
            event["ResourceProperties"],
            old,
            real.deployment,
            real.rollback,
        )
        calls, passed = ForgedCalls(self.life, copied, real, kind), [0.0]

        def sleep(seconds: float) -> None:
            passed[0] += seconds

        provider = make(
            lambda: calls,
            lambda: calls,
            s3=lambda: calls,
            functions=lambda: calls,
            now=lambda: self.life.clock.datetime() + timedelta(seconds=passed[0]),
            log=lambda line: self.life.tell(f"    forged: {line[:300]}"),
            sleep=sleep,
        )
        try:
            if kind == "through on_event":
                event |= json.loads(json.dumps(provider.on_event(event)))
                passed[0] = 0.0
            provider.is_complete(event)
        except ScaleDownError as error:
            self.life.tell(f"    forged: {str(error)[:300]}")

    # -- what is forged --

    def fewer(self, event: Json) -> Json:
        """One node in each group, and no limit."""
        specs = [json.loads(text) for text in event["ResourceProperties"]["Groups"]]
        for spec in specs:
            if spec.get("SlurmConfig", {}).get("NodeType") != "Controller":
                spec["InstanceCount"] = int(spec["InstanceCount"]) + 1 if self.dice.random() < 0.1 else 1
                spec["MinInstanceCount"] = 0
        event["ResourceProperties"] |= {"Groups": [json.dumps(spec) for spec in specs], "MaxNodes": "6000"}
        return event

    def named(self, event: Json) -> Json:
        live = [node.id for group in self.life.pod.groups.values() for node in group.live if node.id]
        event["ResourceProperties"] |= {"NodesToDelete": self.dice.sample(live, min(3, len(live))), "MaxNodes": "6000"}
        return event

    def groups(self, event: Json) -> Json:
        event["ResourceProperties"]["InstanceGroupsToDelete"] = list(self.life.pod.groups)[-1:]
        return event | {"ResourceType": FINALIZE, "LogicalResourceId": "Finalize"}

    def rollback(self, event: Json) -> Json | None:
        if event["RollingBack"]:
            return None
        pod = self.life.pod
        return self.fewer(event) | {"RollingBack": True, "Reached": [pod.name, pod.arn], "Pending": None, "Picked": []}

    def update(self, event: Json) -> Json | None:
        return self.fewer(event) | {"RollingBack": False} if event["RollingBack"] else None

    def creation(self, event: Json) -> Json | None:
        return None if event["RequestType"] == "Create" else self.fewer(event) | {"RequestType": "Create"}

    def other_stack(self, event: Json) -> Json:
        return self.fewer(event) | {"StackId": event["StackId"] + "0"}

    def other_resource(self, event: Json) -> Json:
        return self.fewer(event) | {"LogicalResourceId": "Another"}

    def picked(self, event: Json) -> Json | None:
        """Other nodes of the first look."""
        nodes = [node for group in self.life.pod.groups.values() for node in group.live if node.id]
        picked = [[node.group, node.id, "named", True] for node in self.dice.sample(nodes, min(2, len(nodes)))]
        return None if event["ResourceType"] == FINALIZE or picked == event["Picked"] else event | {"Picked": picked}

    def old(self, event: Json) -> Json | None:
        """Another script for new nodes, in the old properties."""
        if event["RequestType"] != "Update":
            return None
        specs = [json.loads(text) for text in event["OldResourceProperties"]["Groups"]]
        for spec in specs:
            spec["LifeCycleConfig"] = {"SourceS3Uri": "s3://sagemaker-other/1", "OnCreate": "run.sh"}
        event["OldResourceProperties"]["Groups"] = [json.dumps(spec) for spec in specs]
        return event

    def replayed(self, event: Json) -> Json | None:
        """One of a request that is over, whose properties are not those of now."""
        over = [each for each in self._seen if each["ResourceProperties"] != event["ResourceProperties"]]
        return copy.deepcopy(self.dice.choice(over)) if over else None


KINDS: dict[str, Callable[[Forger, Json], Json | None]] = {
    "a lower count": Forger.fewer,
    "named nodes": Forger.named,
    "a group": Forger.groups,
    "a rollback": Forger.rollback,
    "an update": Forger.update,
    "a creation": Forger.creation,
    "another stack": Forger.other_stack,
    "another resource": Forger.other_resource,
    "another first look": Forger.picked,
    "other old properties": Forger.old,
    "a replayed event": Forger.replayed,
    "through on_event": Forger.fewer,
}


OTHER_PROPERTIES = {"a lower count", "named nodes", "a group", "other old properties", "through on_event"}


class ForgedCalls(Calls):
    """The clients of the function while it works on a forged event: reads take no time and never fail, and a change is a fault."""

    def __init__(self, life: Lifetime, request: Request, real: Request, kind: str) -> None:
        super().__init__(life, request)
        self._real, self._kind = real, kind

    @contextmanager
    def _call(self, operation: str, *, write: bool = False) -> Iterator[Callable[[], Iterator[int]]]:
        if write:
            self._life.judge.fault("a forged event changes the cluster", f"{self._kind}: {operation}, {self._real}")
            raise _error("AccessDenied", operation)
        try:
            yield lambda: iter([1])
        except Refused as refused:
            raise _error(refused.code, operation) from None

    @contextmanager
    def _second_witness(self, operation: str) -> Iterator[None]:
        raise _error("ThrottlingException", operation)
        yield

    def describe_stacks(self, *, StackName: str) -> Json:
        self._check(StackName, "DescribeStacks")
        return super().describe_stacks(StackName=StackName)

    def describe_stack_events(self, *, StackName: str, NextToken: str | None = None) -> Json:
        self._check(StackName, "DescribeStackEvents")
        return super().describe_stack_events(StackName=StackName, NextToken=NextToken)

    def get_object(self, *, Bucket: str, Key: str) -> Json:
        draining: Any = self._life.draining
        sent = draining.bucket.sent(Key.partition("/")[2])
        if sent is None:
            raise _error("NoSuchKey", "GetObject")
        date = email.utils.formatdate(draining.bucket.time, usegmt=True)
        return {
            "Body": io.BytesIO(sent[0]),
            "ContentLength": sent[1],
            "ResponseMetadata": {"HTTPHeaders": {"date": date}},
        }

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str) -> Json:
        nodes = [node["id"] for node in json.loads(Body)["nodes"]]
        if nodes or self._real.drained:
            self._life.judge.fault("a forged event changes a drain request", f"{self._kind}: {nodes}, {self._real}")
        raise _error("AccessDenied", "PutObject")

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Json:
        asked = (json.loads(Payload)["requests"] or {}).get("deployment")
        if asked is not None and (asked["nodes"] or self._real.drained):
            self._life.judge.fault("a forged event changes a drain request", f"{self._kind}: {self._real}")
        raise _error("TooManyRequestsException", "Invoke")

    def _check(self, stack: str, operation: str) -> None:
        if stack != self._life.stack.describe()["StackId"]:
            raise _error("AccessDenied", operation)


def _error(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "forged"}}, operation)
