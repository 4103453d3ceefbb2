"""What a change of a setting does to an existing cluster: the words that stand beside each setting in `config/`.

A setting has a `Change` in its annotation. Without one it has that of its class (`_change`), and otherwise it is only the
place of other settings. tests/unit/config/test_changes.py changes each setting, and compares with what a deployment does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..typed.annotations import field_types

Effect = Literal["in place", "new nodes only", "replaces", "deletes nodes", "refused"]
EFFECTS: Mapping[Effect, str] = {
    "in place": "running nodes stay, except those that a line below names",
    "new nodes only": "running nodes do not change; new and replaced ones get it",
    "replaces": "something is created again, and the old one is deleted or stays",
    "deletes nodes": "running ones lose jobs and local data, unless they are drained",
    "refused": "while the cluster exists; nothing is changed",
}
"""Each effect, and its meaning, the most disruptive last."""

GROUPS_TO_DELETE = "scale_down.instance_groups_to_delete"
"""The path of the setting that decides what the removal of a group does. A record keeps it whole."""

Record = Mapping[str, Any]
"""A file's settings by path, without those that have their defaults. A stack's metadata keeps it for the deployed file."""

Kind = Literal["changed", "added", "removed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting in the deployed file and in this one."""

    path: str
    kind: Kind
    before: Any
    after: Any
    file: Record
    """All settings of this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The changes of a setting that delete running nodes."""

    when: Callable[[Difference], bool]
    condition: str
    """The same in words."""
    says: str
    """Which nodes are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a change of one setting does. If the setting has settings of its own: what adding or removing all of them does."""

    effect: Effect
    says: str = ""
    """What else to know, in a few words. Empty: nothing."""
    unless: Callable[[Any, Any], bool] | None = None
    """A function of the old and the new value: whether this change happens in place. None: no change does."""
    removed: Change | None = None
    """What happens if the setting, or an item of a list, is removed. None: the same."""
    deletion: Deletion | None = None
    """When it deletes running nodes instead. None: never."""


IN_PLACE = Change(effect="in place")
NEW_NODES = Change(effect="new nodes only")
NEW_CLUSTER = "create a new cluster under another name, and move your work there"


def in_place(says: str) -> Change:
    """Running nodes stay."""
    return Change(effect="in place", says=says)


def new_nodes(says: str) -> Change:
    """Only new and replaced nodes get it."""
    return Change(effect="new nodes only", says=says)


def replaces(says: str) -> Change:
    """Something is created again."""
    return Change(effect="replaces", says=says)


def refused(says: str, unless: Callable[[Any, Any], bool] | None = None) -> Change:
    """It is refused while the cluster exists."""
    return Change(effect="refused", says=says, unless=unless)


def same_first(old: Sequence[object] | None, new: Sequence[object] | None) -> bool:
    """Whether the first items of both lists are the same."""
    return bool(old) and bool(new) and old[:1] == new[:1]  # type: ignore[index]


def does_not_shrink(old: int | None, new: int | None) -> bool:
    """Whether a number stays or rises. If one side has none, it is another file system, which other settings describe."""
    return old is None or new is None or new > old


def names_the_group(difference: Difference) -> bool:
    """Whether the file names a removed group as one to delete."""
    groups: Sequence[str] = difference.file.get(GROUPS_TO_DELETE, ())
    return difference.kind == "removed" and difference.path in [f"instance_groups[{name}]" for name in groups]


def is_lower(difference: Difference) -> bool:
    """Whether a number was lowered."""
    return difference.kind == "changed" and bool(difference.after < difference.before)


def has_new_names(difference: Difference) -> bool:
    """Whether a list got new items. A long list is kept as a digest, so its items are unknown and count as new."""
    before, after = difference.before or [], difference.after or []
    is_known = isinstance(before, list) and isinstance(after, list)
    return bool(set(after) - set(before)) if is_known else bool(after)


def change_of(kind: type, name: str) -> Change | None:
    """What a change of a setting does. None: the setting applies its defaults if it is absent, and each setting in it has
    its own change."""
    beside = getattr(field_types(kind)[name], "__metadata__", ())
    return next((each for each in beside if isinstance(each, Change)), getattr(kind, "_change", None))
