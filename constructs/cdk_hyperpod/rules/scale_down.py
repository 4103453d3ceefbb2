"""Rules of `scale_down` that need only the file: which nodes and groups a deployment may delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..config.cluster import InstanceGroup
from ..config.scale_down import ScaleDownConfig
from ..errors import Finding
from ..typed.known import is_known
from ..typed.validation import check_repeated
from ..typed.words import show


def check_scale_down(scale_down: ScaleDownConfig, groups: Sequence[InstanceGroup]) -> Iterator[Finding]:
    """Everything that is wrong with a scale-down without a look at the running cluster."""
    path = "scale_down"
    for field in ("nodes_to_delete", "instance_groups_to_delete"):
        yield from check_repeated(getattr(scale_down, field), f"{path}.{field}")
    if not isinstance(scale_down.instance_groups_to_delete, tuple) or not isinstance(groups, tuple):
        return
    kept = {group.name for group in groups if is_known(group) and is_known(group.name)}
    for name in dict.fromkeys(scale_down.instance_groups_to_delete):
        if is_known(name) and name in kept:
            yield Finding(
                code="group-kept-and-deleted",
                path=f"{path}.instance_groups_to_delete",
                problem=f"names {show(name)}, which is also in instance_groups",
                remedy="remove it from one of the two",
            )
