"""Whatever the files say, and whatever people do between deployments: no deployment, and no rollback, gives a running node
another image, and none turns automatic patching off that the file does not turn off. Who does what a refusal advises can deploy.

On the local AWS's HyperPod, where CloudFormation updates software for each changed image, and UpdateCluster for each other one.
tests/simulations/lifetimes has the same promise on a HyperPod of its own.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.kernel.images import IMAGE_SETTINGS
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import PATCHING_SETTINGS
from cdk_hyperpod.config.cluster import InstanceGroup, Rolling, ScheduledUpdate
from cdk_hyperpod.config.rendering import ClusterContext, patching_off, render_group
from cdk_hyperpod_local.hyperpod import ApiError
from helpers.findings import codes
from helpers.scale_down.scenarios import QUICK
from helpers.scale_down.stack import Behaviour, Stack, Template, group, run_until_quiet

OWN, OTHER = "ami-0123456789abcdef0", "ami-0fedcba9876543210"
RELEASES = ("1.3.9", "1.4.0", "1.4.1", "1.5.0")
"""Of which HyperPod has published 1.4.0 when the cluster is created."""
LATER = ScheduledUpdate(schedule="cron(30 12 15 1 ? 2099)")
FILES = ClusterContext(
    continuous=True, encrypts_root_volumes=False, lifecycle_mode="bootstrap", scripts_uri="s3://bucket/prefix"
)
EXPECTED = {
    "nodes-re-imaged",
    "nodes-re-imaged-to-older",
    "nodes-re-imaged-by-rollback",
    "live-image-unknown",
    "live-image-unknown-in-rollback",
    "patching-turned-off",
}

images = st.sampled_from([{}, {}, *({"image_id": each} for each in (OWN, OTHER, "default")), *({"image_release_version": each} for each in RELEASES)])  # fmt: skip
patches = st.fixed_dictionaries(
    {
        "auto_patch": st.sampled_from([None, None, "none", "when_idle", "when_all_idle"]),
        "scheduled_update": st.sampled_from([None, None, "none", LATER]),
    }
)
files = st.lists(st.tuples(st.integers(1, 3), images, patches), min_size=2, max_size=2)
"""Of two groups: how many nodes, which image, which patches."""
File = list[tuple[int, dict[str, str], dict[str, Any]]]


@dataclass(frozen=True)
class Person:
    """What somebody does by the API: to a group, with an image or patching settings."""

    group: str
    release: str | None
    image: str | None
    patching: Mapping[str, Any]


people = st.builds(
    Person,
    group=st.sampled_from(["a", "b"]),
    release=st.none() | st.sampled_from(RELEASES),
    image=st.none() | st.sampled_from([OWN, "default"]),
    patching=st.sampled_from([{}, {"AutoPatchConfig": {"PatchingStrategy": "WhenIdle"}}, {"ScheduledUpdateConfig": {"ScheduleExpression": LATER.schedule}}]),
)  # fmt: skip


def template(file: File) -> Template:
    groups = [
        InstanceGroup(name=name, instance_type="ml.p5.48xlarge", instance_count=count, rolling=Rolling(batch_nodes=1), **image, **patch)  # type: ignore[arg-type]
        for name, (count, image, patch) in zip("ab", file, strict=True)
    ]  # fmt: skip
    specs = [render_group(each, FILES, role_arn="arn:role", network=None) for each in groups]
    kept = (*IMAGE_SETTINGS, *PATCHING_SETTINGS)
    return Template(
        groups=tuple(
            {**group(each.name, each.instance_count, node_type=None), **{key: spec[key] for key in kept if key in spec}}
            for each, spec in zip(groups, specs, strict=True)
        ),
        patching_off=patching_off(groups),
        eks=True,
    )


def act(train: Stack, person: Person) -> None:
    """Somebody patches a group, and sets what patches it later."""
    # HyperPod takes no patch of an own AMI without the AMI.
    with contextlib.suppress(ApiError):
        _act(train, person)


def _act(train: Stack, person: Person) -> None:
    hyperpod = train.hyperpod
    if person.release or person.image:
        member = {"ImageReleaseVersion": person.release} if person.release and not person.image else {}
        wanted: dict[str, Any] = {"InstanceGroups": [{"InstanceGroupName": person.group, **member}]}
        wanted |= {"ImageId": person.image} if person.image else {}
        hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train", **wanted})
        run_until_quiet(hyperpod)
    if person.patching:
        live = next(each for each in described(train) if each["InstanceGroupName"] == person.group)
        spec = {**group(person.group, live["TargetCount"], node_type=None), **patching(live), **person.patching}
        hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [spec]})
        run_until_quiet(hyperpod)


def follow(train: Stack, file: File, deployed: File, reason: str) -> File:
    """The file after everything that a refused deployment advises, which includes patches. Nothing else may be in the way."""
    advised = [(count, image, dict(patch)) for count, image, patch in file]
    for name, member, value in re.findall(r"`cdk-hyperpod patch (\w+)(?: --(release|image-id) (\S+))?`", reason):
        _, image, _ = file["ab".index(name)]
        release = value if member == "release" else image.get("image_release_version")
        wanted = {"ImageId": value if member == "image-id" else image.get("image_id", "default")}
        asked = {"InstanceGroupName": name, **({"ImageReleaseVersion": release} if release else {})}
        train.hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train", "InstanceGroups": [asked], **wanted})
        run_until_quiet(train.hyperpod)
    for name in re.findall(r"instance_groups\[(\w)\]: may re-image", reason):
        number = "ab".index(name)
        advised[number] = (advised[number][0], deployed[number][1], advised[number][2])
    for _, _, patch in advised:
        for setting in ("auto_patch", "scheduled_update"):
            if f"set {setting} of the group" in reason and patch[setting] is None:
                patch[setting] = "none"
    return advised


def deploy_as_advised(train: Stack, file: File, deployed: File) -> File:
    """The file that was deployed in the end. A message has room for a few refusals only, so it may take more than one turn."""
    for _ in range(4):
        file = follow(train, file, deployed, train.reasons[0])
        if train.deploy(template(file)) == "complete":
            return file
    raise AssertionError(train.reasons)


def described(train: Stack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = train.hyperpod.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"]
    return found


def patching(live: Mapping[str, Any]) -> dict[str, Any]:
    return {name: live[name] for name in PATCHING_SETTINGS if live.get(name)}


def running(train: Stack) -> dict[str, tuple[str, float | None]]:
    """Image, and time of the last software update, of each running node."""
    nodes = train.hyperpod.nodes("train")
    return {str(node.instance_id): (node.image, node.updated_at) for node in nodes if node.instance_id and node.live}


def turned_on(train: Stack) -> set[tuple[str, str]]:
    return {(live["InstanceGroupName"], name) for live in described(train) for name in patching(live)}


def named_by(*templates: Template) -> set[tuple[str, str]]:
    """The settings of which every template says something."""
    found = [
        {(each["InstanceGroupName"], name) for each in template.groups for name in PATCHING_SETTINGS if name in each}
        | {(name, setting) for setting, names in template.patching_off.items() for name in names}
        for template in templates
    ]
    return set.intersection(*found)


@given(
    first=files,
    steps=st.lists(st.tuples(st.lists(people, max_size=2), files, st.sampled_from(["", "", "after"])), min_size=1, max_size=3),
    by_update=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None, phases=[Phase.generate])
def test_no_deployment_re_images_a_node_or_turns_patching_off(
    first: File, steps: list[tuple[list[Person], File, Any]], by_update: bool
) -> None:
    behaviour = Behaviour(changed_image_id_updates_software=True, update_cluster_re_images=by_update)
    train = Stack(template(first), timings=QUICK, poll=60, behaviour=behaviour)
    deployed_file = first
    for acts, file, fail in steps:
        for person in acts:
            act(train, person)
        before, on, deployed, wanted = running(train), turned_on(train), train.template, template(file)
        assert deployed is not None
        ending = train.deploy(wanted, fail=fail)
        run_until_quiet(train.hyperpod)
        after = running(train)
        assert {name: after[name] for name in before if name in after} == {name: before[name] for name in before if name in after}, train.reasons  # fmt: skip
        off = on - turned_on(train)
        meant = {(name, setting) for setting, names in wanted.patching_off.items() for name in names}
        if ending == "complete":
            deployed_file = file
            assert off <= meant, train.reasons
        else:
            # A rollback sends the earlier template, which may not name what the failed one takes over.
            assert off <= meant | (named_by(wanted) - named_by(deployed)), train.reasons
            assert {*codes(" ".join(train.reasons))} <= {*EXPECTED, "scale-down-failed"} or fail, train.reasons
        if ending == "rollback failed":
            return
        if not fail and ending != "complete":
            deployed_file = deploy_as_advised(train, file, deployed_file)
