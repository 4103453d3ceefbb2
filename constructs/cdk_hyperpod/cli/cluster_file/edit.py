"""Edit a cluster file in place. Comments and the order of keys stay; an invalid file is never written."""

from __future__ import annotations

import io
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...config.cluster import ClusterConfig
from ...config.scale_down import ScaleDownConfig
from ...errors import HyperPodError
from ...loader import load_config
from ..live import LiveError, Node

_WIDTH = 1_000_000
_INDENTS = ((2, 4, 2), (2, 2, 0), (4, 6, 4), (4, 4, 0))
"""Common indents: of mappings, of sequences, and of the dash."""


def name_nodes(path: str, nodes: Sequence[Node]) -> str:
    """Add the nodes to `scale_down.nodes_to_delete`, and lower `instance_count` of their groups by as many. Returns what was done.

    Raises HyperPodError and leaves the file as it was for a controller, for a node without an instance, and if the file would
    be invalid afterwards.
    """
    _refuse(nodes)
    file = Path(path)
    yaml, data = _read(file.read_text("utf-8"))
    named = data.get("scale_down", {}).get("nodes_to_delete", [])
    fresh = [node for node in nodes if node.instance_id not in named]
    if not fresh:
        why = "scale_down.nodes_to_delete has these nodes already" if nodes else "No node matches"
        return f"{path}: nothing was changed. {why}"
    ids = [str(node.instance_id) for node in fresh]
    counts = Counter(node.group for node in fresh)
    _name(data, ids)
    _lower_counts(data, counts)
    _write(file, _text(yaml, data), ends=_line_end(file), fresh=ids, counts=counts)
    lower = ", ".join(f"{group} by {count}" for group, count in counts.items())
    return (
        f"{path}: added {len(fresh)} node{'' if len(fresh) == 1 else 's'} to scale_down.nodes_to_delete, and lowered "
        f"instance_count of {lower}. Next: cdk-hyperpod plan"
    )


def _line_end(file: Path) -> str:
    with file.open(encoding="utf-8", newline="") as stream:
        return "\r\n" if stream.readline().endswith("\r\n") else "\n"


def _lower_counts(data: Any, counts: Counter[str]) -> None:
    for group in data["instance_groups"]:
        deleted = counts[group["name"]]
        if deleted:
            group["instance_count"] = group.get("instance_count", 0) - deleted


def _refuse(nodes: Sequence[Node]) -> None:
    wrong = [
        f"{node.name}: is a controller, which HyperPod never deletes"
        for node in nodes
        if node.node_type == "Controller"
    ]
    wrong += [f"{node.name}: is not launched yet, so it has no instance id" for node in nodes if not node.instance_id]
    if wrong:
        raise LiveError("\n".join(["nothing was written:", *wrong]))


def _read(text: str) -> tuple[Any, Any]:
    """The writer that changes the fewest lines of the file as it is, and the file's content."""
    from ruamel.yaml import YAML

    best: tuple[int, Any, Any] | None = None
    for mapping, sequence, offset in _INDENTS:
        yaml = YAML()
        yaml.preserve_quotes = True
        yaml.width = _WIDTH
        yaml.indent(mapping=mapping, sequence=sequence, offset=offset)
        data = yaml.load(text)
        before, after = text.splitlines(), _text(yaml, data).splitlines()
        changed = abs(len(before) - len(after)) + sum(one != two for one, two in zip(before, after, strict=False))
        if best is None or changed < best[0]:
            best = (changed, yaml, yaml.load(text))
    assert best is not None
    return best[1], best[2]


def _name(data: Any, ids: Sequence[str]) -> None:
    """Add the ids to the list, or begin one. Comments that follow the list stay behind it."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    scale_down = data.setdefault("scale_down", CommentedMap())
    parent, key = (scale_down, "nodes_to_delete") if "nodes_to_delete" in scale_down else (data, "scale_down")
    following = _take_following(parent, key)
    scale_down.setdefault("nodes_to_delete", CommentedSeq()).extend(ids)
    _give_following(parent, key, following)


def _take_following(parent: Any, key: Any) -> str:
    """Remove and return the comment lines after a value, which ruamel.yaml keeps with its last item. A comment beside that item stays."""
    comments, last, place = _last_comment(parent, key)
    if last not in comments or comments[last][place] is None:
        return ""
    beside, _, following = comments[last][place].value.partition("\n")
    if beside:
        comments[last][place].value = f"{beside}\n"
    else:
        comments[last][place] = None
    return str(following)


def _give_following(parent: Any, key: Any, following: str) -> None:
    from ruamel.yaml.error import CommentMark
    from ruamel.yaml.tokens import CommentToken

    if not following:
        return
    comments, last, place = _last_comment(parent, key)
    kept = comments.setdefault(last, [None, None, None, None])
    beside = kept[place].value if kept[place] is not None else "\n"
    kept[place] = CommentToken(f"{beside}{following}", kept[place].start_mark if kept[place] else CommentMark(0), None)


def _last_comment(parent: Any, key: Any) -> tuple[dict[Any, Any], Any, int]:
    """Where ruamel.yaml keeps the comment after a value: the comments, the item, and the place."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    value = parent[key]
    if isinstance(value, CommentedMap | CommentedSeq) and value and not value.fa.flow_style():
        return _last_comment(value, [*value][-1] if isinstance(value, CommentedMap) else len(value) - 1)
    return parent.ca.items, key, 2 if isinstance(parent, CommentedMap) else 0


def _text(yaml: Any, data: Any) -> str:
    written = io.StringIO()
    yaml.dump(data, written)
    return written.getvalue()


def _write(file: Path, text: str, *, ends: str, fresh: Sequence[str], counts: Counter[str]) -> None:
    """Replace the file in one step, with its own line ends, if the new file is valid and changes nothing else."""
    handle, name = tempfile.mkstemp(dir=file.resolve().parent, prefix=f".{file.name}.", suffix=".yaml")
    new = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline=ends) as stream:
            stream.write(text)
        before = load_config(file).config
        try:
            after = load_config(new).config
        except HyperPodError as error:
            raise LiveError(
                f"nothing was written, because the file would be invalid:\n{error}".replace(str(new), str(file))
            ) from None
        if not counts.keys() <= {group.name for group in before.instance_groups} or after != _edited(
            before, fresh, counts
        ):
            groups = ", ".join(f"{group} by {count}" for group, count in counts.items())
            raise LiveError(
                f"nothing was written: {file} shares text between settings (an anchor or a merge), or lacks the nodes' group. "
                f"Edit it by hand: lower instance_count of {groups}, and add the nodes to scale_down.nodes_to_delete"
            )
        new.chmod(file.stat().st_mode & 0o777)
        new.replace(file.resolve())
    finally:
        new.unlink(missing_ok=True)


def _edited(before: ClusterConfig, fresh: Sequence[str], counts: Counter[str]) -> ClusterConfig:
    """The settings that the new file must have: these nodes named, their groups' counts lower, and nothing else changed."""
    scale_down = before.scale_down or ScaleDownConfig()
    return replace(
        before,
        instance_groups=tuple(
            replace(group, instance_count=group.instance_count - counts[group.name]) for group in before.instance_groups
        ),
        scale_down=replace(scale_down, nodes_to_delete=(*scale_down.nodes_to_delete, *fresh)),
    )
