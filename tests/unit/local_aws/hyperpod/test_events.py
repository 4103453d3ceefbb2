"""Every event has the text of AWS's reference. Three are from other pages, and none is ours."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path

from cdk_hyperpod_local.hyperpod import HyperPod, events
from cdk_hyperpod_local.hyperpod.samples import eks, group, run_until_quiet, slurm

REFERENCE = {
    line for line in Path(__file__).with_name("cluster_events.txt").read_text("utf-8").splitlines() if line[:1] != "#"
}
# "Minimum capacity requirements (MinCount)", from the pages on continuous provisioning, and hyperpod-mental-model.md.
OTHER_PAGE = {"Minimum capacity reached", "Rollback initiated", events.NOT_READY.description}
P5 = "ml.p5.48xlarge"


def test_each_kind_is_one_of_the_reference() -> None:
    assert {kind.description for kind in events.KINDS} <= REFERENCE | OTHER_PAGE


def test_levels_follow_the_reference() -> None:
    for kind in events.KINDS:
        failed = any(word in kind.description for word in ("Failed", "failed", "has <status>"))
        warning = kind in (events.ROLLBACK, events.NOT_READY, events.SKIPPED)
        assert kind.level == ("Error" if failed else "Warn" if warning else "Info"), kind


def test_a_scaled_and_a_patched_cluster_emit_every_kind_of_event_but_one(make: Callable[..., HyperPod]) -> None:
    seen = seen_kinds(scaled(make())) | seen_kinds(patched(make()))
    assert {*events.KINDS} - seen == {events.CLUSTER_FAILED}


def scaled(hyperpod: HyperPod) -> HyperPod:
    hyperpod.set_capacity(P5, 3)
    hyperpod.call("CreateCluster", slurm(group("p5", 2, minimum=1), group("p6", 4, minimum=4)))
    run_until_quiet(hyperpod)
    hyperpod.set_capacity(P5, None)
    hyperpod.faults.fail_start_next = 1
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 4), group("c5", 1, instance_type="ml.c5.large")]})  # fmt: skip
    run_until_quiet(hyperpod)
    ids = [node.instance_id for node in hyperpod.nodes("train", "p5")]
    hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": ids[:1]})
    run_until_quiet(hyperpod)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 1)], "InstanceGroupsToDelete": ["c5"]})  # fmt: skip
    run_until_quiet(hyperpod)
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train"})
    run_until_quiet(hyperpod)
    (left,) = (node.instance_id for node in hyperpod.nodes("train", "p5"))
    hyperpod.call("BatchReplaceClusterNodes", {"ClusterName": "train", "NodeIds": [left]})
    hyperpod.faults.fail_start_next = 1
    run_until_quiet(hyperpod)
    (left,) = (node.instance_id for node in hyperpod.nodes("train", "p5"))
    hyperpod.call("BatchReplaceClusterNodes", {"ClusterName": "train", "NodeIds": [left]})
    run_until_quiet(hyperpod)

    return hyperpod


def patched(hyperpod: HyperPod) -> HyperPod:
    """A group with every outcome of a software update."""
    hyperpod.call("CreateCluster", eks(group("p5", 2, node_type=None)))
    run_until_quiet(hyperpod)
    deployment = {
        "RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}},
        "WaitIntervalInSeconds": 60,
        "AutoRollbackConfiguration": [{"AlarmName": "a"}, {"AlarmName": "b"}],
    }

    def patch(version: str) -> None:
        hyperpod.release_image(version)
        hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train", "DeploymentConfig": deployment})
        run_until_quiet(hyperpod)

    hyperpod.outside.alarms = {"a": "OK", "b": "OK"}
    hyperpod.outside.protected = {str(hyperpod.nodes("train")[0].instance_id)}
    patch("1.4.1")
    hyperpod.outside.protected, hyperpod.outside.alarms["b"] = set(), "ALARM"
    patch("1.4.2")
    hyperpod.outside.alarms.clear()
    patch("1.4.3")
    hyperpod.faults.failing_images = {"1.4.0", "1.4.1", "1.4.4"}
    patch("1.4.4")
    soon = datetime.datetime.fromtimestamp(hyperpod.clock.now() + 600, datetime.UTC)
    schedule = {"ScheduleExpression": f"cron({soon.minute} {soon.hour} * * ? *)"}
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 2, node_type=None, ScheduledUpdateConfig=schedule)]})  # fmt: skip
    hyperpod.faults.failing_images.clear()
    run_until_quiet(hyperpod, at_most=60)
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train"})
    run_until_quiet(hyperpod, at_most=3600)
    return hyperpod


def seen_kinds(hyperpod: HyperPod) -> set[events.Kind]:
    """The kinds of the cluster's events."""
    by_text = {event.description: event for event in hyperpod.cluster("train").events}
    patterns = {kind: pattern(kind.description) for kind in events.KINDS}
    seen: set[events.Kind] = set()
    for text, event in by_text.items():
        kinds = [kind for kind, form in patterns.items() if re.fullmatch(form, text)]
        assert kinds, text
        assert (event.level, event.resource) in {(kind.level, kind.resource) for kind in kinds}
        assert "<" not in text and "  " not in text, "everything is filled in"
        seen |= {*kinds}
    return seen


def pattern(description: str) -> str:
    """Every word in angle brackets is filled in. Only a node without an instance has no id."""
    escaped = re.escape(description).replace("<instance\\-id>\\ ", "([A-Za-z0-9-]+ )?")
    escaped = escaped.replace("<alarm\\-names>", "([a-z, ]+)")
    return re.sub("<[a-z\\\\-]+>", "([A-Za-z0-9-]+)", escaped)


def test_a_failed_controller_fails_the_cluster_with_a_reason(make: Callable[..., HyperPod]) -> None:
    hyperpod = make()
    hyperpod.set_capacity("ml.m5.4xlarge", 0)
    hyperpod.call("CreateCluster", slurm(group("p5", 1)))
    run_until_quiet(hyperpod)

    (failed,) = [
        event for event in hyperpod.cluster("train").events if event.description == "Cluster train creation failed"
    ]
    assert failed.level == "Error"
    assert "could not be provisioned: insufficient capacity" in failed.metadata["Cluster"]["FailureMessage"]
