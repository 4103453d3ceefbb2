"""The judge finds functions that are broken on purpose, and an exemption does not hide a real fault."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.scale_down.drain.requester import RetryBudget
from cdk_hyperpod._lambda.hyperpod.scale_down.poll import prepare, stack
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import Provider, ScaleDownError
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.stack import wait_if_abandoned
from simulations.lifetimes.cloudformation import STACK, TAG
from simulations.lifetimes.function import Killed, MakeProvider
from simulations.lifetimes.judge import Cause
from simulations.lifetimes.lifetime import live
from simulations.lifetimes.profiles import PROFILES
from simulations.lifetimes.soak import seeds_of


class Broken:
    """The function, with a client that does something else than it is told."""

    def __init__(self, sagemaker: Callable[[], Any], cloudformation: Callable[[], Any], **more: Any) -> None:
        self.real = sagemaker()
        self._provider = Provider(lambda: self, cloudformation, **more)

    def on_event(self, event: Mapping[str, Any]) -> Any:
        return self._provider.on_event(event)

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        return self._provider.is_complete(event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def specs(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(text) for text in event["ResourceProperties"]["Groups"]]


class TakesAnother(Broken):
    """Deletes the node beside the right one."""

    def list_cluster_nodes(self, **asked: Any) -> Any:
        reply = self.real.list_cluster_nodes(**asked)
        self.seen = [node["InstanceId"] for node in reply["ClusterNodeSummaries"] if node.get("InstanceId")]
        return reply

    def batch_delete_cluster_nodes(self, **asked: Any) -> Any:
        others = [node for node in self.seen if node not in asked.get("NodeIds", ())]
        if others and asked.get("NodeIds"):
            asked["NodeIds"] = [others[0], *asked["NodeIds"][1:]]
        return self.real.batch_delete_cluster_nodes(**asked)


class TakesOneMore(Broken):
    """Deletes one node more than it should."""

    def list_cluster_nodes(self, **asked: Any) -> Any:
        reply = self.real.list_cluster_nodes(**asked)
        self.seen = [
            (node["InstanceGroupName"], node["InstanceId"])
            for node in reply["ClusterNodeSummaries"]
            if node.get("InstanceId")
        ]
        return reply

    def batch_delete_cluster_nodes(self, **asked: Any) -> Any:
        ids = list(asked.get("NodeIds", ()))
        groups = {group for group, node in self.seen if node in ids}
        ids += [node for group, node in self.seen if group in groups and node not in ids][:1]
        return self.real.batch_delete_cluster_nodes(**(asked | {"NodeIds": ids} if ids else asked))


class SendsAStaleCount(Broken):
    """Sends the template's own update first, without looking."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        groups = specs(event)
        if event["RequestType"] == "Update" and event["ResourceType"] == "Custom::HyperPodScaleDown":
            self.real.update_cluster(ClusterName="train", InstanceGroups=groups)
        return super().is_complete(event)


class LetsEverythingThrough(Broken):
    """prepare does nothing."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        return {"IsComplete": True}

    def on_event(self, event: Mapping[str, Any]) -> Any:
        page = self.real.list_cluster_nodes(ClusterName="train", MaxResults=100)
        while token := page.get("NextToken"):
            page = self.real.list_cluster_nodes(ClusterName="train", MaxResults=100, NextToken=token)
        return {"PhysicalResourceId": event.get("PhysicalResourceId", "x")}


class CountsByTarget(Broken):
    """Sees every group as full: decides by the target and not by the live nodes."""

    def list_cluster_nodes(self, **asked: Any) -> Any:
        reply = self.real.list_cluster_nodes(**asked)
        shown = [dict(node) for node in reply["ClusterNodeSummaries"]]
        for node in shown:
            if node["InstanceStatus"]["Status"] == "ShuttingDown":
                node["InstanceStatus"] = {"Status": "Running"}
        return {**reply, "ClusterNodeSummaries": shown}

    def describe_cluster(self, **asked: Any) -> Any:
        reply = self.real.describe_cluster(**asked)
        return {**reply, "InstanceGroups": [{**each, "TargetCount": 9} for each in reply["InstanceGroups"]]}


class DeletesAnUnknownGroup(Broken):
    """finalize deletes a group of the template."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        if event["ResourceType"] == "Custom::HyperPodGroupRemoval" and event["RequestType"] == "Update":
            groups = specs(event)
            self.real.update_cluster(
                ClusterName="train",
                InstanceGroups=groups[:-1],
                InstanceGroupsToDelete=[groups[-1]["InstanceGroupName"]],
            )
        return super().is_complete(event)


class NeverLooksAtItsStack(Broken):
    """A poll without a waiting deployment continues."""

    def __init__(self, sagemaker: Callable[[], Any], cloudformation: Callable[[], Any], **more: Any) -> None:
        class Blind:
            def describe_stacks(self, **asked: Any) -> Any:
                reply = cloudformation().describe_stacks(**asked)
                return {"Stacks": [{**reply["Stacks"][0], "StackStatus": "UPDATE_IN_PROGRESS"}]}

            def describe_stack_events(self, **asked: Any) -> Any:
                return cloudformation().describe_stack_events(**asked)

        super().__init__(sagemaker, Blind, **more)


class RefusesInARollback(Broken):
    """Refuses where nothing may be refused."""

    def on_event(self, event: Mapping[str, Any]) -> Any:
        answer = super().on_event(event)
        if self.real.describe_stacks(StackName="x")["Stacks"][0]["StackStatus"] == "UPDATE_ROLLBACK_IN_PROGRESS":
            raise ScaleDownError("No.")
        return answer


class SaysTooMuch(Broken):
    """Its reason is too long."""

    def on_event(self, event: Mapping[str, Any]) -> Any:
        try:
            return super().on_event(event)
        except ScaleDownError as error:
            raise ScaleDownError(f"{error} {'and more ' * 200}") from None


class BreaksDown(Broken):
    """Raises an exception that is not a sentence."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        raise KeyError("InstanceGroups")


class NeverEnds(Broken):
    """Polls forever."""

    def on_event(self, event: Mapping[str, Any]) -> Any:
        return {"PhysicalResourceId": event.get("PhysicalResourceId", "x")}

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        return {"IsComplete": False}


class RefusesEverything(Broken):
    """Refuses every update, even a valid one."""

    def on_event(self, event: Mapping[str, Any]) -> Any:
        if event["RequestType"] == "Update":
            raise ScaleDownError("Not today.")
        return super().on_event(event)


class HidesWhoLeaves(Broken):
    """Does not see nodes that are shutting down, nor that they are counted."""

    def describe_cluster(self, **asked: Any) -> Any:
        reply = self.real.describe_cluster(**asked)
        return {**reply, "InstanceGroups": [{**group, "CurrentCount": 0} for group in reply["InstanceGroups"]]}

    def list_cluster_nodes(self, **asked: Any) -> Any:
        reply = self.real.list_cluster_nodes(**asked)
        shown = [node for node in reply["ClusterNodeSummaries"] if node["InstanceStatus"]["Status"] != "ShuttingDown"]
        return {**reply, "ClusterNodeSummaries": shown}


class SendsWithoutAnotherLook(Broken):
    """Lowers the target in the same step in which it deletes nodes."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        self.old = specs({"ResourceProperties": event.get("OldResourceProperties") or event["ResourceProperties"]})
        return super().is_complete(event)

    def batch_delete_cluster_nodes(self, **asked: Any) -> Any:
        reply = self.real.batch_delete_cluster_nodes(**asked)
        self.real.update_cluster(ClusterName="train", InstanceGroups=self.old)
        return reply


class DeletesTwice(Broken):
    """Deletes a group again that is being deleted."""

    def update_cluster(self, **asked: Any) -> Any:
        reply = self.real.update_cluster(**asked)
        if asked.get("InstanceGroupsToDelete"):
            self.real.describe_cluster(ClusterName="train")
            with contextlib.suppress(ClientError):
                self.real.update_cluster(**asked)
        return reply


class TakesAnyway(Broken):
    """Every deployment deletes a node."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        if event["RequestType"] == "Update" and event["ResourceType"] == "Custom::HyperPodScaleDown":
            self.real.describe_cluster(ClusterName="train")
            nodes = self.real.list_cluster_nodes(ClusterName="train")["ClusterNodeSummaries"]
            with contextlib.suppress(ClientError):
                self.real.batch_delete_cluster_nodes(ClusterName="train", NodeIds=[nodes[-1]["InstanceId"]])
        return super().is_complete(event)


class TrustsAnybody(Broken):
    """Treats every cluster as its own."""

    def list_tags(self, **asked: Any) -> Any:
        return {"Tags": [{"Key": TAG, "Value": STACK}]}


class SaysNothing(Broken):
    """Does not report which nodes were deleted."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        answer = super().is_complete(event)
        return {**answer, "Data": {"NodesTaken": "nothing"}} if answer["IsComplete"] else answer


class SaysThatNothingStands(Broken):
    """Leaves groups, and does not report them."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        answer = super().is_complete(event)
        return {**answer, "Data": {"StillStanding": "nothing"}} if answer["IsComplete"] else answer


class SaysThatAllGoes(Broken):
    """Reports that HyperPod is deleting a group that is not being deleted."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        answer = super().is_complete(event)
        told = {
            "StillStanding": 'HyperPod accepted the deletion of group "p5" with 1 node (i-1), and has not finished it.'
        }
        return {**answer, "Data": told} if "StillStanding" in answer.get("Data", {}) else answer


class Undrained(Broken):
    """The function, with an S3 that does something else than it is told."""

    def __init__(self, sagemaker: Callable[[], Any], cloudformation: Callable[[], Any], **more: Any) -> None:
        self.s3 = more["s3"]()
        super().__init__(sagemaker, cloudformation, **(more | {"s3": lambda: self}))

    def get_object(self, **asked: Any) -> Any:
        reply = self.s3.get_object(**asked)
        content = reply["Body"].read()
        with contextlib.suppress(ValueError):
            content = json.dumps(self.amend(json.loads(content))).encode()
        return {**reply, "Body": io.BytesIO(content), "ContentLength": len(content)}

    def amend(self, status: dict[str, Any]) -> dict[str, Any]:
        return status

    def put_object(self, **asked: Any) -> Any:
        return self.s3.put_object(**asked)


class TakesAllForReady(Undrained):
    """Ignores the agent's reports of nodes."""

    def amend(self, status: dict[str, Any]) -> dict[str, Any]:
        for told in status["nodes"].values():
            told["state"] = "ready"
        return status


class TakesNoneForReady(Undrained):
    """Waits for nodes that are ready."""

    def amend(self, status: dict[str, Any]) -> dict[str, Any]:
        for told in status["nodes"].values():
            told["state"] = "draining"
        return status


class DoesNotDrain(Broken):
    """Ignores the drain settings of the file."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        event = {**event, "ResourceProperties": {**event["ResourceProperties"], "Drain": ""}}
        return super().is_complete(event)


class NeedsNothingSaved(Undrained):
    """Deletes nodes without a backup."""

    def amend(self, status: dict[str, Any]) -> dict[str, Any]:
        for told in status["nodes"].values():
            if told["state"] in ("backing-up", "backup-failed"):
                told |= {"state": "ready", "saved": True}
        return status


class GivesNothingBack(Undrained):
    """Requests drains, and never withdraws them."""

    def put_object(self, **asked: Any) -> Any:
        return self.s3.put_object(**asked) if json.loads(asked["Body"])["nodes"] else {}


class HoldsForEver(GivesNothingBack):
    """The same, without a lease."""

    def put_object(self, **asked: Any) -> Any:
        request = json.loads(asked["Body"])
        for node_request in request["nodes"]:
            node_request["expires"] += 30 * 24 * 3600
        return super().put_object(**(asked | {"Body": json.dumps(request).encode()}))


class AsksAsAnOperator(Undrained):
    """Writes a person's request."""

    def put_object(self, **asked: Any) -> Any:
        return self.s3.put_object(**(asked | {"Key": asked["Key"].replace("deployment", "operator")}))


class TakesOneLookForSilence(Provider):
    """Stops looking after one failed read of the actor that drains."""

    def __init__(self, sagemaker: Callable[[], Any], cloudformation: Callable[[], Any], **more: Any) -> None:
        super().__init__(sagemaker, cloudformation, **more)
        retry = self.services.retry

        def retry_other_reads(read: Callable[[], Any], until: Callable[[Exception], datetime]) -> Any:
            return read() if isinstance(getattr(until, "__self__", None), RetryBudget) else retry(read, until)

        self.services.retry = retry_other_reads  # type: ignore[method-assign]


class Unevicted(Broken):
    """The function, with a drainer that gets other requests."""

    def __init__(self, sagemaker: Callable[[], Any], cloudformation: Callable[[], Any], **more: Any) -> None:
        self.functions = more["functions"]()
        super().__init__(sagemaker, cloudformation, **(more | {"functions": lambda: self}))

    def invoke(self, **asked: Any) -> Any:
        event = json.loads(asked["Payload"])
        if event["requests"]:
            self.amend(event["requests"]["deployment"]["nodes"])
        return self.functions.invoke(**(asked | {"Payload": json.dumps(event).encode()}))

    def amend(self, node_requests: list[dict[str, Any]]) -> None:
        """Its request to the drainer."""


class AsksTooLong(Unevicted):
    """Its leases are longer than a node may be held."""

    def amend(self, node_requests: list[dict[str, Any]]) -> None:
        for node_request in node_requests:
            node_request["expires"] += 30 * 24 * 3600


class AsksForForce(Unevicted):
    """Ends pods at once, whatever the file's deadline."""

    def amend(self, node_requests: list[dict[str, Any]]) -> None:
        for node_request in node_requests:
            node_request |= {"on_timeout": "force", "deadline": 0}


class AsksForNoBackup(Unevicted):
    """Deletes nodes without a backup."""

    def amend(self, node_requests: list[dict[str, Any]]) -> None:
        for node_request in node_requests:
            node_request["backup"] = False

    def invoke(self, **asked: Any) -> Any:
        reply = super().invoke(**asked)
        answer = reply["Payload"].read().replace(b'"saved": false', b'"saved": true')
        return {**reply, "Payload": io.BytesIO(answer)}


class HoldsInSilence(Unevicted):
    """Does not report nodes that it could not release."""

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        try:
            return super().is_complete(event)
        except ScaleDownError as error:
            raise ScaleDownError(str(error).partition("The drainer did not release")[0]) from None


class Lingers(Broken):
    """Always waits a while."""

    def __init__(self, sagemaker: Callable[[], Any], cloudformation: Callable[[], Any], **more: Any) -> None:
        super().__init__(sagemaker, cloudformation, **more)
        self._polls = 0

    def is_complete(self, event: Mapping[str, Any]) -> Any:
        self._polls += 1
        return super().is_complete(event) if self._polls > 15 else {"IsComplete": False}


def kinds(make: Any, profile: str, lifetimes: int, *, until: str = "") -> set[str]:
    """The faults that the judge found, up to the expected one."""
    found: set[str] = set()
    for seed in seeds_of(lifetimes, profile=profile):
        found |= {fault.split(":")[0] for fault in live(seed, make=make).faults}
        if until in found:
            break
    return found


def in_ci(*case: object) -> Any:
    """Up to hundreds of lifetimes until the fault appears."""
    return pytest.param(*case, marks=pytest.mark.ci)


@pytest.mark.parametrize(
    ("make", "profile", "fault"),
    [
        (TakesAnother, "races", "more nodes than the count allows"),
        (TakesAnother, "drift", "the wrong order"),
        (TakesOneMore, "races", "more nodes than the count allows"),
        (TakesOneMore, "rollbacks", "more nodes than the count allows"),
        (SendsAStaleCount, "races", "UpdateCluster without a look"),
        (SendsAStaleCount, "standard", "the function ends a node at random, without a look"),
        (LetsEverythingThrough, "races", "CloudFormation ends a node at random, and prepare could know"),
        (LetsEverythingThrough, "drift", "a group by accident"),
        (LetsEverythingThrough, "drift", "not refused"),
        (LetsEverythingThrough, "rollbacks", "CloudFormation ends a node at random, and prepare could know"),
        (LetsEverythingThrough, "patches", "a deployment re-images a node"),
        (LetsEverythingThrough, "patches", "a deployment turns patching off"),
        in_ci(CountsByTarget, "drift", "more nodes than the count allows"),
        (DeletesAnUnknownGroup, "races", "a group by accident"),
        in_ci(DeletesTwice, "rollbacks", "a group that is being deleted is asked for again"),
        (HidesWhoLeaves, "races", "UpdateCluster while nodes are on their way out"),
        (HidesWhoLeaves, "rollbacks", "CloudFormation ends a node at random, and prepare could know"),
        (SendsWithoutAnotherLook, "rollbacks", "UpdateCluster without another look after a change"),
        (TakesAnyway, "rollbacks", "the same again makes a change"),
        (TakesAnyway, "rollbacks", "a change where nothing was to change"),
        (TakesAnother, "rollbacks", "an older node goes because of a newer one"),
        (TrustsAnybody, "rollbacks", "not refused"),
        (SaysNothing, "rollbacks", "nodes go in silence"),
        (SaysThatNothingStands, "drift", "a group is being deleted in silence"),
        (SaysThatAllGoes, "faults", "tells of a deletion that is none"),
        (Lingers, "rollbacks", "waits with nothing to take"),
        in_ci(NeverLooksAtItsStack, "rollbacks", "a change for a deployment that is over"),
        (RefusesInARollback, "rollbacks", "a rollback gets stuck"),
        (SaysTooMuch, "drift", "not one readable sentence"),
        (BreaksDown, "races", "the function breaks down"),
        (NeverEnds, "races", "no answer within CloudFormation's hour"),
        (RefusesEverything, "races", "a sound deployment fails"),
        (TakesAllForReady, "drains", "a node that was not ready goes"),
        (NeedsNothingSaved, "drains", "a node that was not ready goes"),
        in_ci(DoesNotDrain, "drains", "a node that was not ready goes"),
        (TakesNoneForReady, "drains", "ready nodes do not go"),
        (GivesNothingBack, "drains", "a node that stays is not given back"),
        (HoldsForEver, "drains", "a node is held for more than a day"),
        (HoldsForEver, "drains", "a node is drained for ever"),
        (AsksAsAnOperator, "drains", "the function writes what is another's"),
        in_ci(TakesOneLookForSilence, "drains", "a node that was not ready goes"),
        (TakesOneLookForSilence, "drains", "who answers is taken for silent"),
        in_ci(TakesOneLookForSilence, "evictions", "a node that was not ready goes"),
        in_ci(TakesOneLookForSilence, "evictions", "who answers is taken for silent"),
        in_ci(DoesNotDrain, "evictions", "a node that was not ready goes"),
        in_ci(AsksForForce, "evictions", "a node that was not ready goes"),
        (AsksForNoBackup, "evictions", "a node that was not ready goes"),
        (AsksTooLong, "evictions", "a node is held for more than a day"),
        in_ci(HoldsInSilence, "evictions", "a node stays held in silence"),
    ],
)
def test_a_broken_function_is_caught(make: MakeProvider, profile: str, fault: str) -> None:
    assert fault in kinds(make, profile, 600, until=fault)


@pytest.mark.parametrize(
    ("module", "check", "believes"),
    [
        pytest.param(prepare, "wait_unless_asked", wait_if_abandoned, id="no poll looks at the record"),
        pytest.param(stack, "_asks_for", lambda *_: True, id="on_event seals other properties"),
    ],
)
def test_a_guard_that_believes_an_event_is_caught(
    module: object, check: str, believes: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, check, believes)
    fault = "a forged event changes the cluster"
    assert fault in kinds(Provider, "standard", 600, until=fault)


@pytest.mark.parametrize("cause", Cause)
def test_the_page_lists_each_unavoidable_case(cause: Cause) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text()
    assert f"- {cause}" in " ".join(page.split())


def test_a_killed_process_is_no_sentence_and_no_fault() -> None:
    class Dies(Broken):
        def is_complete(self, event: Mapping[str, Any]) -> Any:
            if event["RequestType"] == "Update":
                raise Killed
            return super().is_complete(event)

    found = kinds(Dies, "rollbacks", 20)
    assert "not one readable sentence" not in found
    assert "the function breaks down" not in found
    assert "a rollback gets stuck" not in found


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_meets_what_it_stands_for(profile: str) -> None:
    """Its own troubles appear in its log. Otherwise the profile is only a name."""
    words = {
        "races": "* person",
        "faults": "its reply is lost",
        "rollbacks": "UPDATE_ROLLBACK_COMPLETE",
        "drift": "* person",
        "health": "* hyperpod",
        "autoscaler": "* autoscaler",
        "standard": "standard",
        "slow": "* ",
        "all": "* ",
        "drains": "is not ready: ",
        "evictions": "is not ready: ",
        "patches": "UpdateClusterSoftware by person",
    }
    stories = (live(seed, story=True).story for seed in seeds_of(25, profile=profile))
    assert len([*islice((story for story in stories if words[profile] in story), 2)]) == 2
