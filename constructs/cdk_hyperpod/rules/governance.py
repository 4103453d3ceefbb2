"""Rules of the cluster's task governance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..config.governance import TaskGovernance
from ..errors import Finding
from ..typed.known import is_known
from ..typed.validation import check_kinds, field_findings
from ..typed.words import item_paths, show


def check_task_governance(policy: TaskGovernance, path: str = "task_governance") -> Iterator[Finding]:
    """Everything that is wrong with the cluster's policy of task governance."""
    kinds = [*check_kinds(policy, TaskGovernance, path)]
    yield from kinds
    if kinds:
        return
    path = f"{path}.priority_classes"
    known = [item for item in policy.priority_classes if is_known(item)]
    for item_path, item in zip(item_paths(path, policy.priority_classes), policy.priority_classes, strict=True):
        if is_known(item):
            yield from field_findings(item, item_path)
    if len(policy.priority_classes) > 10:
        yield Finding(
            code="priority-classes-too-many",
            path=path,
            problem=f"there are {len(policy.priority_classes)} priority classes",
            remedy="use at most 10",
        )
    for name, count in Counter(item.name for item in known).items():
        if count > 1:
            yield Finding(
                code="priority-class-duplicated",
                path=path,
                problem=f"{count} priority classes have the name {show(name)}",
                remedy="keep one of them",
            )
