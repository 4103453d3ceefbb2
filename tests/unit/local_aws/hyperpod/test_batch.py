"""Deleting, adding, rebooting and replacing nodes by id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdk_hyperpod_local.hyperpod import ApiError, HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import eks, group, run_until_quiet, slurm

Make = Callable[..., HyperPod]
P5 = "ml.p5.48xlarge"


def ids(hyperpod: HyperPod, name: str = "p5") -> list[str]:
    return [node.instance_id for node in hyperpod.nodes("train", name) if node.instance_id]


def delete(hyperpod: HyperPod, *node_ids: str, logical: list[str] | None = None) -> dict[str, Any]:
    params: dict[str, Any] = {"ClusterName": "train"}
    if node_ids:
        params["NodeIds"] = list(node_ids)
    if logical:
        params["NodeLogicalIds"] = logical
    return hyperpod.call("BatchDeleteClusterNodes", params)


def target(hyperpod: HyperPod, name: str = "p5") -> int:
    groups = hyperpod.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"]
    return next(int(g["TargetCount"]) for g in groups if g["InstanceGroupName"] == name)


def test_exactly_the_named_nodes_go(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 5)))
    before = ids(hyperpod)
    assert delete(hyperpod, before[1], before[3]) == {"Successful": [before[1], before[3]]}
    assert target(hyperpod) == 3
    run_until_quiet(hyperpod)
    assert ids(hyperpod) == [before[0], before[2], before[4]]
    assert [(t.node_id, t.cause) for t in hyperpod.terminations] == [(before[1], "named"), (before[3], "named")]
    assert hyperpod.random_terminations == ()


def test_partial_success_is_a_success(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    controller, missing, good = ids(hyperpod, "controller")[0], "i-00000000000000000", ids(hyperpod)[0]
    hyperpod.change_node(ids(hyperpod)[1], status="SystemUpdating")
    updating = ids(hyperpod)[1]
    answer = delete(hyperpod, controller, missing, updating, good)
    assert answer["Successful"] == [good]
    assert answer["Failed"] == [
        {"NodeId": controller, "Code": "NodeIdInUse", "Message": f"Node {controller} is a Slurm controller node and cannot be deleted"},
        {"NodeId": missing, "Code": "NodeIdNotFound", "Message": f"Node {missing} not found in cluster train"},
        {"NodeId": updating, "Code": "InvalidNodeStatus", "Message": f"Node {updating} is in status SystemUpdating"},
    ]  # fmt: skip
    assert target(hyperpod, "controller") == 1


def test_a_call_in_which_all_nodes_fail_is_a_400(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    first = ids(hyperpod)[0]
    delete(hyperpod, first)
    with pytest.raises(
        ApiError, match=f"All of the specified nodes failed.*InvalidNodeStatus: Node {first} is in status Shutt"
    ) as bad:
        delete(hyperpod, first)
    assert (bad.value.code, bad.value.http_status) == ("ValidationException", 400)
    assert target(hyperpod) == 1, "asking again takes nothing more"
    run_until_quiet(hyperpod)
    with pytest.raises(ApiError, match=f"NodeIdNotFound: Node {first} not found in cluster train"):
        delete(hyperpod, first)


def test_ninety_nine_ids_and_not_one_more(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 120)))
    with pytest.raises(ApiError, match="The number of nodes in a request must not exceed 99, got 100"):
        delete(hyperpod, *ids(hyperpod)[:100])
    assert len(delete(hyperpod, *ids(hyperpod)[:99])["Successful"]) == 99


def test_logical_ids_delete_nodes_without_an_instance_at_most_fifty_ids_in_a_call(make: Make) -> None:
    hyperpod = make()
    hyperpod.set_capacity(P5, 2)
    hyperpod.call("CreateCluster", slurm(group("p5", 60)))
    run_until_quiet(hyperpod)
    waiting = [node.logical_id for node in hyperpod.nodes("train", "p5") if not node.launched]
    with pytest.raises(ApiError, match="must not exceed 50, got 51"):
        delete(hyperpod, ids(hyperpod)[0], logical=waiting[:50])
    answer = delete(hyperpod, ids(hyperpod)[0], logical=[*waiting[:48], "nobody-knows-me"])
    assert answer["SuccessfulNodeLogicalIds"] == waiting[:48]
    assert [each["Code"] for each in answer["FailedNodeLogicalIds"]] == ["NodeIdNotFound"]
    assert target(hyperpod) == 60 - 49
    left = {node.logical_id for node in hyperpod.nodes("train", "p5")}
    assert not left & set(waiting[:48]), "a request without an instance is gone at once"


def test_logical_ids_need_continuous_provisioning(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2), continuous=False))
    with pytest.raises(
        ApiError, match="NodeLogicalIds are only supported for clusters with NodeProvisioningMode Continuous"
    ):
        delete(hyperpod, logical=["whatever"])


def test_malformed_ids_are_refused_whole(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    with pytest.raises(ApiError, match=r"Value 'i-xyz' at 'nodeIds.1.member' failed to satisfy constraint") as bad:
        delete(hyperpod, "i-xyz", ids(hyperpod)[0])
    assert bad.value.code == "ValidationException"
    with pytest.raises(ApiError, match="At least one of NodeIds and NodeLogicalIds must be specified"):
        delete(hyperpod)
    with pytest.raises(ApiError, match="Member must have length greater than or equal to 1"):
        hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": []})
    assert hyperpod.terminations == ()


def test_repeated_ids_count_once(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 3)))
    first = ids(hyperpod)[0]
    assert delete(hyperpod, first, first) == {"Successful": [first]}
    assert target(hyperpod) == 2


@pytest.mark.parametrize("status", ["Creating", "Updating", "SystemUpdating", "Deleting", "RollingBack"])
def test_cluster_operations_exclude_it(ready: Make, status: str) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    hyperpod.cluster("train").status = status
    with pytest.raises(ApiError, match=f"Cannot delete nodes while cluster train is in status {status}"):
        delete(hyperpod, ids(hyperpod)[0])
    assert hyperpod.terminations == ()


def test_other_groups_may_scale_meanwhile(ready: Make) -> None:
    hyperpod = ready(slurm(group("a", 2), group("b", 2)))
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("b", 9)]})
    assert delete(hyperpod, ids(hyperpod, "a")[0])["Successful"]


def test_a_cluster_of_2023_has_to_be_patched_first() -> None:
    hyperpod = HyperPod(clock=ManualClock(start=1_703_000_000))
    hyperpod.call("CreateCluster", slurm(group("p5", 2), continuous=False))
    run_until_quiet(hyperpod)
    with pytest.raises(ApiError, match=r"before its platform software was updated\. Run UpdateClusterSoftware first"):
        delete(hyperpod, ids(hyperpod)[0])
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train"})
    run_until_quiet(hyperpod)
    delete(hyperpod, ids(hyperpod)[0])


def test_standard_provisioning_deletes_by_name_too(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 3), continuous=False))
    delete(hyperpod, ids(hyperpod)[0])
    assert hyperpod.call("DescribeCluster", {"ClusterName": "train"})["ClusterStatus"] == "Updating"
    run_until_quiet(hyperpod)
    assert (target(hyperpod), len(ids(hyperpod))) == (2, 2)
    assert hyperpod.call("DescribeCluster", {"ClusterName": "train"})["ClusterStatus"] == "InService"


def test_adding_nodes_raises_the_target_and_names_them(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    request = {
        "ClusterName": "train",
        "ClientToken": "once",
        "NodesToAdd": [
            {"InstanceGroupName": "p5", "IncrementTargetCountBy": 2},
            {"InstanceGroupName": "nope", "IncrementTargetCountBy": 3},
        ],
    }
    answer = hyperpod.call("BatchAddClusterNodes", request)
    assert [(each["InstanceGroupName"], each["Status"]) for each in answer["Successful"]] == [("p5", "Pending")] * 2
    assert [(each["ErrorCode"], each["FailedCount"]) for each in answer["Failed"]] == [("InstanceGroupNotFound", 3)]
    assert target(hyperpod) == 4
    run_until_quiet(hyperpod)
    again = hyperpod.call("BatchAddClusterNodes", request)["Successful"]
    assert [each["NodeLogicalId"] for each in again] == [each["NodeLogicalId"] for each in answer["Successful"]]
    assert [each["Status"] for each in again] == ["Running", "Running"]
    with pytest.raises(ApiError, match="client token was already used with different parameters"):
        hyperpod.call("BatchAddClusterNodes", request | {"NodesToAdd": request["NodesToAdd"][:1]})
    delete(hyperpod, logical=[again[0]["NodeLogicalId"]])
    run_until_quiet(hyperpod)
    assert [each["Status"] for each in hyperpod.call("BatchAddClusterNodes", request)["Successful"]] == [
        "NotFound",
        "Running",
    ]
    clock.advance(8 * 3600)
    hyperpod.call("BatchAddClusterNodes", request)
    assert target(hyperpod) == 5, "after 8 hours the token is forgotten"


def test_adding_has_its_limits(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    for count, message in ((51, "less than or equal to 50"), (26, "must not exceed 50, got 52")):
        add = [{"InstanceGroupName": "p5", "IncrementTargetCountBy": count}] * 2
        with pytest.raises(ApiError, match=message):
            hyperpod.call("BatchAddClusterNodes", {"ClusterName": "train", "NodesToAdd": add})
    hyperpod.call("CreateCluster", slurm(group("p5", 1), name="standard", continuous=False))
    with pytest.raises(ApiError, match="only supported for clusters with NodeProvisioningMode Continuous"):
        hyperpod.call("BatchAddClusterNodes", {"ClusterName": "standard", "NodesToAdd": add[:1]})


def test_a_group_below_its_minimum_takes_no_added_nodes(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    hyperpod.set_capacity(P5, 2)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 4, minimum=4)]})
    add = [{"InstanceGroupName": "p5", "IncrementTargetCountBy": 1}]
    failed = hyperpod.call("BatchAddClusterNodes", {"ClusterName": "train", "NodesToAdd": add})["Failed"]
    assert [each["ErrorCode"] for each in failed] == ["InvalidInstanceGroupStatus"]


def test_replacing_keeps_the_logical_id_and_rebooting_keeps_the_instance(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    first, second = hyperpod.nodes("train", "p5")
    controller = ids(hyperpod, "controller")[0]
    replaced = hyperpod.call(
        "BatchReplaceClusterNodes", {"ClusterName": "train", "NodeIds": [first.instance_id, controller]}
    )
    assert replaced["Successful"] == [first.instance_id]
    assert [each["ErrorCode"] for each in replaced["Failed"]] == ["InstanceIdInUse"]
    hyperpod.call("BatchRebootClusterNodes", {"ClusterName": "train", "NodeLogicalIds": [second.logical_id]})
    run_until_quiet(hyperpod)
    after = hyperpod.nodes("train", "p5")
    assert [node.logical_id for node in after] == [first.logical_id, second.logical_id]
    assert after[0].instance_id != first.instance_id and after[1].instance_id == second.instance_id
    assert [(t.node_id, t.cause) for t in hyperpod.terminations] == [(first.instance_id, "replaced")]


def test_pages_hide_nothing_when_nodes_go_in_between(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 9)))
    request = {"ClusterName": "train", "MaxResults": 4}
    page = hyperpod.call("ListClusterNodes", request)
    seen = [node["InstanceId"] for node in page["ClusterNodeSummaries"]]
    delete(hyperpod, ids(hyperpod)[0])
    run_until_quiet(hyperpod)
    while "NextToken" in page:
        page = hyperpod.call("ListClusterNodes", request | {"NextToken": page["NextToken"]})
        seen += [node["InstanceId"] for node in page["ClusterNodeSummaries"]]
    assert len(seen) == len(set(seen)) == 10
    assert set(ids(hyperpod)) <= set(seen)
    for wrong in ("x", "WyJhIl0=", "!!"):
        with pytest.raises(ApiError, match="Invalid pagination token"):
            hyperpod.call("ListClusterNodes", request | {"NextToken": wrong})
    for size in (0, 101):
        with pytest.raises(ApiError, match="at 'maxResults' failed to satisfy constraint"):
            hyperpod.call("ListClusterNodes", request | {"MaxResults": size})


def test_the_group_filter_matches_parts_of_names(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 1), group("p5-spare", 2)))
    request = {"ClusterName": "train", "InstanceGroupNameContains": "p5", "SortBy": "NAME", "SortOrder": "Descending"}
    shown = [node["InstanceGroupName"] for node in hyperpod.call("ListClusterNodes", request)["ClusterNodeSummaries"]]
    assert shown == ["p5-spare", "p5-spare", "p5"]


def test_name_or_arn_in_this_account_and_region_only(ready: Make) -> None:
    hyperpod = ready(eks(group("p5", 1, node_type=None)))
    arn = hyperpod.call("DescribeCluster", {"ClusterName": "train"})["ClusterArn"]
    assert hyperpod.call("DescribeCluster", {"ClusterName": arn})["ClusterName"] == "train"
    for elsewhere in ({"account": "111122223333"}, {"region": "us-east-1"}):
        with pytest.raises(ApiError) as missing:
            hyperpod.call("DescribeCluster", {"ClusterName": "train"}, **elsewhere)
        assert missing.value.code == "ResourceNotFound"


def test_tags(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 1), Tags=[{"Key": "team", "Value": "a"}]))
    arn = hyperpod.call("DescribeCluster", {"ClusterName": "train"})["ClusterArn"]
    for n in range(49):
        hyperpod.call("AddTags", {"ResourceArn": arn, "Tags": [{"Key": f"k{n:02}", "Value": ""}]})
    with pytest.raises(ApiError, match="A resource can have at most 50 tags"):
        hyperpod.call("AddTags", {"ResourceArn": arn, "Tags": [{"Key": "one-more", "Value": ""}]})
    system = [{"Key": "aws:cloudformation:stack-name", "Value": "s"}]
    with pytest.raises(ApiError, match="reserved for system use"):
        hyperpod.call("AddTags", {"ResourceArn": arn, "Tags": system})
    hyperpod.call("AddTags", {"ResourceArn": arn, "Tags": system}, principal="cloudformation.amazonaws.com")
    hyperpod.call("DeleteTags", {"ResourceArn": arn, "TagKeys": ["k00", "not-there"]})
    page = hyperpod.call("ListTags", {"ResourceArn": arn, "MaxResults": 50})
    assert [tag["Key"] for tag in page["Tags"]][:2] == ["aws:cloudformation:stack-name", "k01"]
    with pytest.raises(ApiError, match="does not exist"):
        hyperpod.call("ListTags", {"ResourceArn": arn[:-3] + "000"})


def test_events_are_for_continuous_clusters_newest_first_five_hundred_at_most(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 300)))
    page = hyperpod.call("ListClusterEvents", {"ClusterName": "train"})
    assert len(page["Events"]) == 100
    times = [event["EventTime"] for event in page["Events"]]
    assert times == sorted(times, reverse=True)
    total = len(page["Events"])
    while "NextToken" in page:
        page = hyperpod.call("ListClusterEvents", {"ClusterName": "train", "NextToken": page["NextToken"]})
        total += len(page["Events"])
    assert total == 500
    one = hyperpod.call("ListClusterEvents", {"ClusterName": "train", "NodeId": ids(hyperpod)[-1]})["Events"]
    assert {event["InstanceId"] for event in one} == {ids(hyperpod)[-1]}
    details = hyperpod.call("DescribeClusterEvent", {"ClusterName": "train", "EventId": one[-1]["EventId"]})[
        "EventDetails"
    ]
    assert (
        details["EventDetails"]["EventMetadata"]["Instance"]["NodeLogicalId"]
        == hyperpod.nodes("train", "p5")[-1].logical_id
    )
    hyperpod.call("CreateCluster", slurm(group("p5", 1), name="standard", continuous=False))
    with pytest.raises(ApiError, match="only supported for clusters with NodeProvisioningMode Continuous"):
        hyperpod.call("ListClusterEvents", {"ClusterName": "standard"})


def test_clusters_are_listed_and_filtered(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 1)))
    middle = clock.now() + 1
    clock.advance(2)
    hyperpod.call("CreateCluster", slurm(group("p5", 1), name="alpha"))

    def listed(**request: Any) -> list[str]:
        return [each["ClusterName"] for each in hyperpod.call("ListClusters", request)["ClusterSummaries"]]

    assert listed() == ["train", "alpha"]
    assert listed(SortBy="NAME") == ["alpha", "train"]
    assert listed(SortOrder="Descending") == ["alpha", "train"]
    assert listed(CreationTimeAfter=middle) == ["alpha"]
    assert listed(CreationTimeBefore=middle) == ["train"]
    assert listed(NameContains="lph") == ["alpha"]
