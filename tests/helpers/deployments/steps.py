"""The effects of one deployment on a cluster, and turns on a cluster that several tests share."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cdk_hyperpod._lambda.hyperpod.kernel.refuse import Refuse
from cdk_hyperpod._lambda.hyperpod.scale_down.messages import failures
from cdk_hyperpod_local import assemblies
from helpers.local_aws.rehearsal import Rehearsal

Json = Any
_LONGEST_SECONDS = 30.0


class Step:
    """From here on: terminated nodes, calls, and failures."""

    def __init__(self, life: Rehearsal) -> None:
        self._life = life
        self._mark = life.mark()
        self._ended = len(life.ended())
        self._events = len(_events(life))

    def ended(self) -> dict[str, str]:
        """Instance id (of a node that was never launched: its logical id) -> why it was terminated."""
        return {end["node_id"] or end["logical_id"]: end["cause"] for end in self._life.ended()[self._ended :]}

    def calls(self) -> Counter[str]:
        """Calls that changed something, by operation."""
        return self._life.calls(self._mark)

    def callers(self, operation: str) -> list[str]:
        """Their callers, in order: "CloudFormation" or "ScaleDown"."""
        callers = self._life.callers(self._mark, operation)
        return ["ScaleDown" if "ScaleDownRole" in who else "CloudFormation" for who in callers]

    def polls(self) -> int:
        """How often the function listed the nodes."""
        return len(self._life.aws.journal(since=self._mark, operation="ListClusterNodes"))

    def failures(self) -> list[str]:
        """The reasons in the stack's events, in order, without those that only report another failure."""
        events = _events(self._life)[self._events :]
        failed = [event for event in events if event["ResourceStatus"].endswith("_FAILED")]
        return [event["ResourceStatusReason"] for event in failed if "cancelled" not in event["ResourceStatusReason"]]


def _events(life: Rehearsal) -> list[Json]:
    """Oldest first."""
    pages = life.aws.client("cloudformation").get_paginator("describe_stack_events").paginate(StackName=life.cluster)
    return [event for page in pages for event in page["StackEvents"]][::-1]


def refused(life: Rehearsal, step: Step, *refusals: Refuse, name: str = "") -> None:
    """The stack is unchanged, its events show the refusals, and the cluster was not changed.

    `name`: the cluster's, if it was to change.
    """
    assert life.status() == "UPDATE_ROLLBACK_COMPLETE"
    (reason,) = step.failures()
    assert reason.splitlines()[0] == f"Error: {failures.refused(name or life.name, refusals, first=True)}"
    assert step.ended() == {}
    assert step.calls() == {}


@contextmanager
def turn(life: Rehearsal, config: Json) -> Iterator[None]:
    """A test's turn on a shared cluster.

    It begins with the cluster of `config`, and must terminate no node at random.
    """
    _restore(life, config)
    yield
    life.aws.change_hyperpod(defaults=True)
    settle(life)
    assert life.ended(at_random=True) == []


def settle(life: Rehearsal) -> None:
    """Wait until all requested nodes are running, and the others are terminated."""
    wait_until(lambda: _is_quiet(life))


def wait_until(happened: Callable[[], bool], seconds: float = _LONGEST_SECONDS) -> None:
    limit = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < limit, f"not within {seconds:.0f} s"
        time.sleep(0.1)


def _is_quiet(life: Rehearsal) -> bool:
    cluster = life.aws.client("sagemaker").describe_cluster(ClusterName=life.name)
    groups = cluster["InstanceGroups"]
    still = all(group["Status"] == "InService" and group["CurrentCount"] == group["TargetCount"] for group in groups)
    return still and set(life.nodes().values()) == {"Running"} and cluster["ClusterStatus"] == "InService"


def _restore(life: Rehearsal, config: Json) -> None:
    template = assemblies.template(life.synth(config), life.cluster)
    deployed = life.aws.client("cloudformation").get_template(StackName=life.cluster)["TemplateBody"]
    deployed = deployed if isinstance(deployed, dict) else json.loads(deployed)
    if template == deployed and _as_told(life, config):
        return
    if template == deployed:
        # CloudFormation does nothing for a template that is already deployed.
        _change(life, {**config, "tags": {"turn": "over"}})
    _change(life, config)
    settle(life)


def _change(life: Rehearsal, config: Json) -> None:
    outcome = life.change(config)
    assert outcome.status == "UPDATE_COMPLETE", outcome.reasons


def _as_told(life: Rehearsal, config: Json) -> bool:
    wanted = {
        group["name"]: (group["instance_count"], group.get("min_instance_count", 0), group["instance_count"])
        for group in config["instance_groups"]
    }
    return life.groups() == wanted
