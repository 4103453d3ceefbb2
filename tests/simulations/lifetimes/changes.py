"""What a user changes in a cluster file between two deployments, sound or not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .cloudformation import Template
from .model import Spec
from .software import FIRST, IMAGES, PATCHING, ami

if TYPE_CHECKING:
    from .lifetime import Lifetime


def _some_group(life: Lifetime, file: Template) -> int | None:
    groups = [
        n for n, spec in enumerate(file.groups) if (spec.get("SlurmConfig") or {}).get("NodeType") != "Controller"
    ]
    return life.draw.choice(groups) if groups else None


def _with(file: Template, at: int, **changes: Any) -> Template:
    spec = {**file.groups[at], **changes}
    if spec.get("MinInstanceCount", 0) > spec["InstanceCount"]:
        spec["MinInstanceCount"] = spec["InstanceCount"]
    return replace(file, groups=(*file.groups[:at], spec, *file.groups[at + 1 :]))


def _live_ids(life: Lifetime, name: str) -> list[str]:
    group = life.pod.groups.get(name)
    return [node.id for node in group.live if node.id] if group else []


def _fewer(life: Lifetime, file: Template) -> Template:
    at = _some_group(life, file)
    if at is None:
        return file
    count = file.groups[at]["InstanceCount"]
    return _with(file, at, InstanceCount=max(0, count - life.draw.randint(1, 3)))


def _named(life: Lifetime, file: Template) -> Template:
    at = _some_group(life, file)
    if at is None:
        return file
    spec = file.groups[at]
    live = _live_ids(life, spec["InstanceGroupName"])
    chosen = life.draw.sample(live, min(len(live), life.draw.randint(1, 3)))
    lower = len(chosen) + life.draw.choice([0, 0, 0, 0, 1, -1])
    held = spec["InstanceCount"]
    if spec["InstanceGroupName"] in file.autoscaled and spec["InstanceGroupName"] in life.pod.groups:
        held = life.pod.groups[spec["InstanceGroupName"]].target
    file = replace(file, nodes_to_delete=(*file.nodes_to_delete, *chosen))
    return _with(file, at, InstanceCount=max(0, held - lower))


def _mistyped(life: Lifetime, file: Template) -> Template:
    at = _some_group(life, file)
    if at is None:
        return file
    spec = file.groups[at]
    live = _live_ids(life, spec["InstanceGroupName"])
    chosen = [*life.draw.sample(live, min(len(live), life.draw.randint(0, 2))), life.some_id()]
    file = replace(file, nodes_to_delete=(*file.nodes_to_delete, *chosen))
    return _with(file, at, InstanceCount=max(0, spec["InstanceCount"] - life.draw.randint(0, len(chosen))))


def _more(life: Lifetime, file: Template) -> Template:
    at = _some_group(life, file)
    return (
        file
        if at is None
        else _with(file, at, InstanceCount=file.groups[at]["InstanceCount"] + life.draw.randint(1, 3))
    )


def _without_group(life: Lifetime, file: Template) -> Template:
    at = _some_group(life, file)
    if at is None or len(file.groups) < 2:
        return file
    name = file.groups[at]["InstanceGroupName"]
    named = life.draw.random() < 0.8
    return replace(
        file,
        groups=file.groups[:at] + file.groups[at + 1 :],
        groups_to_delete=(*file.groups_to_delete, name) if named else file.groups_to_delete,
        autoscaled=tuple(other for other in file.autoscaled if other != name),
    )


def _new_group(life: Lifetime, file: Template) -> Template:
    draw = life.draw
    gone = [name for name in life.names_ever if name not in file.counts]
    name = draw.choice(gone) if gone and draw.random() < 0.3 else f"new{len(life.names_ever)}"
    life.names_ever.append(name)
    spec = life.spec(name, draw.randint(1, 4), draw.choice([0, 1]), None if file.eks else "Compute")
    return replace(
        file,
        groups=(*file.groups, spec),
        groups_to_delete=tuple(other for other in file.groups_to_delete if other != name or draw.random() < 0.1),
    )


def _other_script(life: Lifetime, file: Template) -> Template:
    uri = f"s3://sagemaker-train/{life.draw.randrange(10**6)}"
    config = {"SourceS3Uri": uri, "OnCreate": "run.sh"}
    return replace(file, groups=tuple({**spec, "LifeCycleConfig": config} for spec in file.groups))


def _other_minimum(life: Lifetime, file: Template) -> Template:
    at = _some_group(life, file)
    if at is None or not file.continuous:
        return replace(file, digest=file.digest + "+")
    return _with(file, at, MinInstanceCount=life.draw.randint(0, file.groups[at]["InstanceCount"]))


def _other_type(life: Lifetime, file: Template) -> Template:
    at = _some_group(life, file)
    return file if at is None else _with(file, at, InstanceType="ml.p5e.48xlarge")


def _other_tag(life: Lifetime, file: Template) -> Template:
    return replace(file, digest=file.digest + "+")


def _other_name(life: Lifetime, file: Template) -> Template:
    return replace(file, name="another")


def _other_network(life: Lifetime, file: Template) -> Template:
    return replace(file, network="subnet-2")


def _retry(life: Lifetime, file: Template) -> Template:
    return replace(file, retry=file.retry + "again")


CHANGES: dict[str, tuple[float, Any]] = {
    "fewer nodes": (4, _fewer),
    "named nodes": (5, _named),
    "a wrong id": (1, _mistyped),
    "more nodes": (2, _more),
    "without a group": (1.5, _without_group),
    "a new group": (1, _new_group),
    "another script": (1.5, _other_script),
    "another minimum": (1, _other_minimum),
    "another type": (0.3, _other_type),
    "another tag": (1.5, _other_tag),
    "retry": (0.7, _retry),
    "another name": (0.15, _other_name),
    "another network": (0.15, _other_network),
}


# -- changes of images and of patching --


def _other_image(life: Lifetime, file: Template) -> Template:
    """Another image than the live one, or the same."""
    at = _some_group(life, file)
    if at is None:
        return file
    group = life.pod.groups.get(file.groups[at]["InstanceGroupName"])
    live = group.image if group else life.pod.software.latest
    image = life.draw.choice([live, live, life.pod.software.latest, FIRST, "1.6.0", None])
    spec = {key: value for key, value in file.groups[at].items() if key not in IMAGES}
    if image is not None and file.eks and life.draw.random() < 0.7:
        spec["ImageReleaseVersion"] = image
    elif image is not None:
        spec["ImageId"] = ami(image)
    return replace(file, groups=(*file.groups[:at], spec, *file.groups[at + 1 :]))


def _patching_in(life: Lifetime, file: Template) -> Template:
    at = _some_group(life, file)
    if at is None or not file.eks:
        return file
    name = file.groups[at]["InstanceGroupName"]
    if life.draw.random() < 0.5:
        more: Spec = {"AutoPatchConfig": {"PatchingStrategy": life.draw.choice(["WhenIdle", "WhenAllIdle"])}}
    else:
        more = {"ScheduledUpdateConfig": {"ScheduleExpression": "cron(30 12 15 * ? *)"}}
    off = tuple(each for each in file.patching_off if each not in {(setting, name) for setting in more})
    return replace(_with(file, at, **more), patching_off=off)


def _patching_out(life: Lifetime, file: Template) -> Template:
    """Out of the file, by `none` or by mistake. It may be live without the file's knowledge."""
    at = _some_group(life, file)
    if at is None:
        return file
    setting, name = life.draw.choice(PATCHING), file.groups[at]["InstanceGroupName"]
    spec = {key: value for key, value in file.groups[at].items() if key != setting}
    off = {*file.patching_off, (setting, name)} if life.draw.random() < 0.5 else {*file.patching_off}
    groups = (*file.groups[:at], spec, *file.groups[at + 1 :])
    return replace(file, groups=groups, patching_off=tuple(sorted(off)))


SOFTWARE_CHANGES: dict[str, tuple[float, Any]] = {
    "another image": (6, _other_image),
    "patching in the file": (3, _patching_in),
    "patching out of the file": (3, _patching_out),
}
