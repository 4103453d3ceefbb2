"""CloudFormation, as far as a stack of three resources needs it: prepare, the cluster, finalize, in this order.

An update sends a resource only its changes. After a failure, the resources that were begun are sent back, with the
properties swapped. A cancelled request continues by itself, but its result is ignored. After a failed rollback:
continue-update-rollback.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from .function import FINALIZE, PREPARE, Framework, Killed, Request
from .hyperpod import BUSY, Refused, Spec
from .software import PATCHING, release_of

if TYPE_CHECKING:
    from .lifetime import Lifetime

STACK = "arn:aws:cloudformation:us-west-2:111122223333:stack/train-cluster/5f0e5a10-7c1b-11f0-9d5e-0e6d3a9f1b77"
NAME = "train"
TAG = "cdk-hyperpod:stack-id"

LOGICAL = {PREPARE: "Prepare", "AWS::SageMaker::Cluster": "Cluster", FINALIZE: "Finalize"}
CLUSTER = "AWS::SageMaker::Cluster"
RESOURCES = (PREPARE, CLUSTER, FINALIZE)

Trouble = Literal[
    "none",
    "cancelled early",
    "cancelled in the cluster's update",
    "cluster's update fails",
    "fails afterwards",
    "fails at the end",
]
"""Other problems of a deployment, besides those of the function."""


@dataclass(frozen=True, slots=True)
class Template:
    """The user's file, as the stack's template contains it."""

    groups: tuple[Spec, ...]
    name: str = NAME
    nodes_to_delete: tuple[str, ...] = ()
    groups_to_delete: tuple[str, ...] = ()
    max_nodes: int = 16
    autoscaled: tuple[str, ...] = ()
    digest: str = "1"
    retry: str = ""
    network: str = "subnet-1"
    continuous: bool = True
    eks: bool = False
    drain: str = ""
    """How nodes are drained, as in the property; absent: not at all."""
    patching_off: tuple[tuple[str, str], ...] = ()
    """Patching that the file says is `none`: the setting, and the group."""

    @property
    def counts(self) -> dict[str, int]:
        return {spec["InstanceGroupName"]: spec["InstanceCount"] for spec in self.groups}

    @property
    def vpc(self) -> dict[str, Any]:
        return {"Subnets": [self.network], "SecurityGroupIds": ["sg-1"]}

    @property
    def orchestrator(self) -> dict[str, Any]:
        if self.eks:
            return {"Eks": {"ClusterArn": "arn:aws:eks:us-west-2:111122223333:cluster/train"}}
        return {"Slurm": {}}

    def properties(self, resource: str) -> dict[str, Any]:
        if resource == CLUSTER:
            return {"groups": self.groups, "digest": self.digest, "network": self.network, "name": self.name}
        found: dict[str, Any] = {
            "ServiceToken": "arn:aws:lambda:us-west-2:111122223333:function:train",
            "ClusterName": self.name,
            "Groups": [json.dumps(spec, sort_keys=True) for spec in self.groups],
            "NodesToDelete": list(self.nodes_to_delete),
            "InstanceGroupsToDelete": list(self.groups_to_delete),
            "MaxNodes": str(self.max_nodes),
            "AutoscaledGroups": list(self.autoscaled),
            "Digest": self.digest,
            "Retry": self.retry,
        }
        if self.drain:
            found["Drain"] = self.drain
        if self.patching_off:
            off = {setting: [name for which, name in self.patching_off if which == setting] for setting in PATCHING}
            found["PatchingOff"] = json.dumps(off)
        if resource == PREPARE:
            create_only = {"VpcConfig": self.vpc, "Orchestrator": self.orchestrator}
            found["CreateOnly"] = json.dumps(create_only, sort_keys=True)
        return found


@dataclass(slots=True, eq=False)
class ClusterUpdate:
    """One call in which CloudFormation's handler sent the cluster its properties."""

    deployment: Deployment
    rollback: bool
    at: float
    before: Any
    """The request of prepare before it in the same operation. Absent: CloudFormation had no reason to call prepare."""
    counts: dict[str, int]
    specs: tuple[Spec, ...] = ()


@dataclass(slots=True, eq=False)
class Deployment:
    """One `cdk deploy`, with its rollback."""

    number: int
    old: Template | None
    new: Template
    trouble: Trouble
    rolls_back: bool
    began: float
    what: str
    before: dict[str, Template | None] = field(default_factory=dict)
    """The template to which a rollback returns each resource."""
    requests: list[Request] = field(default_factory=list)
    updates: list[ClusterUpdate] = field(default_factory=list)
    reached: bool = False
    """CloudFormation began to update the cluster."""
    cancelled_at: float | None = None
    outcome: str = ""
    called: bool = False
    """Something had changed."""


class Stack:
    """The stack, and its deployments."""

    def __init__(self, life: Lifetime, framework: Framework) -> None:
        self.life, self.framework = life, framework
        self.status = "CREATE_COMPLETE"
        self.created = life.clock.now
        self.updated: float | None = None
        self.events: list[dict[str, Any]] = []
        self.known: dict[str, Template | None] = dict.fromkeys(RESOURCES)
        """The template of the last successful update of each resource."""
        self.dirty: set[str] = set()
        """Resources whose last update failed without a rollback. The next update always sends them."""
        self.stable: dict[str, Template | None] = dict(self.known)
        """The same, when the stack was last complete."""
        self.deployments: list[Deployment] = []
        self._unfinished: list[str] = []
        self._sent: dict[str, Template] = {}
        """The template that each resource was last sent."""
        dice = Random(f"{life.seed} late reads")
        self.status_late = dice.choice([0.0, 0.0, 5.0, 30.0, 60.0])
        """How many seconds old the result of DescribeStacks is."""
        self.events_late = dice.choice([0.0, 0.0, 5.0, 30.0, 60.0])
        """The same for DescribeStackEvents."""
        self._told: list[tuple[float, str, float | None]] = []
        """Since when the stack had which status, and LastUpdatedTime."""

    # -- what the function may ask --

    def describe(self) -> dict[str, Any]:
        clock = self.life.clock
        found = {
            "StackId": STACK,
            "StackName": "train-cluster",
            "StackStatus": self.status,
            "CreationTime": clock.datetime(self.created),
        }
        updated = self.updated
        if (seen := clock.now - self.status_late) < clock.now and self._told:
            # There are no reads before the first deployment.
            known = [each for each in self._told if each[0] <= seen] or self._told[:1]
            _, found["StackStatus"], updated = known[-1]
        if updated is not None:
            found["LastUpdatedTime"] = clock.datetime(updated)
        return found

    def describe_events(self, token: str | None) -> dict[str, Any]:
        """Newest first, ten to a page. A token is the number of events that are older than the page before."""
        seen = self.life.clock.datetime(self.life.clock.now - self.events_late)
        upto = sum(event["Timestamp"] <= seen for event in self.events) if token is None else int(token)
        page = self.events[max(0, upto - 10) : upto][::-1]
        reply: dict[str, Any] = {"StackEvents": page}
        if upto > 10:
            reply["NextToken"] = str(upto - 10)
        return reply

    def template(self) -> dict[str, Any]:
        """As GetTemplate shows it: of the operation in progress."""
        return {
            "Resources": {LOGICAL[each]: {"Properties": sent.properties(each)} for each, sent in self._sent.items()}
        }

    def was_deployed(self) -> None:
        """The events of the deployment before the first one of this lifetime."""
        now, self.life.clock.now = self.life.clock.now, self.created
        for resource, file in self.known.items():
            if file is not None:
                self._sent[resource] = file
                self._event(resource, "CREATE_COMPLETE")
        self._event("AWS::CloudFormation::Stack", "CREATE_COMPLETE")
        self.life.clock.now = now

    def _shown(self, resource: str) -> dict[str, str]:
        """ResourceProperties, as far as an event shows them."""
        show = self.life.switches.events_show
        if resource not in (PREPARE, FINALIZE) or show == "absent" or resource not in self._sent:
            return {}
        text = json.dumps(_as_texts(self._sent[resource].properties(resource)))
        return {"ResourceProperties": text[: len(text) // 2] if show == "cut" else text}

    def _event(self, resource: str, status: str, reason: str = "") -> None:
        pod = self.life.pod
        physical = {
            "AWS::CloudFormation::Stack": STACK,
            PREPARE: "hyperpod-scale-down",
            FINALIZE: "hyperpod-group-removal",
            CLUSTER: pod.name if self.life.switches.ref_is_name else pod.arn,
        }[resource]
        is_unnamed = self.life.switches.begins_unnamed and (resource, status) == (CLUSTER, "UPDATE_IN_PROGRESS")
        if resource == "AWS::CloudFormation::Stack":
            self.status = status
            self._told.append((self.life.clock.now, status, self.updated))
            self.life.tell(f"stack: {status} {reason}")
        elif self.life.story is not None:
            self.life.tell(f"{LOGICAL[resource]}: {status} {reason[:300]}")
        self.events.append(
            {
                "StackId": STACK,
                "EventId": f"event-{len(self.events)}",
                "StackName": "train-cluster",
                "LogicalResourceId": LOGICAL.get(resource, "train-cluster"),
                **({} if is_unnamed else {"PhysicalResourceId": physical}),
                "ResourceType": resource,
                "Timestamp": self.life.clock.datetime(),
                "ResourceStatus": status,
                "ResourceStatusReason": reason,
                **self._shown(resource),
            }
        )

    # -- deployments --

    def deploy(self, new: Template, *, what: str, trouble: Trouble = "none", rolls_back: bool = True) -> Deployment:
        """`cdk deploy`, until it has succeeded, has rolled back, or is stuck."""
        life = self.life
        deployment = Deployment(
            len(self.deployments) + 1, self.known[CLUSTER], new, trouble, rolls_back, life.clock.now, what
        )
        self.deployments.append(deployment)
        before = deployment.before = dict(self.stable if life.switches.back_to_stable else self.known)
        changed = [resource for resource in RESOURCES if self._changes(resource, new)]
        if not changed and trouble in (
            "none",
            "cancelled early",
            "cancelled in the cluster's update",
            "cluster's update fails",
        ):
            deployment.outcome = "no changes"
            return deployment
        deployment.called = True
        first = self.known[CLUSTER] is None
        verb = "CREATE" if first else "UPDATE"
        if not first:
            self.updated = life.clock.now
        self._event("AWS::CloudFormation::Stack", f"{verb}_IN_PROGRESS", "User Initiated")
        life.deployment_begins(deployment)
        begun, failed = self._update(changed, new, deployment)
        failed = failed or trouble == "fails at the end" or (trouble == "fails afterwards" and CLUSTER not in changed)
        if not failed:
            self._event("AWS::CloudFormation::Stack", f"{verb}_COMPLETE")
            deployment.outcome, self.stable = "succeeded", dict(self.known)
        elif not rolls_back or first:
            self._event("AWS::CloudFormation::Stack", f"{verb}_FAILED")
            deployment.outcome = "failed, left as it is"
        else:
            if life.switches.back_to_stable:
                # Resources of an earlier update that was left failed go back too.
                changed = [each for each in RESOURCES if self.known[each] != before[each] or each in self.dirty]
                begun = [each for each in RESOURCES if each in begun or each in changed]
                deployment.reached = CLUSTER in begun
            self._roll_back(deployment, before, begun)
        return deployment

    def _update(self, changed: list[str], new: Template, deployment: Deployment) -> tuple[list[str], bool]:
        """Update each resource, until one fails: those that it began, and whether one failed."""
        for number, resource in enumerate(changed, 1):
            self.life.clock.pass_time(self.life.rng.uniform(1, 8))
            verb = "CREATE" if self.known[resource] is None else "UPDATE"
            self._sent[resource] = new
            self._event(resource, f"{verb}_IN_PROGRESS")
            failure = self._send(resource, new, self.known[resource], deployment, rollback=False)
            if failure is not None:
                self._event(resource, f"{verb}_FAILED", failure)
                self.dirty.add(resource)
                return [*changed[:number]], True
            self.known[resource] = new
            if deployment.trouble == "fails afterwards" and resource == CLUSTER:
                self._event(resource, "UPDATE_COMPLETE")
                return [*changed[:number]], True
            self._event(resource, f"{verb}_COMPLETE")
            self.dirty.discard(resource)
        return [*changed], False

    def destroy(self) -> None:
        """`cdk destroy`, in reverse order. The function changes nothing."""
        life, last = self.life, self.deployments[-1].new
        deployment = Deployment(len(self.deployments) + 1, last, last, "none", False, life.clock.now, "destroy")
        self._event("AWS::CloudFormation::Stack", "DELETE_IN_PROGRESS", "User Initiated")
        for resource in reversed(RESOURCES):
            life.clock.pass_time(life.rng.uniform(1, 8))
            if resource == CLUSTER:
                try:
                    life.pod.delete(by="cloudformation")
                except Refused as refused:
                    life.tell(str(refused))
            elif self.known[resource] is not None:
                failure = self._custom(resource, None, self.known[resource], deployment, rollback=False)
                if failure is not None and not isinstance(deployment.requests[-1].error, Killed):
                    life.judge.fault("a deletion fails", failure)
        life.judge.destroyed(deployment)

    def continue_rollback(self, deployment: Deployment) -> None:
        """`aws cloudformation continue-update-rollback`."""
        if self.life.switches.continuing_is_an_update:
            self.updated = self.life.clock.now
        self._roll_back(deployment, deployment.before, self._unfinished, again=True)

    def _changes(self, resource: str, new: Template) -> bool:
        known = self.known[resource]
        return known is None or resource in self.dirty or known.properties(resource) != new.properties(resource)

    def _roll_back(
        self, deployment: Deployment, before: Mapping[str, Template | None], begun: list[str], *, again: bool = False
    ) -> None:
        life = self.life
        if deployment.cancelled_at is None or again:
            self._event("AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_IN_PROGRESS")
        life.rollback_begins(deployment)
        order = begun if again or not life.switches.rollback_backwards else begun[::-1]
        for done, resource in enumerate(order):
            life.clock.pass_time(life.rng.uniform(1, 8))
            old = before[resource]
            if old is None:
                continue
            self._sent[resource] = old
            self._event(resource, "UPDATE_IN_PROGRESS")
            failure = self._send(resource, old, deployment.new, deployment, rollback=True)
            if failure is not None:
                self._event(resource, "UPDATE_FAILED", failure)
                self._event("AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_FAILED")
                deployment.outcome = "rollback failed"
                self._unfinished = order[done:]
                return
            self._event(resource, "UPDATE_COMPLETE")
            self.known[resource] = old
            self.dirty.discard(resource)
        self._event("AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS")
        for resource in order:
            if before[resource] is None and resource != CLUSTER:
                self._custom(resource, None, deployment.new, deployment, rollback=True)
                self.known[resource] = None
                self.dirty.discard(resource)
        self._event("AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_COMPLETE")
        deployment.outcome, self.stable = "rolled back", dict(self.known)

    def _send(
        self, resource: str, new: Template, old: Template | None, deployment: Deployment, *, rollback: bool
    ) -> str | None:
        """Why it failed; absent: it did not."""
        if resource == CLUSTER:
            return self._cluster(new, old, deployment, rollback=rollback)
        return self._custom(resource, new, old, deployment, rollback=rollback)

    def _custom(
        self, resource: str, new: Template | None, old: Template | None, deployment: Deployment, *, rollback: bool
    ) -> str | None:
        life = self.life
        kind = "Delete" if new is None else "Create" if old is None else "Update"
        properties = _as_texts((new or old or deployment.new).properties(resource))
        swapped = _as_texts(old.properties(resource)) if old is not None and new is not None else None
        request = Request(resource, kind, properties, swapped, deployment, rollback)
        event: dict[str, Any] = {
            "RequestType": kind,
            "ResponseURL": "https://cloudformation/response",
            "StackId": STACK,
            "RequestId": f"request-{len(deployment.requests)}",
            "ResourceType": resource,
            "LogicalResourceId": LOGICAL[resource],
            "ResourceProperties": properties,
        }
        if kind != "Create":
            event["PhysicalResourceId"] = "hyperpod-scale-down" if resource == PREPARE else "hyperpod-group-removal"
        if swapped is not None:
            event["OldResourceProperties"] = swapped
        deployment.requests.append(request)
        self.framework.send(request, event)
        if resource == PREPARE and not rollback and deployment.trouble == "cancelled early":
            life.clock.later(
                life.rng.choice([2.0, 20.0, 45.0, 100.0, 400.0]), lambda: self._cancel(deployment, request)
            )
        life.clock.wait_for(lambda: request.done or request.over, at_most=4000)
        life.judge.request_ended(request)
        if request.over:
            return "Resource update cancelled"
        if not request.done:
            request.over, request.over_at = True, life.clock.now
            return "no answer in time"
        return None if request.succeeded else request.reason or "no reason"

    def _cancel(self, deployment: Deployment, request: Request) -> None:
        if not request.done:
            request.over, request.over_at = True, self.life.clock.now
            deployment.cancelled_at = self.life.clock.now
            self.life.tell("the update is cancelled")
            self._event("AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_IN_PROGRESS", "User Initiated")

    def _cluster(self, new: Template, old: Template | None, deployment: Deployment, *, rollback: bool) -> str | None:
        life, pod = self.life, self.life.pod
        if not rollback:
            deployment.reached = True
        if rollback or deployment.trouble != "cluster's update fails":
            pass
        elif life.rng.random() < 0.5:
            return "Access denied in the handler"
        prepare = next((r for r in reversed(deployment.requests) if r.kind == PREPARE and r.rollback == rollback), None)
        life.before_the_clusters_update()
        if pod.exists and (new.name, new.vpc) != (pod.name, pod.network):
            return "the cluster would be replaced"
        update = ClusterUpdate(deployment, rollback, life.clock.now, prepare, new.counts, new.groups)
        try:
            if not pod.exists:
                pod.create(
                    new.name,
                    new.groups,
                    tags={TAG: STACK, "team": "research"},
                    network=new.vpc,
                    orchestrator=new.orchestrator,
                    by="cloudformation",
                )
                update.at = life.clock.now
            else:
                self._handle(new, old, update)
        except Refused as refused:
            return str(refused)
        deployment.updates.append(update)
        if not rollback and deployment.trouble == "cancelled in the cluster's update":
            life.clock.pass_time(life.rng.choice([1.0, 30.0, 200.0]))
            deployment.cancelled_at = life.clock.now
            self._event("AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_IN_PROGRESS", "User Initiated")
            return "Resource update cancelled"
        if not rollback and deployment.trouble == "cluster's update fails":
            life.clock.pass_time(life.rng.choice([1.0, 30.0, 200.0]))
            return "the cluster's update failed"
        life.clock.wait_for(lambda: pod.status not in BUSY, at_most=3 * 3600)
        if life.switches.handler_waits:
            reached = life.clock.wait_for(
                lambda: all(len(group.live) == group.target for group in pod.groups.values()), at_most=3600
            )
            if not reached and not rollback:
                return "did not stabilize"
        return None

    def _handle(self, new: Template, old: Template | None, update: ClusterUpdate) -> None:
        """The handler's own UpdateCluster: every group of the template, and perhaps those that were removed from it."""
        life, pod = self.life, self.life.pod
        dropped = sorted(set(old.counts if old else ()) - set(new.counts))
        until = life.clock.now + 1800
        while True:
            if life.switches.dropped == "left":
                gone: list[str] = []
            elif life.switches.dropped == "deleted":
                gone = [name for name in dropped if name in pod.groups and pod.groups[name].status != "Deleting"]
            else:
                gone = [name for name in dropped if name not in pod.groups or pod.groups[name].status != "Deleting"]
            update.at = life.clock.now
            update.counts = new.counts
            life.judge.cluster_update_is_sent(update, gone)
            try:
                pod.update([dict(spec) for spec in new.groups], gone, by="cloudformation", call=update)
                break
            except Refused as refused:
                busy = refused.code == "ConflictException" or "in progress" in refused.message
                if not busy or not life.switches.handler_retries or life.clock.now > until:
                    raise
            life.clock.pass_time(30)
        for spec in new.groups:
            self._update_software(spec, old, update, until)

    def _update_software(self, spec: Spec, old: Template | None, update: ClusterUpdate, until: float) -> None:
        """A changed ImageReleaseVersion of an existing group runs UpdateClusterSoftware; of ImageId it is not known."""
        life, name = self.life, spec["InstanceGroupName"]
        before = next((each for each in (old.groups if old else ()) if each["InstanceGroupName"] == name), None)
        settings = ["ImageReleaseVersion", *(["ImageId"] if life.switches.image_id_re_images else [])]
        changed = before is not None and any(spec.get(key) not in (None, before.get(key)) for key in settings)
        image = release_of(spec)
        while changed and image is not None:
            try:
                life.pod.software.update([name], image, by="cloudformation", call=update)
                return
            except Refused as refused:
                if refused.code != "ConflictException" or life.clock.now > until:
                    raise
            life.clock.pass_time(30)


def _as_texts(value: Any) -> Any:
    """Properties in the form of a custom resource: every scalar is text."""
    if isinstance(value, dict):
        return {key: _as_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_texts(item) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
