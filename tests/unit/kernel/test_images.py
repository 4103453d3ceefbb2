"""Images: no deployment gives running nodes another one, and `plan` and `patch` compare in the same way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.kernel.images import UNKNOWN, ReImaged, re_imaged
from cdk_hyperpod._lambda.hyperpod.scale_down.decide.planner import plan
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import FIRST, Desired
from helpers.findings import codes
from helpers.scale_down.clusters import desired, desired_group, group, live, nodes, request_context

OWN, OTHER = "ami-0123456789abcdef0", "ami-00000000000000000"
PLATFORM = {"CurrentImageId": OWN, "CurrentImageReleaseVersion": "1.3.4", "ImageVersionStatus": "UpdateAvailable"}
LATEST = {**PLATFORM, "ImageVersionStatus": "UpToDate"}
CUSTOM = {"CurrentImageId": OWN}
"""HyperPod reports no release and no status of it."""


def shown(image: dict[str, Any], count: int = 8) -> list[dict[str, Any]]:
    return [{"InstanceGroupName": "p5", "CurrentCount": count, **image}]


def spec(**image: str) -> list[dict[str, str]]:
    return [{"InstanceGroupName": "p5", **image}]


ANY = "whatever the deployed template has"
NEW = spec()
"""The deployed template names no image."""


@pytest.mark.parametrize(
    ("wanted", "image", "before", "found"),
    [
        pytest.param({}, PLATFORM, ANY, None, id="no image is named"),
        # An AMI
        pytest.param({"ImageId": OWN}, PLATFORM, ANY, None, id="the AMI that they run"),
        pytest.param({"ImageId": OWN.upper().replace("AMI", "ami")}, PLATFORM, ANY, None, id="the same AMI in capitals"),
        pytest.param({"ImageId": OTHER}, PLATFORM, ANY, (OWN, OTHER), id="another AMI"),
        pytest.param({"ImageId": OTHER}, PLATFORM, spec(ImageId=OTHER), (OWN, OTHER), id="another AMI, deployed before"),
        pytest.param({"ImageId": OWN}, {}, NEW, (UNKNOWN, OWN), id="a new AMI, and none is reported"),
        pytest.param({"ImageId": OWN}, {}, spec(ImageId=OWN), None, id="the same AMI, and none is reported"),
        # A release
        pytest.param({"ImageReleaseVersion": "1.3.4"}, PLATFORM, ANY, None, id="the release that they run"),
        pytest.param({"ImageReleaseVersion": "1.3.5"}, PLATFORM, ANY, ("1.3.4", "1.3.5"), id="a later patch"),
        pytest.param({"ImageReleaseVersion": "1.4.0"}, PLATFORM, ANY, ("1.3.4", "1.4.0"), id="a later release"),
        pytest.param({"ImageReleaseVersion": "1.3.0"}, PLATFORM, None, None, id="automatic patching moved on"),
        pytest.param({"ImageReleaseVersion": "1.3.0"}, PLATFORM, spec(ImageReleaseVersion="1.3.0"), None, id="automatic patching moved on since the deployment"),
        pytest.param({"ImageReleaseVersion": "1.3.0"}, PLATFORM, spec(ImageReleaseVersion="1.3.4"), ("1.3.4", "1.3.0"), id="back to an earlier patch"),
        pytest.param({"ImageReleaseVersion": "1.3.0"}, PLATFORM, NEW, ("1.3.4", "1.3.0"), id="an earlier patch is new in the template"),
        pytest.param({"ImageReleaseVersion": "1.3.4"}, {**PLATFORM, "CurrentImageReleaseVersion": "1.3.10"}, None, None, id="patches are numbers"),
        pytest.param({"ImageReleaseVersion": "1.2.9"}, PLATFORM, None, ("1.3.4", "1.2.9"), id="an earlier minor release"),
        pytest.param({"ImageReleaseVersion": "1.3.0"}, CUSTOM, NEW, (OWN, "1.3.0"), id="a release for nodes of an own AMI"),
        # The latest
        pytest.param({"ImageId": "default"}, LATEST, ANY, None, id="they run the latest"),
        pytest.param({"ImageId": "default"}, PLATFORM, NEW, (OWN, "default"), id="the latest is new in the template"),
        pytest.param({"ImageId": "default"}, PLATFORM, spec(ImageId="default"), None, id="a newer one was published"),
        pytest.param({"ImageId": "default"}, PLATFORM, None, (OWN, "default"), id="a patch to the latest has something to do"),
        pytest.param({"ImageId": "default"}, CUSTOM, spec(ImageId=OWN), (OWN, "default"), id="from an own AMI to the latest"),
        pytest.param({"ImageId": "default"}, CUSTOM, spec(ImageId=OTHER), None, id="from an own AMI to the latest, after a patch"),
        pytest.param({"ImageId": "default"}, CUSTOM, NEW, (UNKNOWN, "default"), id="the latest is new, and HyperPod reports no status"),
        # Removed
        pytest.param({}, PLATFORM, spec(ImageReleaseVersion="1.3.4"), (OWN, "default"), id="a removed release"),
        pytest.param({}, LATEST, spec(ImageReleaseVersion="1.3.4"), None, id="a removed release that is the latest"),
        pytest.param({}, PLATFORM, spec(ImageId="default"), None, id="a removed default"),
        pytest.param({}, CUSTOM, spec(ImageId=OWN), (OWN, "default"), id="a removed AMI"),
    ],
)  # fmt: skip
def test_an_image_that_would_re_image_the_nodes_of_a_group_is_found(
    wanted: dict[str, str], image: dict[str, Any], before: Any, found: tuple[str, str] | None
) -> None:
    expected = () if found is None else (ReImaged("p5", 8, *found),)
    for each in [None, NEW, spec(**wanted)] if before == ANY else [before]:
        assert re_imaged(spec(**wanted), shown(image), each) == expected
        assert re_imaged(spec(**wanted), shown(image, count=0), each) == (), "a group without nodes"
        assert re_imaged(spec(**wanted), [], each) == (), "a new group"


@pytest.mark.parametrize(
    ("wanted", "releases", "before", "found"),
    [
        pytest.param({"ImageReleaseVersion": "1.3.4"}, ["1.3.4", "1.3.4"], NEW, None, id="all have it"),
        pytest.param({"ImageReleaseVersion": "1.3.4"}, ["1.3.0", "1.3.4"], NEW, (1, "1.3.0", "1.3.4"), id="one was left out"),
        pytest.param({"ImageReleaseVersion": "1.3.4"}, ["1.3.0", None], spec(ImageReleaseVersion="1.3.4"), None, id="one was left out, and nothing changes"),
        pytest.param({"ImageId": OWN}, ["1.3.0", "1.3.4"], NEW, (1, "1.3.0", OWN), id="one was left out, and the AMI is new in the template"),
        pytest.param({"ImageReleaseVersion": "1.3.0"}, ["1.3.0", "1.3.4"], None, None, id="automatic patching is on its way"),
    ],
)  # fmt: skip
def test_nodes_that_a_patch_left_out(
    wanted: dict[str, str], releases: list[str | None], before: Any, found: tuple[int, str, str] | None
) -> None:
    listed = [{"InstanceGroupName": "p5", "CurrentImageReleaseVersion": release} for release in releases]
    expected = () if found is None else (ReImaged("p5", *found),)
    assert re_imaged(spec(**wanted), shown(PLATFORM), before, listed) == expected


@pytest.mark.parametrize("setting", ["ImageId", "ImageReleaseVersion"])
def test_an_update_that_is_in_progress_counts(setting: str) -> None:
    """CloudFormation waits for its end, and then puts the image of the template back."""
    live, coming = (OWN, OTHER) if setting == "ImageId" else ("1.3.4", "1.4.0")
    image = {**PLATFORM, f"Desired{setting}": coming}
    (found,) = re_imaged(spec(**{setting: live}), shown(image), NEW)
    assert found == ReImaged("p5", 8, coming, live)
    assert re_imaged(spec(**{setting: live}), shown(image), spec(**{setting: live})) == (), "nothing changes"
    assert re_imaged(spec(**{setting: live}), shown({**PLATFORM, f"Desired{setting}": live}), NEW) == ()


def test_nodes_that_are_still_starting_count() -> None:
    """CurrentCount may leave them out. CloudFormation's update would re-image them as soon as they run."""
    starting = [{"InstanceGroupName": "p5", "CurrentImageReleaseVersion": "1.3.4"}] * 3
    (found,) = re_imaged(spec(ImageReleaseVersion="1.4.0"), shown(PLATFORM, count=0), NEW, starting)
    assert found == ReImaged("p5", 3, "1.3.4", "1.4.0")
    assert re_imaged(spec(ImageReleaseVersion="1.3.4"), shown(PLATFORM, count=0), NEW, starting) == ()


# -- what a deployment says --------------------------------------------------------------------------------------------


def sending(**settings: Any) -> Desired:
    wanted = desired_group(count=8)
    return desired(replace(wanted, spec={**wanted.spec, **settings}))


def reasons(image: dict[str, Any], wanted: Desired, before: Desired | None = None, **cluster: Any) -> list[str]:
    there = live(group(image=shown(image)[0]), nodes=nodes("p5", 8), **cluster)
    deployed = () if before is None else tuple(each.spec for each in before.groups)
    context = request_context(previous=before, deployed=deployed)
    in_dry_run = plan(there, wanted, replace(FIRST, deployed=deployed)).refusals
    in_deployment = plan(there, wanted, context).refusals
    assert in_dry_run == in_deployment
    return [str(each) for each in in_deployment]


@pytest.mark.parametrize(
    ("image", "wanted", "before", "command"),
    [
        (
            PLATFORM,
            {"ImageReleaseVersion": "1.4.0"},
            {"ImageReleaseVersion": "1.3.4"},
            "run `cdk-hyperpod patch p5`, then deploy",
        ),
        (
            PLATFORM,
            {"ImageReleaseVersion": "1.3.0"},
            {"ImageReleaseVersion": "1.3.4"},
            "set image_release_version of the group to 1.3.4, which they run, then deploy. If you want 1.3.0, run `cdk-hyperpod patch p5 --release 1.3.0`",
        ),
        (
            PLATFORM,
            {"ImageReleaseVersion": "1.2.9"},
            {"ImageReleaseVersion": "1.2.8"},
            "set image_release_version of the group to 1.3.4, which they run, then deploy. If you want 1.2.9, run `cdk-hyperpod patch p5 --release 1.2.9`",
        ),
        (PLATFORM, {}, {"ImageReleaseVersion": "1.3.4"}, "run `cdk-hyperpod patch p5 --image-id default`, then deploy"),
        (PLATFORM, {"ImageId": OTHER}, {}, "run `cdk-hyperpod patch p5`, then deploy"),
    ],
)  # fmt: skip
def test_a_deployment_that_would_re_image_nodes_is_refused(
    image: dict[str, Any], wanted: dict[str, str], before: dict[str, str], command: str
) -> None:
    """With the command that puts the image on the nodes."""
    (reason,) = reasons(image, sending(**wanted), sending(**before))
    assert command in reason
    assert [*codes(reason)] == ["nodes-re-imaged-to-older" if "which they run" in command else "nodes-re-imaged"]


def test_an_image_that_no_patch_can_make_known_is_another_refusal() -> None:
    (reason,) = reasons(CUSTOM, sending(ImageId="default"), sending())
    assert [*codes(reason)] == ["live-image-unknown"]


def test_a_request_that_does_not_change_the_cluster_is_not_refused() -> None:
    there = live(group(image=shown(PLATFORM)[0]), nodes=nodes("p5", 8))
    same = sending(ImageId=OTHER)
    assert plan(there, same, request_context(previous=same)).refusals == ()


def test_a_rollback_that_would_re_image_nodes_is_refused() -> None:
    """CloudFormation would send the earlier release, and HyperPod would put it on every node. The file of the user has the later
    one, so the command names the image."""
    there = live(group(image=shown(LATEST)[0]), nodes=nodes("p5", 8))
    earlier, failed = sending(ImageReleaseVersion="1.2.0"), sending(ImageReleaseVersion="1.3.4")
    context = request_context(previous=failed, deployed=tuple(each.spec for each in failed.groups), rolling_back=True)
    for reached, expected in ((frozenset({there.arn}), ["nodes-re-imaged-by-rollback"]), (frozenset[str](), [])):
        found = plan(there, earlier, replace(context, reached=reached)).refusals
        assert [each.code for each in found] == expected
        assert all(
            "run `cdk-hyperpod patch p5 --release 1.2.0`, then continue the rollback" in each.fix for each in found
        )


@pytest.mark.parametrize(
    ("created", "eks", "expected"),
    [
        (datetime(2025, 12, 31, 23, tzinfo=UTC), "arn:eks", ["cluster-before-2026", "cluster-before-2026"]),
        (datetime(2026, 1, 1, tzinfo=UTC), "arn:eks", []),
        (None, "arn:eks", []),
        (datetime(2025, 1, 1, tzinfo=UTC), None, []),
    ],
)
def test_a_cluster_without_versions(created: datetime | None, eks: str | None, expected: list[str]) -> None:
    wanted = replace(
        sending(ImageReleaseVersion="1.3.4", AutoPatchConfig={"PatchingStrategy": "WhenIdle"}), eks_cluster=eks
    )
    found = reasons(LATEST, wanted, created=created, eks_cluster=eks)
    assert [code for reason in found for code in codes(reason)] == expected
