"""The function under test, called as CDK's provider framework calls it, with clients that can fail and let others act.

CDK's framework (aws-cdk-lib, custom-resources/lib/provider-framework/runtime/framework.js): on_event's answer is merged
into the event of every is_complete, which is called at once and then every 30 s. An exception or a killed function in
either is FAILED, and is never called again; so is an answer that does not come within the total time.
"""

from __future__ import annotations

import email.utils
import inspect
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ReadTimeoutError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import Provider, ScaleDownError

from .hyperpod import HyperPod, Measure, Node, Refused
from .requests import FINALIZE, PREPARE, Killed, Look, Request, Write

if TYPE_CHECKING:
    from .draining import Heard
    from .lifetime import Lifetime

__all__ = ["FINALIZE", "PREPARE", "Calls", "Framework", "Killed", "Look", "MakeProvider", "Request", "Write"]

POLL = 30
TOTAL = 3600
"""Seconds: the total time that the construct gives CDK's framework, and CloudFormation's own for a custom resource."""

MakeProvider = Callable[..., Any]
"""Creates the function: Provider, or one that is broken on purpose."""


_SLEEPS = "sleep" in inspect.signature(Provider.__init__).parameters


class Framework:
    """CDK's provider framework, with the clock of one lifetime."""

    def __init__(self, life: Lifetime, make: MakeProvider) -> None:
        self.life, self.make = life, make

    def send(self, request: Request, event: Mapping[str, Any]) -> None:
        """Send the request. Its result is in `request` some time later."""
        request.began = self.life.clock.now
        calls = Calls(self.life, request)
        extra: dict[str, Any] = {"sleep": self.life.clock.pass_time} if _SLEEPS else {}
        now = self.life.clock.datetime
        clients = dict.fromkeys(("s3", "functions"), lambda: calls)
        provider = self.make(lambda: calls, lambda: calls, **clients, now=now, log=self._log, **extra)
        self.life.clock.later(self.life.rng.uniform(0.5, 4), partial(self._begin, provider, calls, request, event))

    def _log(self, line: str) -> None:
        if self.life.story is not None:
            self.life.tell(f"    log: {line[:400]}")

    def _begin(self, provider: Any, calls: Calls, request: Request, event: Mapping[str, Any]) -> None:
        self.life.tell(f"{request}: on_event")
        request.heard = self.life.clock.now
        answer = self._run(provider.on_event, calls, request, event)
        if answer is None:
            return
        if not answer.get("PhysicalResourceId"):
            self.life.judge.fault("on_event gives no physical id", str(request))
        merged = json.loads(json.dumps({**event, **answer}))
        if request.type == "Update" and merged["PhysicalResourceId"] != event["PhysicalResourceId"]:
            self.life.judge.fault("the physical id changes", str(request))
        self._poll(provider, calls, request, merged)

    def _poll(self, provider: Any, calls: Calls, request: Request, event: Mapping[str, Any]) -> None:
        if self.life.clock.now - request.began > TOTAL:
            self._end(request, False, "Operation timed out")
            return
        if self.life.forger is not None:
            self.life.forger.before_poll(self.make, request, event)
        request.polls += 1
        answer = self._run(provider.is_complete, calls, request, event)
        if answer is None:
            return
        answer = json.loads(json.dumps(answer))
        if answer.get("IsComplete"):
            request.data = {**(event.get("Data") or {}), **(answer.get("Data") or {})}
            self._end(request, True, "")
        else:
            if answer.get("Data"):
                self.life.judge.fault("Data in an answer that is not complete", str(request))
            self.life.clock.later(POLL, partial(self._poll, provider, calls, request, event))

    def _run(self, call: Any, calls: Calls, request: Request, event: Mapping[str, Any]) -> Any:
        calls.begin()
        try:
            return call(event)
        except Killed:
            self._end(request, False, "RequestId: 0 Error: Runtime exited with error: signal: killed")
            request.error = Killed()
        except Exception as error:  # noqa: BLE001 - whatever it raises, the framework answers FAILED
            request.error = error
            self._end(request, False, str(error))
            if not isinstance(error, ScaleDownError):
                self.life.judge.fault("the function breaks down", f"{request}: {type(error).__name__}: {error}")
        return None

    def _end(self, request: Request, succeeded: bool, reason: str) -> None:
        request.succeeded, request.reason, request.answered = succeeded, reason, self.life.clock.now
        over = "  (nobody waits for it)" if request.over else ""
        self.life.tell(f"{request}: {'SUCCESS' if succeeded else 'FAILED: ' + reason}{over}")


class Calls:
    """Both of the function's clients. Others may act before each call, and each call may fail."""

    def __init__(self, life: Lifetime, request: Request) -> None:
        self._life, self._request = life, request
        self._look: Look | None = None
        self._pages: list[dict[str, Any]] = []
        self._retries = 0
        """botocore's retries in the last call."""
        self._over: bool | None = None
        self._half: str | None = None
        """The call that began a look, until its other call follows."""
        self._since = 0.0
        self._then: dict[str, Measure] = {}
        self._shown: dict[str, dict[str, Any]] = {}

    def begin(self) -> None:
        """A new run of the function, which knows nothing of the last one's reads."""
        self._look, self._over, self._half = None, None, None
        self._request.cluster_unread = False

    # -- SageMaker --

    def describe_cluster(self, *, ClusterName: str) -> dict[str, Any]:
        with self._call("DescribeCluster"):
            found = self._life.hyperpod(ClusterName).describe()
            self._request.described = self._life.clock.now
            self._shown = {group["InstanceGroupName"]: group for group in found["InstanceGroups"]}
            self._looks("DescribeCluster")
            return found

    def list_cluster_nodes(
        self,
        *,
        ClusterName: str,
        MaxResults: int = 100,
        IncludeNodeLogicalIds: bool = False,
        NextToken: str | None = None,
    ) -> dict[str, Any]:
        with self._call("ListClusterNodes"):
            pod = self._life.hyperpod(ClusterName)
            reply = pod.list_nodes(NextToken, logical=IncludeNodeLogicalIds, most=MaxResults)
            if NextToken is None:
                self._pages = []
                if self._half != "DescribeCluster":
                    self._half = None
                    self._begins("ListClusterNodes")
            self._pages += reply["ClusterNodeSummaries"]
            if "NextToken" not in reply:
                self._looks("ListClusterNodes")
            return reply

    def list_cluster_operations(self, *, ClusterName: str, Status: str, Type: str, **paging: Any) -> dict[str, Any]:
        assert (Status, Type) == ("InProgress", "Scaling"), "the model tells no others"
        with self._second_witness("ListClusterOperations"):
            return {"ClusterOperationSummaries": self._life.hyperpod(ClusterName).list_operations()}

    def describe_cluster_operation(self, *, ClusterName: str, OperationId: str) -> dict[str, Any]:
        with self._second_witness("DescribeClusterOperation"):
            return self._life.hyperpod(ClusterName).describe_operation(OperationId)

    @contextmanager
    def _second_witness(self, operation: str) -> Iterator[None]:
        """A read that was added later. It has its own random numbers, so that old seeds stay the same."""
        dice = self._life.pod.reads_operations
        self._life.clock.pass_time(dice.uniform(0.05, 0.6))
        try:
            if dice.random() < 0.02:
                raise Refused("ThrottlingException", "Rate exceeded")
            yield
        except Refused as refused:
            self._request.unwitnessed = True
            self._life.tell(f"  {operation}: {refused}")
            raise ClientError({"Error": {"Code": refused.code, "Message": refused.message}}, operation) from None

    def list_tags(self, *, ResourceArn: str, NextToken: str | None = None) -> dict[str, Any]:
        with self._call("ListTags"):
            return {"Tags": [{"Key": key, "Value": value} for key, value in self._life.pod.tags.items()]}

    def batch_delete_cluster_nodes(
        self, *, ClusterName: str, NodeIds: Any = (), NodeLogicalIds: Any = ()
    ) -> dict[str, Any]:
        if self._look is not None:
            self._request.asked.setdefault(self._look.at, set()).update(NodeIds, NodeLogicalIds)
        with self._call("BatchDeleteClusterNodes", write=True) as again:
            look, over = self._look, self._is_over()
            for _ in again():
                write = self._write("BatchDelete", look, over)
                self._life.tell(f"  BatchDelete {', '.join([*NodeIds, *NodeLogicalIds])}")
                reply, took = self._life.hyperpod(ClusterName).batch_delete(
                    list(NodeIds), list(NodeLogicalIds), by="function", call=write
                )
                write.took = took
                if took:
                    self._wrote(write)
                    self._life.judge.batch_delete_was_sent(write)
            return {**reply, "ResponseMetadata": {"RetryAttempts": self._retries}}

    def update_cluster(
        self, *, ClusterName: str, InstanceGroups: Any = None, InstanceGroupsToDelete: Any = ()
    ) -> dict[str, Any]:
        with self._call("UpdateCluster", write=True) as again:
            look, over = self._look, self._is_over()
            for _ in again():
                specs = list(InstanceGroups or ())
                write = self._write("Update", look, over)
                write.counts = {spec["InstanceGroupName"]: spec["InstanceCount"] for spec in specs}
                write.specs, write.groups = specs, tuple(InstanceGroupsToDelete)
                was = {name: group.spec for name, group in self._life.pod.groups.items()}
                self._life.judge.update_is_asked_for(write, self._shown)
                self._life.hyperpod(ClusterName).update(
                    specs, write.groups, by="function", call=write, alone=InstanceGroups is None
                )
                self._wrote(write)
                self._life.judge.update_was_sent(write, was)
            return {"ClusterArn": self._life.pod.arn}

    # -- CloudFormation --

    def describe_stacks(self, *, StackName: str) -> dict[str, Any]:
        with self._call("DescribeStacks"):
            self._over = self._told_over()
            if self._request.looked is None:
                self._request.looked = self._life.clock.now
            return {"Stacks": [self._life.stack.describe()]}

    def describe_stack_events(self, *, StackName: str, NextToken: str | None = None) -> dict[str, Any]:
        with self._call("DescribeStackEvents"):
            return self._life.stack.describe_events(NextToken)

    def get_template(self, *, StackName: str) -> dict[str, Any]:
        with self._call("GetTemplate"):
            return {"TemplateBody": self._life.stack.template()}

    # -- draining --

    def describe_cluster_node(self, *, ClusterName: str, NodeId: str) -> dict[str, Any]:
        with self._call("DescribeClusterNode"):
            return self._life.hyperpod(ClusterName).describe_node(NodeId)

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        began = self._life.clock.now
        with self._served("GetObject") as draining:
            sent, heard = draining.read(Key, self._request, began)
            self._hears(heard)
            self._request.ready = (
                self._request.ready + 1 if draining.all_ready(heard, self._request.drain_request_ids) else 0
            )
            if sent is None:
                raise Refused("NoSuchKey", "The specified key does not exist.", 404)
            body, length = sent
            date = email.utils.formatdate(draining.bucket.time, usegmt=True)
            headers = {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}
            return {"Body": io.BytesIO(body), "ContentLength": length, **headers}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str) -> dict[str, Any]:
        with self._served("PutObject") as draining:
            nodes = {node_request["id"] for node_request in json.loads(Body)["nodes"]}
            if self._is_over() and nodes:
                self._life.judge.fault("a deployment that is over asks for nodes", str(self._request))
            self._request.drained |= nodes
            self._request.drain_request_ids |= draining.write(Key, Body)
            self._request.asked_agent = True
            return {}

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        draining: Any = self._life.draining
        began, answer = self._life.clock.now, None
        asked = (json.loads(Payload)["requests"] or {}).get("deployment")
        try:
            with self._served("Invoke"):
                if asked and asked["nodes"] and self._is_over():
                    self._life.judge.fault("a deployment that is over asks for nodes", str(self._request))
                reply = draining.invoke(FunctionName, Payload, self._request)
                answer = None if "FunctionError" in reply else reply["Payload"]
                return {**reply, "Payload": io.BytesIO(reply["Payload"])}
        finally:
            first = self._look.heard if self._look else None
            heard = draining.hear(self._request, began, answer)
            # It chose by its first reads.
            self._hears(heard._replace(found=first.found if first and first.found else heard.found))

    def _hears(self, heard: Heard) -> None:
        if self._look is not None:
            self._look.heard = heard
        self._request.unread = heard.found is None
        if heard.silent:
            self._request.silent = self._life.clock.now

    @contextmanager
    def _served(self, operation: str) -> Iterator[Any]:
        """S3 or Lambda: the connection to the actor that drains."""
        draining = self._life.draining
        with self._call(operation):
            assert draining is not None, "S3 and Lambda are for draining alone"
            try:
                draining.serve(operation)
            except Refused:
                self._request.faults += 1
                raise
            yield draining

    # -- inside --

    def _begins(self, call: str) -> None:
        self._half, self._since, self._then = call, self._life.clock.now, self._life.measures()

    def _looks(self, call: str) -> None:
        """A look consists of both reads, in either order. A read of only the nodes counts as a look at them, too."""
        first = self._half
        if call == "DescribeCluster" and first != "ListClusterNodes":
            self._begins(call)
            return
        now, request = self._life.clock.now, self._request
        look = Look(
            self._since, now, _distinct(self._pages, self._life.pod), self._life.measures(), self._then, self._shown
        )
        look.left_out = _left_out(look, self._life.pod)
        if request.look is not None:
            look.left_out_again = look.left_out & request.look.left_out
            if not request.polls:
                request.left_out |= {node.group for node in look.left_out_again}
        if self._look is not None and self._look.wrote_since:
            # It checks before each change whether its deployment still runs. Calls after one look are one change.
            self._over = None
        # In one run it keeps what it has read, even if it looks again.
        look.heard = self._look.heard if self._look else None
        if request.first_look is None or request.polls == 0 or (call != first and request.first_look is self._look):
            request.first_look = look
        self._look = request.look = look
        if call != first:
            self._half = None

    def _is_over(self) -> bool:
        """Whether its deployment was over, as CloudFormation reported at the last read.

        If the function did not read before this change, as CloudFormation reports now: a read would not have shown
        more.
        """
        return self._told_over() if self._over is None else self._over

    def _told_over(self) -> bool:
        return self._request.over_at <= self._life.clock.now - self._life.stack.status_late

    def _write(self, kind: str, look: Look | None, over: bool) -> Write:
        """botocore's second attempt of a call uses what the function knew at its first."""
        return Write(self._request, self._life.clock.now, kind, look, over, self._life.measures())

    def _wrote(self, write: Write) -> None:
        self._request.writes.append(write)
        self._life.writes.append(write)
        if write.look is not None:
            self._request.left_out |= {node.group for node in write.look.left_out_again}
            # If this write is examined later, its look must be as it was before.
            self._look = replace(write.look, wrote_since=True)
        self._life.after_write()

    @contextmanager
    def _call(self, operation: str, *, write: bool = False) -> Iterator[Callable[[], Iterator[int]]]:
        life = self._life
        life.clock.pass_time(life.rng.uniform(0.05, 0.6))
        life.between_calls()
        if fault := life.faults.before(operation, self._request, write=write):
            self._request.faults += 1
            self._request.cluster_unread |= operation in ("DescribeCluster", "ListClusterNodes", "ListTags")
            life.tell(f"  {operation}: {fault}")
            if fault == "killed":
                raise Killed
            if fault == "timeout":
                raise ReadTimeoutError(endpoint_url="https://api.sagemaker", error="timed out")
            raise ClientError({"Error": {"Code": fault, "Message": life.faults.message(fault, operation)}}, operation)
        lost = life.faults.loses_reply(operation, self._request, write=write)

        def times() -> Iterator[int]:
            """Once; twice if botocore gets no reply to the first attempt and tries again."""
            self._retries = 0
            yield 1
            if lost == "tried again":
                life.clock.pass_time(20)
                life.between_calls()
                self._retries = 1
                yield 2

        try:
            yield times
        except Refused as refused:
            life.tell(f"  {operation}: {refused}")
            raise ClientError(
                {
                    "Error": {"Code": refused.code, "Message": refused.message},
                    "ResponseMetadata": {"HTTPStatusCode": refused.status, "RetryAttempts": self._retries},
                },
                operation,
            ) from None
        if lost:
            self._request.faults += 1
            life.tell(f"  {operation}: took effect, its reply is lost ({lost})")
            if write and self._request.writes:
                self._request.writes[-1].unheard = True
            if lost == "killed":
                raise Killed
            if lost == "lost":
                raise ReadTimeoutError(endpoint_url="https://api.sagemaker", error="timed out")


def _distinct(pages: list[dict[str, Any]], pod: HyperPod) -> list[dict[str, Any]]:
    """Each node as it was last shown, with its instance id if any page had it, and as shutting down if any page said
    so."""
    if pod.switches.pages == "whole":
        return pages
    names = {node.id: node.logical for node in pod.ever.values()}
    shown: dict[str, dict[str, Any]] = {}
    for each in pages:
        name = str(each.get("NodeLogicalId") or names[each.get("InstanceId")])
        both = [each, shown.get(name, each)]
        shown[name] = max(
            both, key=lambda one: (bool(one.get("InstanceId")), one["InstanceStatus"]["Status"] == "ShuttingDown")
        )
    return list(shown.values())


def _left_out(look: Look, pod: HyperPod) -> frozenset[Node]:
    if pod.switches.pages not in ("skip", "change"):
        return frozenset()
    shown = {name for each in look.nodes for name in (each.get("InstanceId"), each.get("NodeLogicalId")) if name}
    nodes = (node for group in pod.groups.values() for node in group.nodes if node.id)
    return frozenset(node for node in nodes if not {node.id, node.logical} & shown)
