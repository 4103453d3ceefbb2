"""Creation, capacity, minimums and rollback, through the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdk_hyperpod_local.hyperpod import ApiError, HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import CONTROLLER, eks, group, run_until_quiet, slurm

Make = Callable[..., HyperPod]
P5 = "ml.p5.48xlarge"


def describe(hyperpod: HyperPod, name: str = "train") -> dict[str, Any]:
    return hyperpod.call("DescribeCluster", {"ClusterName": name})


def live_group(hyperpod: HyperPod, name: str) -> dict[str, Any]:
    return next(g for g in describe(hyperpod)["InstanceGroups"] if g["InstanceGroupName"] == name)


def counts(hyperpod: HyperPod, name: str) -> tuple[str, int, int, int]:
    found = live_group(hyperpod, name)
    return found["Status"], found["CurrentCount"], found["TargetCount"], found.get("MinCount", 0)


def events(hyperpod: HyperPod) -> list[str]:
    listed = hyperpod.call("ListClusterEvents", {"ClusterName": "train", "SortOrder": "Ascending", "MaxResults": 100})
    return [event["Description"] for event in listed["Events"]]


def test_slurm_starts_with_its_controller(make: Make, clock: ManualClock) -> None:
    hyperpod = make()
    hyperpod.call("CreateCluster", slurm(group("p5", 2)))
    clock.advance(650)
    assert [node.group for node in hyperpod.nodes("train")] == ["controller"]
    assert describe(hyperpod)["ClusterStatus"] == "Creating"
    clock.advance(60)
    assert describe(hyperpod)["ClusterStatus"] == "InService"
    assert counts(hyperpod, "p5") == ("InService", 0, 2, 0)
    assert len(hyperpod.nodes("train", "p5")) == 2
    run_until_quiet(hyperpod)
    assert counts(hyperpod, "p5") == ("InService", 2, 2, 0)


def test_a_login_group_needs_one_node_before_the_cluster_is_in_service(make: Make, clock: ManualClock) -> None:
    hyperpod = make()
    hyperpod.set_capacity("ml.m5.2xlarge", 0)
    hyperpod.call("CreateCluster", slurm(group("login", 1, instance_type="ml.m5.2xlarge", node_type="Login")))
    clock.advance(7200)
    assert describe(hyperpod)["ClusterStatus"] == "Creating"
    hyperpod.set_capacity("ml.m5.2xlarge", 1)
    run_until_quiet(hyperpod)
    assert describe(hyperpod)["ClusterStatus"] == "InService"


def test_a_controller_without_capacity_fails_the_cluster_and_an_update_tries_again(make: Make) -> None:
    hyperpod = make()
    hyperpod.set_capacity("ml.m5.4xlarge", 0)
    hyperpod.call("CreateCluster", slurm(group("p5", 2)))
    run_until_quiet(hyperpod)
    assert describe(hyperpod)["ClusterStatus"] == "Failed"
    assert describe(hyperpod)["FailureMessage"] == (
        "The controller instance group controller could not be provisioned: insufficient capacity."
    )
    hyperpod.set_capacity("ml.m5.4xlarge", None)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [CONTROLLER]})
    run_until_quiet(hyperpod)
    assert describe(hyperpod)["ClusterStatus"] == "InService"


def test_a_controller_whose_script_fails_fails_the_cluster(make: Make) -> None:
    hyperpod = make()
    hyperpod.faults.fail_start_next = 1
    hyperpod.call("CreateCluster", slurm(group("p5", 2)))
    run_until_quiet(hyperpod)
    assert describe(hyperpod)["FailureMessage"].endswith("its lifecycle scripts failed.")
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [CONTROLLER]})
    run_until_quiet(hyperpod)
    assert describe(hyperpod)["ClusterStatus"] == "InService"


def test_partial_capacity_is_served_and_the_rest_follows_when_it_arrives(make: Make, clock: ManualClock) -> None:
    hyperpod = make()
    hyperpod.set_capacity(P5, 3)
    hyperpod.call("CreateCluster", eks(group("p5", 8, node_type=None)))
    hyperpod.set_capacity(P5, 8, at=clock.now() + 50_000)
    clock.advance(40_000)
    assert counts(hyperpod, "p5") == ("InService", 3, 8, 0)
    assert live_group(hyperpod, "p5")["ActiveOperations"] == {"Scaling": 1}
    shown = hyperpod.call("ListClusterNodes", {"ClusterName": "train"})["ClusterNodeSummaries"]
    assert len(shown) == 3 and all("NodeLogicalId" not in node for node in shown)
    shown = hyperpod.call("ListClusterNodes", {"ClusterName": "train", "IncludeNodeLogicalIds": True})[
        "ClusterNodeSummaries"
    ]
    assert sorted("InstanceId" in node for node in shown) == [False] * 5 + [True] * 3
    assert len({node["NodeLogicalId"] for node in shown}) == 8
    run_until_quiet(hyperpod)
    assert counts(hyperpod, "p5") == ("InService", 8, 8, 0)
    assert live_group(hyperpod, "p5")["ActiveOperations"] == {}
    assert sum("Failed to provision EC2 Instance" in text for text in events(hyperpod)) == 1


def test_capacity_is_shared_by_all_clusters_and_old_requests_come_first(make: Make, clock: ManualClock) -> None:
    hyperpod = make()
    hyperpod.set_capacity(P5, 3)
    hyperpod.call("CreateCluster", eks(group("p5", 2, node_type=None), name="first"))
    clock.advance(5)
    hyperpod.call("CreateCluster", eks(group("p5", 2, node_type=None), name="second"))
    run_until_quiet(hyperpod)
    assert [describe(hyperpod, name)["InstanceGroups"][0]["CurrentCount"] for name in ("first", "second")] == [2, 1]
    hyperpod.call("DeleteCluster", {"ClusterName": "first"})
    run_until_quiet(hyperpod)
    assert describe(hyperpod, "second")["InstanceGroups"][0]["CurrentCount"] == 2


def test_a_minimum_holds_the_group_in_creating_until_it_is_met(make: Make, clock: ManualClock) -> None:
    hyperpod = make()
    hyperpod.set_capacity(P5, 3)
    hyperpod.call("CreateCluster", eks(group("p5", 8, minimum=4, node_type=None)))
    clock.advance(5000)
    assert describe(hyperpod)["ClusterStatus"] == "InService"
    assert counts(hyperpod, "p5") == ("Creating", 3, 8, 4)
    hyperpod.set_capacity(P5, 5)
    run_until_quiet(hyperpod)
    assert counts(hyperpod, "p5") == ("InService", 5, 8, 4)
    assert "Minimum capacity reached" in events(hyperpod)


def test_a_minimum_has_no_effect_after_it_was_met(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(eks(group("p5", 4, minimum=4, node_type=None)))
    hyperpod.set_capacity(P5, 0)
    ids = [node.instance_id for node in hyperpod.nodes("train", "p5")][:3]
    hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": ids})
    clock.advance(4 * 3600)
    assert counts(hyperpod, "p5") == ("InService", 1, 1, 4)
    hyperpod.call(
        "UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 4, minimum=4, node_type=None)]}
    )
    clock.advance(4 * 3600)
    assert counts(hyperpod, "p5") == ("InService", 1, 4, 4), "the same minimum again is no new wait"


def test_a_new_group_below_its_minimum_goes_to_zero_after_three_hours(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    hyperpod.set_capacity("ml.trn1.32xlarge", 3)
    trn1 = group("trn1", 8, minimum=4, instance_type="ml.trn1.32xlarge")
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [trn1]})
    clock.advance(3 * 3600 - 1)
    assert counts(hyperpod, "trn1") == ("Creating", 3, 8, 4)
    clock.advance(1)
    assert describe(hyperpod)["ClusterStatus"] == "RollingBack"
    assert counts(hyperpod, "trn1") == ("Updating", 3, 0, 0)
    run_until_quiet(hyperpod)
    assert counts(hyperpod, "trn1") == ("InService", 0, 0, 0)
    assert describe(hyperpod)["ClusterStatus"] == "InService"
    assert "Rollback initiated" in events(hyperpod)
    assert (
        "did not reach its minimum capacity of 4 instances within 3 hours (3 running)"
        in describe(hyperpod)["FailureMessage"]
    )
    assert {t.cause for t in hyperpod.terminations} == {"rollback"}
    assert counts(hyperpod, "p5") == ("InService", 2, 2, 0), "other groups are not touched"


def test_an_existing_group_returns_to_its_last_settings_and_keeps_its_nodes(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 4, minimum=2)))
    before = {node.instance_id for node in hyperpod.nodes("train", "p5")}
    hyperpod.set_capacity(P5, 6)
    grown = group("p5", 10, minimum=8) | {
        "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-new/x", "OnCreate": "a.sh"}
    }
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [grown]})
    assert counts(hyperpod, "p5") == ("Updating", 4, 10, 8)
    run_until_quiet(hyperpod)
    assert counts(hyperpod, "p5") == ("InService", 4, 4, 2)
    assert {node.instance_id for node in hyperpod.nodes("train", "p5")} == before
    assert live_group(hyperpod, "p5")["LifeCycleConfig"]["SourceS3Uri"] == "s3://sagemaker-scripts/base"


def test_every_change_of_the_minimum_restarts_its_three_hours(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 4, minimum=2)))
    hyperpod.set_capacity(P5, 4)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 10, minimum=8)]})
    clock.advance(2 * 3600)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 10, minimum=7)]})
    clock.advance(2 * 3600)
    assert counts(hyperpod, "p5") == ("Updating", 4, 10, 7)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 9, minimum=7)]})
    clock.advance(3600)
    assert "(4 running)" in describe(hyperpod)["FailureMessage"], "a change of the count alone does not"
    assert counts(hyperpod, "p5") == ("InService", 4, 4, 2), (
        "back to the last settings in service, not to those in between"
    )


def test_lowering_a_minimum_to_what_runs_ends_the_wait(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 4)))
    hyperpod.set_capacity(P5, 4)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 10, minimum=8)]})
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 10, minimum=4)]})
    assert counts(hyperpod, "p5") == ("InService", 4, 10, 4)


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("BatchDeleteClusterNodes", {"NodeIds": ["p5"]}),
        ("UpdateClusterSoftware", {}),
    ],
)
def test_an_unmet_minimum_blocks_node_operations(ready: Make, operation: str, params: dict[str, Any]) -> None:
    hyperpod = ready(slurm(group("p5", 4)))
    hyperpod.set_capacity(P5, 4)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 10, minimum=8)]})
    if "NodeIds" in params:
        params = {"NodeIds": [hyperpod.nodes("train", "p5")[0].instance_id]}
    with pytest.raises(ApiError, match="minimum capacity is not met for instance group p5") as refused:
        hyperpod.call(operation, {"ClusterName": "train", **params})
    assert refused.value.code == "ConflictException"


def test_an_unmet_minimum_blocks_no_deletion(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 4)))
    hyperpod.set_capacity(P5, 4)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 10, minimum=8)]})
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroupsToDelete": ["p5"]})
    run_until_quiet(hyperpod)
    assert [g["InstanceGroupName"] for g in describe(hyperpod)["InstanceGroups"]] == ["controller"]
    hyperpod.call("DeleteCluster", {"ClusterName": "train"})
    run_until_quiet(hyperpod)
    with pytest.raises(ApiError, match="Could not find the cluster 'train'") as gone:
        describe(hyperpod)
    assert (gone.value.code, gone.value.http_status) == ("ResourceNotFound", 400)


def test_standard_provisioning_is_all_or_nothing_at_creation(make: Make) -> None:
    hyperpod = make()
    hyperpod.set_capacity(P5, 3)
    hyperpod.call("CreateCluster", slurm(group("p5", 4), continuous=False))
    run_until_quiet(hyperpod)
    assert describe(hyperpod)["ClusterStatus"] == "Failed"
    assert describe(hyperpod)["FailureMessage"].startswith("We currently do not have sufficient capacity")
    assert hyperpod.nodes("train") == ()


def test_standard_provisioning_waits_a_little_for_capacity(make: Make, clock: ManualClock) -> None:
    hyperpod = make()
    hyperpod.set_capacity(P5, 3)
    hyperpod.call("CreateCluster", slurm(group("p5", 4), continuous=False))
    hyperpod.set_capacity(P5, 4, at=clock.now() + 600)
    run_until_quiet(hyperpod)
    assert describe(hyperpod)["ClusterStatus"] == "InService"
    assert "MinCount" not in live_group(hyperpod, "p5")


def test_a_standard_update_without_capacity_is_undone_as_a_whole(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 4), continuous=False))
    before = {node.instance_id for node in hyperpod.nodes("train")}
    hyperpod.set_capacity(P5, 6)
    trn1 = group("trn1", 1, instance_type="ml.trn1.32xlarge")
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 8), trn1]})
    assert describe(hyperpod)["ClusterStatus"] == "Updating"
    run_until_quiet(hyperpod)
    assert describe(hyperpod)["ClusterStatus"] == "InService"
    assert [(g["InstanceGroupName"], g["TargetCount"]) for g in describe(hyperpod)["InstanceGroups"]] == [
        ("controller", 1), ("p5", 4),
    ]  # fmt: skip
    assert {node.instance_id for node in hyperpod.nodes("train")} == before


def test_continuous_provisioning_retries_a_node_whose_scripts_fail(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    hyperpod.faults.fail_start_next = 2
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 4)]})
    run_until_quiet(hyperpod)
    assert counts(hyperpod, "p5") == ("InService", 4, 4, 0)
    assert [t.cause for t in hyperpod.terminations] == ["failed", "failed"]
    assert sum(text.endswith(" has Failed") for text in events(hyperpod)) == 2


def test_deep_health_checks_delay_new_nodes_and_refuse_updates(ready: Make, clock: ManualClock) -> None:
    p5 = group("p5", 1, node_type=None, OnStartDeepHealthChecks=["InstanceStress"])
    hyperpod = ready(eks(p5))
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [p5 | {"InstanceCount": 2}]})
    clock.advance(700)
    assert [node.status for node in hyperpod.nodes("train")] == ["Running", "DeepHealthCheckInProgress"]
    with pytest.raises(ApiError, match="deep health checks are in progress on instance group p5") as refused:
        hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [p5 | {"InstanceCount": 2}]})
    assert refused.value.code == "ConflictException"
    with pytest.raises(
        ApiError, match=r"InvalidNodeStatus: Node i-[0-9a-f]{17} is in status DeepHealthCheckInProgress"
    ):
        hyperpod.call(
            "BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": [hyperpod.nodes("train")[1].instance_id]}
        )
    run_until_quiet(hyperpod)
    assert [node.status for node in hyperpod.nodes("train")] == ["Running", "Running"]
    check = [{"InstanceGroupName": "p5", "DeepHealthChecks": ["InstanceConnectivity"]}]
    hyperpod.call("StartClusterHealthCheck", {"ClusterName": "train", "DeepHealthCheckConfigurations": check})
    assert [node.status for node in hyperpod.nodes("train")] == ["DeepHealthCheckInProgress"] * 2


def test_list_and_describe_disagree_while_a_node_terminates(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 3)))
    gone = hyperpod.nodes("train", "p5")[0].instance_id
    hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": [gone]})

    def seen() -> tuple[int, int]:
        request = {"ClusterName": "train", "InstanceGroupNameContains": "p5"}
        return len(hyperpod.call("ListClusterNodes", request)["ClusterNodeSummaries"]), counts(hyperpod, "p5")[1]

    assert seen() == (3, 3)
    clock.advance(900)
    assert seen() == (2, 3)
    clock.advance(120)
    assert seen() == (2, 2)


def test_failed_groups_keep_trying_while_the_rest_is_in_service(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    hyperpod.faults.failing_groups.add("bad")
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("bad", 2, minimum=1)]})
    clock.advance(2 * 3600)
    assert counts(hyperpod, "bad")[0] == "Creating"
    clock.advance(8 * 3600)
    assert counts(hyperpod, "bad") == ("InService", 0, 0, 0)


def test_a_standard_deletion_ends_even_if_the_replacement_never_starts(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 3), continuous=False), batch_delete_lowers_target="never")
    hyperpod.faults.fail_start_next = 1
    first = hyperpod.nodes("train", "p5")[0].instance_id
    hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": [first]})
    run_until_quiet(hyperpod)
    assert describe(hyperpod)["ClusterStatus"] == "InService"
    assert sorted(node.status for node in hyperpod.nodes("train", "p5")) == ["Failure", "Running", "Running"]


def test_target_state_count_counts_nodes_on_the_desired_image(ready: Make) -> None:
    hyperpod = ready(eks(group("p5", 3, node_type=None)))
    hyperpod.change_node(hyperpod.nodes("train", "p5")[0].logical_id, image="0.9.0")
    assert (live_group(hyperpod, "p5")["CurrentCount"], live_group(hyperpod, "p5")["TargetStateCount"]) == (3, 2)
    first = hyperpod.call("ListClusterNodes", {"ClusterName": "train", "InstanceGroupNameContains": "p5"})[
        "ClusterNodeSummaries"
    ][0]
    assert (first["CurrentImageReleaseVersion"], first["ImageVersionStatus"]) == ("0.9.0", "UpdateAvailable")


def test_a_node_may_stand_for_a_machine_with_an_address_of_its_own(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 1)))
    (node,) = hyperpod.nodes("train", "p5")
    request = {"ClusterName": "train", "NodeId": node.instance_id}
    before = hyperpod.call("DescribeClusterNode", request)["NodeDetails"]
    hyperpod.change_node(node.logical_id, address="10.77.0.21")
    after = hyperpod.call("DescribeClusterNode", request)["NodeDetails"]
    assert after == {**before, "PrivatePrimaryIp": "10.77.0.21", "PrivateDnsHostname": "ip-10-77-0-21.ec2.internal"}
    assert HyperPod.from_json(hyperpod.to_json()).nodes("train", "p5")[0].address == "10.77.0.21"


def test_a_cluster_is_deleted_once(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 1)))
    hyperpod.call("DeleteCluster", {"ClusterName": "train"})
    with pytest.raises(ApiError, match="Cannot delete cluster train while it is in status Deleting"):
        hyperpod.call("DeleteCluster", {"ClusterName": "train"})
