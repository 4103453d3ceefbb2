"""Why `patch` refuses, which image each group gets, and what the table shows: by values alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod.cli.live import Node
from cdk_hyperpod.cli.patch import view
from cdk_hyperpod.cli.patch.images import is_older, newest_release, wanted_image, why_not_due
from cdk_hyperpod.cli.patch.model import DrainedBy, Group, Options, Plan, Progress, Report
from cdk_hyperpod.cli.patch.patcher import update_request
from cdk_hyperpod.cli.patch.plans import left_out, make_plans
from cdk_hyperpod.cli.patch.reading import read_group
from cdk_hyperpod.cli.patch.refusals import Preview, refuse
from cdk_hyperpod.config.cluster import ClusterConfig, InstanceGroup
from helpers.cli.patching import live_node
from helpers.findings import found
from helpers.validating import changed, load_text

AMI = "ami-0123456789abcdef0"
NEW = datetime(2026, 5, 1, tzinfo=UTC)
OLD = datetime(2025, 12, 31, tzinfo=UTC)


def node(number: int = 0, **more: Any) -> Node:
    return live_node(f"i-{number:08x}", **more)


def group(name: str = "work", **more: Any) -> Group:
    usual: dict[str, Any] = {"status": "InService", "software": None, "current": 1, "minimum": 0}
    return Group(**{"name": name, **usual, "nodes": (node(),), **more})


def plan(name: str = "work", **more: Any) -> Plan:
    return Plan(**{"group": name, "wanted": "latest", "drained_by": DrainedBy.AGENT, "node_type": "Compute", **more})


def preview(**more: Any) -> Preview:
    usual: dict[str, Any] = {"options": Options(), "plans": [plan()], "groups": [group()], "created": NEW}
    return Preview(**{"cluster": "small", **usual, **more})


def test_absent_fields_of_a_group_are_unknown() -> None:
    """Without CurrentCount the list has to have the nodes that are wanted; no other absent field proves an image."""
    absent = read_group({"InstanceGroupName": "work", "TargetCount": 3}, None, ())
    assert (absent.current, absent.status, absent.software, absent.on_desired) == (3, "InService", None, None)
    assert read_group({"InstanceGroupName": "work", "CurrentCount": 0, "TargetCount": 3}, None, ()).current == 0
    assert why_not_due("latest", group(), {}, None, typed=False) == ""


def test_a_healthy_cluster_can_be_patched() -> None:
    assert refuse(preview()) == []


EKS = {"is_eks": True, "plans": [plan(drained_by=DrainedBy.DRAINER, node_type=None)]}


def of_eks(**more: Any) -> dict[str, Any]:
    return {"is_eks": True, "plans": [plan(drained_by=DrainedBy.DRAINER, node_type=None, **more)]}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"unknown": ["p5"]}, [("patch-group-unknown", "GROUP")]),
        ({"options": Options(release="1.0.0")}, [("patch-release-under-slurm", "--release")]),
        (
            {
                "options": Options(release="1.0.0"),
                **of_eks(wanted="1.0.0"),
                "created": OLD,
                "groups": [group(image="1.1.0")],
            },
            [("patch-cluster-without-releases", "--release")],
        ),
        (
            {**of_eks(wanted="1.0.0")},
            [("patch-cluster-without-releases", "instance_groups[work].image_release_version")],
        ),
        ({**of_eks(wanted="1.0.0"), "groups": [group(image="1.1.0")]}, []),
        (
            {**of_eks(), "groups": [group(image_id=AMI), group("other", image="1.1.0")]},
            [("patch-image-of-your-own", "instance_groups[work].image_id")],
        ),
        ({**of_eks(), "groups": [group(image_id=AMI)]}, []),
        ({**of_eks(wanted="default"), "groups": [group(image_id=AMI), group("other", image="1.1.0")]}, []),
        (
            {"plans": [plan(drained_by=DrainedBy.NONE, node_type="Controller")]},
            [("patch-controller-not-confirmed", "--controller")],
        ),
        ({"plans": [plan(drained_by=DrainedBy.NONE, node_type="Controller")], "options": Options(controller=True)}, []),
        ({"missing_alarms": ["nccl"]}, [("patch-alarm-unknown", "rolling.rollback_alarms")]),
        (
            {"wrong_images": {"work": "is built for arm64"}, "options": Options(image_id=AMI)},
            [("patch-image-wrong", "--image-id")],
        ),
        ({"deployment": "small (UPDATE_IN_PROGRESS)"}, [("patch-stack-in-progress", "")]),
        ({"report": Report(held_by_deployment=("i-1",))}, [("patch-guard-at-work", "")]),
        ({"cluster_status": "Updating"}, [("patch-cluster-not-in-service", "")]),
        (
            {
                "cluster_status": "SystemUpdating",
                "groups": [group(software="InProgress")],
                "updating": frozenset({"work"}),
            },
            [],
        ),
        (
            {"groups": [group(status="Updating", current=1, minimum=2)]},
            [("patch-below-minimum", "instance_groups[work].min_instance_count")],
        ),
        ({"groups": [group(current=1, minimum=2)]}, []),
        (
            {"groups": [group(software="Pending", coming=("ami-00000000", "1.3.0"))]},
            [("patch-other-update", "instance_groups[work]")],
        ),
        (
            {"groups": [group(nodes=(node(status="SystemUpdating"),))]},
            [("patch-other-update", "instance_groups[work]")],
        ),
        ({"groups": [group(software="Pending")], "updating": frozenset({"work"})}, []),
        (
            {"groups": [group(), group("p5", software="InProgress")], "held": frozenset({"p5"})},
            [("patch-unfinished", "GROUP")],
        ),
        # HyperPod may not show it yet; and a group that is not due would be released, too.
        ({"groups": [group(), group("p5")], "held": frozenset({"p5"})}, [("patch-unfinished", "GROUP")]),
        ({"plans": [plan(why_not="runs it")], "held": frozenset({"work"})}, [("patch-unfinished", "GROUP")]),
        ({"groups": [group(), group("p5")], "held": frozenset({"work"})}, []),
        (
            {"groups": [group(nodes=(node(status="DeepHealthCheckInProgress"),))]},
            [("patch-deep-health-check", "instance_groups[work]")],
        ),
        ({"has_channel": False}, [("patch-without-drain-agent", "slurm.drain")]),
        ({"report": Report(silence="is silent")}, [("patch-drain-agent-silent", "slurm.drain")]),
        ({"must_save": True}, [("patch-drain-agent-saves-nothing", "slurm.drain.backup")]),
        ({"must_save": True, "report": Report(saves=True)}, []),
        ({**EKS, "has_channel": False}, [("patch-without-drainer", "scale_down.drain")]),
        ({**EKS, "report": Report(silence="fails")}, [("patch-drainer-silent", "scale_down.drain")]),
        ({**EKS, "must_save": True}, [("patch-drainer-saves-nothing", "scale_down.drain.backup_cron_job")]),
        ({**EKS, "report": Report(other_run="abc")}, [("patch-already-running", "")]),
        # Nobody has to drain what does not run, what is not due, and what somebody else empties.
        ({"has_channel": False, "groups": [group(nodes=(node(status="ShuttingDown"),))]}, []),
        ({"has_channel": False, "plans": [plan(why_not="runs it")]}, []),
        ({"has_channel": False, "plans": [plan(drained_by=DrainedBy.NONE)]}, []),
        ({**of_eks(), "has_channel": False, "plans": [plan(drained_by=DrainedBy.HYPERPOD)]}, []),
    ],
)
def test_each_reason_against_a_patch_has_its_code(more: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert found(refuse(preview(**more))) == expected


def test_all_reasons_are_named_at_once() -> None:
    both = refuse(preview(unknown=["p5"], deployment="small", has_channel=False))
    assert [code for code, _ in found(both)] == [
        "patch-group-unknown",
        "patch-stack-in-progress",
        "patch-without-drain-agent",
    ]


# -- the image


def of_file(**more: Any) -> InstanceGroup:
    return InstanceGroup(name="work", instance_count=1, **more)


@pytest.mark.parametrize(
    ("options", "file", "wanted"),
    [
        (Options(), of_file(), "latest"),
        (Options(), None, "latest"),
        (Options(), of_file(image_id=AMI), AMI),
        (Options(), of_file(image_release_version="1.3.0"), "1.3.0"),
        (Options(release="1.4.0"), of_file(image_release_version="1.3.0"), "1.4.0"),
        (Options(image_id="default"), of_file(image_id=AMI), "default"),
    ],
)
def test_an_option_comes_before_the_file(options: Options, file: InstanceGroup | None, wanted: str) -> None:
    assert wanted_image(options, file) == wanted


@pytest.mark.parametrize(
    ("wanted", "live", "typed", "due"),
    [
        ("latest", {}, False, True),  # Slurm: nobody knows
        ("latest", {"image_status": "UpToDate"}, False, False),
        ("latest", {"image_status": "SecurityUpdateRequired"}, False, True),
        ("latest", {"image_status": "UpToDate", "nodes": (node(image_status="UpdateAvailable"),)}, False, True),
        (AMI, {"image_id": AMI.upper().replace("AMI", "ami")}, False, False),
        (AMI, {"image_id": "ami-00000000"}, False, True),
        (AMI, {}, False, True),
        ("default", {"image_id": AMI}, False, True),
        ("default", {"image_status": "UpToDate"}, False, False),
        ("default", {"image_status": "UpToDate", "nodes": (node(image_status="UpdateAvailable"),)}, False, True),
        ("1.3.0", {"image": "1.3.0"}, False, False),
        ("1.3.0", {"image": "1.3.4"}, False, False),  # automatic patching moved it on
        ("1.3.0", {"image": "1.3.4"}, True, True),  # typed: it is meant
        ("1.3.0", {"image": "1.2.9"}, False, True),
        ("1.3.0", {"image": "1.4.0"}, False, True),
        ("1.3.0", {"image": "1.3.0", "nodes": (node(image="1.2.0"),)}, False, True),
        ("1.3.0", {"image": "1.3.0", "nodes": (node(image="1.2.0"),)}, True, True),
        ("1.3.0", {"image": "1.3.0", "software": "InProgress"}, False, True),  # not all nodes may have it
        ("latest", {"nodes": (), "current": 0}, False, False),
        # TargetStateCount: an update has left out a node that runs.
        (AMI, {"image_id": AMI, "on_desired": 0}, True, True),
        (AMI, {"image_id": AMI, "on_desired": 1}, True, False),
        ("latest", {"image_status": "UpToDate", "on_desired": 0}, False, True),
        ("latest", {"image_status": "UpToDate", "on_desired": 0, "nodes": (node(status="Pending"),)}, False, False),
    ],
)
def test_which_groups_are_due(wanted: str, live: dict[str, Any], typed: bool, due: bool) -> None:
    one = group(**live)
    described = {
        "InstanceGroupName": "work",
        "CurrentCount": one.current,
        "CurrentImageId": one.image_id,
        "CurrentImageReleaseVersion": one.image,
        "ImageVersionStatus": one.image_status,
    }
    assert (why_not_due(wanted, one, described, None, typed=typed) == "") is due
    done = Progress(done=True)
    assert why_not_due(wanted, one, described, done, typed=typed) == "patched in this run"


def test_releases_are_compared_by_their_numbers() -> None:
    assert is_older("1.9.0", "1.10.0") and not is_older("1.10.0", "1.9.9") and not is_older("1.3.0", "1.3.0")
    assert not is_older("latest", "1.3.0") and not is_older(AMI, "1.3.0") and not is_older("1.3.0", None)
    assert newest_release(group(image="1.9.0", nodes=(node(image="1.10.0"),))) == "1.10.0"
    assert newest_release(group(image_id=AMI)) is None


# -- the plans


def config(**more: Any) -> ClusterConfig:
    head = {"name": "head", "instance_type": "ml.m5.xlarge", "instance_count": 1, "node_type": "controller"}
    return load_text(yaml.safe_dump(changed({"instance_groups.0": head, **more}))).config


def plans(options: Options, *groups: Group, **more: Any) -> list[tuple[str, DrainedBy]]:
    live = {each.name: {"InstanceGroupName": each.name, "CurrentCount": 1} for each in groups}
    made = make_plans(options, config(**more), groups, live, {})
    return [(each.group, each.drained_by) for each in made]


HEAD, LOGIN = group("head", node_type="Controller"), group("login", node_type="Login")
WORK, MORE = group("work", node_type="Compute"), group("more", node_type="Compute")


def test_the_order_and_the_ways() -> None:
    every = (HEAD, LOGIN, WORK, MORE)
    assert plans(Options(), *every) == [("work", DrainedBy.AGENT), ("more", DrainedBy.AGENT), ("login", DrainedBy.NONE)]
    assert plans(Options(controller=True), *every)[-1] == ("head", DrainedBy.NONE)
    assert plans(Options(groups=("more",), controller=True), *every) == [
        ("more", DrainedBy.AGENT),
        ("head", DrainedBy.NONE),
    ]
    assert plans(Options(groups=("head",)), *every) == [("head", DrainedBy.NONE)]
    assert plans(Options(drains=False), *every) == [
        ("work", DrainedBy.NONE),
        ("more", DrainedBy.NONE),
        ("login", DrainedBy.NONE),
    ]
    assert [*left_out(Options(), every)] == ["head"] and [*left_out(Options(groups=("work",)), every)] == []


@given(st.permutations([HEAD, LOGIN, WORK, MORE]))
def test_the_controller_is_always_the_last(groups: list[Group]) -> None:
    assert plans(Options(controller=True), *groups)[-1] == ("head", DrainedBy.NONE)


# -- the request


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("latest", {"InstanceGroups": [{"InstanceGroupName": "work"}]}),
        ("1.3.0", {"InstanceGroups": [{"InstanceGroupName": "work", "ImageReleaseVersion": "1.3.0"}]}),
        (AMI, {"InstanceGroups": [{"InstanceGroupName": "work"}], "ImageId": AMI}),
        ("default", {"InstanceGroups": [{"InstanceGroupName": "work"}], "ImageId": "default"}),
    ],
)
def test_a_request_names_one_group_and_one_image(wanted: str, expected: dict[str, Any]) -> None:
    """Without a group, HyperPod would update them all."""
    assert update_request("small", plan(wanted=wanted)) == {"ClusterName": "small", **expected}


# -- the table


def test_a_table_fits_a_terminal_and_shows_whose_jobs_run() -> None:
    busy = {f"i-{number:08x}": ["4711 of alice", f"{number} of bob"] for number in range(9)}
    groups = [
        group(nodes=tuple(map(node, range(20))), image_id=AMI),
        group("head", image="1.3.0", node_type="Controller", nodes=(node(99),)),
    ]
    made = [plan(), plan("head", drained_by=DrainedBy.NONE, node_type="Controller", why_not="runs it")]
    lines = view.table(made, groups, Report(busy=busy, is_read=True), columns=80, colour=False)
    assert max(map(len, lines)) <= 80
    wide = view.table(made, groups, Report(busy=busy, is_read=True), columns=None, colour=False)
    assert wide[1].endswith("9 nodes busy: 4711 of alice, 0 of bob, 1 of bob and 7 more")
    assert "- (runs it)" in wide[2] and wide[2].endswith("  -")
    assert max(map(len, view.LOST_WITH_THE_CONTROLLER)) <= 80


@pytest.mark.parametrize(
    ("report", "shown"), [(Report(is_read=True), "nothing"), (Report(), "-"), (Report(is_read=True, silence="x"), "-")]
)
def test_unknown_jobs_are_shown_as_a_dash_and_not_as_nothing(report: Report, shown: str) -> None:
    assert view.table([plan()], [group()], report, columns=None, colour=False)[1].endswith(f"  {shown}")
