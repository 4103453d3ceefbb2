"""The settings in which a file differs from the deployed one, each with its effect on the cluster: for `plan` and for
synthesis. The effects stand beside the settings (effects.py)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..typed.annotations import Either, Fields, Items, JsonObject, Names, arguments_of, field_types, shape
from ..typed.words import shown_name
from .cluster import ClusterConfig
from .effects import GROUPS_TO_DELETE, IN_PLACE, Change, Difference, Effect, Kind, Record, change_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One setting of a file that differs from the deployed one."""

    path: str
    """Its path, as in findings: instance_groups[p5].instance_count."""
    effect: Effect
    says: str
    kind: Kind
    """changed: both files have a value, which may be a default. Otherwise only one of them has."""
    old: str
    """The value before, in a few characters. Empty: there was none, or it is too long to keep."""
    new: str
    """The value now. Empty: there is none, or it is too long to keep."""

    def __str__(self) -> str:
        match self.kind:
            case "changed" if self.old or self.new:
                words = f" {_shown(self.old)} → {_shown(self.new)}"
            case "added" if self.new not in ("", "true"):
                words = f" {_shown(self.new)}"
            case kind:
                words = f" {kind}"
        return f"{self.path}:{words}" + (f"; {self.says}" if self.says else "")


METADATA = "cdk-hyperpod:settings"
"""The key of the file's record in the metadata of a resource of the cluster's stack."""

_SHOWN = 64
"""Characters of a value that a record keeps. A longer one, such as a key, is kept as a digest."""
_EMPTY = "nothing"
_THERE = True
"""The record's value for settings with settings in them, if their presence has an effect."""
_KEYS = ("name", "subnet_id", "file_system_path", "key", "root_volume")
"""What identifies an item of a list: the first of these that it has."""


def record(config: ClusterConfig) -> dict[str, Any]:
    """The settings of a file, for the next deployment to compare with. The same for the same settings, however they are
    written."""
    return dict(_flat(config, ""))


def changed(old: Record, new: Record) -> tuple[Changed, ...]:
    """Every setting that differs, in the order of the typed model. Settings in something that was added or removed have
    no entry of their own.

    `old` may come from another release. Paths that this release does not know are ignored.
    """
    found = []
    reported: list[str] = []
    for path in sorted(old.keys() | new.keys(), key=_order):
        place = _place(path)
        if (
            old.get(path) == new.get(path)
            or place is None
            or any(path.startswith((f"{each}.", f"{each}[")) for each in reported)
        ):
            continue
        entry, default = place
        before, after = old.get(path, default), new.get(path, default)
        kind: Kind = "changed" if None not in (before, after) else "added" if before is None else "removed"
        if kind != "changed" or entry.unless is not None:
            reported.append(path)
        change = _change_of(entry, Difference(path=path, kind=kind, before=before, after=after, file=new))
        found.append(
            Changed(path=path, effect=change.effect, says=change.says, kind=kind, old=_words(before), new=_words(after))
        )
    return tuple(found)


def _change_of(entry: Change, difference: Difference) -> Change:
    """What the table says of this difference."""
    if entry.deletion is not None and entry.deletion.when(difference):
        return Change(effect="deletes nodes", says=entry.deletion.says)
    change = (entry.removed if difference.kind == "removed" else None) or entry
    if change.unless is not None and change.unless(difference.before, difference.after):
        return IN_PLACE
    return change


def _flat(value: Any, path: str, *, without: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(value):
        if field.name == without:
            continue
        here = f"{path}.{field.name}" if path else field.name
        yield from _field(value, field, here)


def _field(value: Any, field: dataclasses.Field[Any], here: str) -> Iterator[tuple[str, Any]]:
    held, form = getattr(value, field.name), shape(field_types(type(value))[field.name]).form
    match form:
        case Either() if isinstance(held, str):
            yield here, held
        case Fields() | Either():
            if held is not None:
                if change_of(type(value), field.name) and field.default is None:
                    yield here, _THERE
                yield from _flat(held, here)
        case Items(item) if isinstance(inner := shape(item).form, Fields):
            yield from _items(held, inner.kind, here, change_of(type(value), field.name))
        case JsonObject() if held:
            yield here, _digest(held)
        case Names(_, item) if isinstance(shape(item).form, Fields):
            yield from ((f"{here}[{name}]", _digest(dataclasses.asdict(each))) for name, each in held.items())
        case _ if not _is_default(field, held):
            yield here, _plain(held) if here == GROUPS_TO_DELETE and held else _kept(held, form)


def _items(items: Sequence[Any], kind: type, path: str, entry: Change | None) -> Iterator[tuple[str, Any]]:
    """Item by item, by its identifying setting. Their order is kept only if it has a meaning. An item whose settings
    all have one effect is one value, to keep the record small."""
    key = next(each for each in _KEYS if each in field_types(kind))
    ordered = entry is not None and entry.unless is not None
    if ordered and items:
        yield path, [str(getattr(item, key)) for item in items]
    uniform = len({change_of(kind, name) for name in field_types(kind)}) == 1
    seen: set[str] = set()
    for number, item in enumerate(items):
        name = getattr(item, key)
        name = str(name) if not isinstance(name, bool) else "root" if name else "second"
        here = f"{path}[{name if name not in seen else number}]"
        seen.add(name)
        if uniform:
            yield here, _digest(dataclasses.asdict(item))
        else:
            if not ordered:
                yield here, _THERE
            yield from _flat(item, here, without=key)


def _is_default(field: dataclasses.Field[Any], held: Any) -> bool:
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    return bool(held == default)


def _kept(value: Any, form: object) -> Any:
    plain = {key: _plain(held) for key, held in value.items()} if isinstance(form, Names) else _plain(value)
    # CDK leaves empty values out of a template.
    return (plain if plain not in ([], {}) else _EMPTY) if len(_json(plain)) <= _SHOWN else _digest(plain)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(held) for name, held in arguments_of(value).items() if held is not None}
    return list(value) if isinstance(value, tuple) else value


def _digest(value: Any) -> str:
    return f"sha256:{hashlib.sha256(_json(value).encode()).hexdigest()[:12]}"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=dict)


def _shown(value: str) -> str:
    return shown_name(value, 200) if value else "…"


def _words(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return "" if value.startswith("sha256:") else value
        case list() | tuple():
            return f"[{', '.join(map(str, value))}]"
        case _:
            return _json(value)


def _names(path: str) -> list[str]:
    """The settings on a path, without the identifiers of items."""
    return re.sub(r"\[[^]]*\]", "", path).split(".")


def _place(path: str) -> tuple[Change, Any] | None:
    """The table's entry for a path, and the setting's default. None: this release has no such setting, or none with an
    effect."""
    *above, name = _names(path)
    kind: type = ClusterConfig
    for each in above:
        inner = _kind_at(kind, each)
        if inner is None:
            return None
        kind = inner
    entry = change_of(kind, name) if name in field_types(kind) else None
    if entry is None:
        return None
    (field,) = [field for field in dataclasses.fields(kind) if field.name == name]
    leaf = not path.endswith("]") and field.default not in (dataclasses.MISSING, None, ())
    return entry, _plain(field.default) if leaf else None


def _order(path: str) -> tuple[object, ...]:
    """The order of the typed model. Items of one list are sorted by their names."""
    kind: type | None = ClusterConfig
    places = []
    for name in _names(path):
        fields = [field.name for field in dataclasses.fields(kind)] if kind else []
        places.append(fields.index(name) if name in fields else len(fields))
        kind = _kind_at(kind, name) if kind else None
    return places, path


def _kind_at(kind: type, name: str) -> type | None:
    """The class of a setting's value. None: it has no settings in it, or there is no such setting."""
    if name not in field_types(kind):
        return None
    match shape(field_types(kind)[name]).form:
        case Fields(inner) | Either(_, inner):
            return inner
        case Items(item) | Names(_, item) if isinstance(form := shape(item).form, Fields):
            return form.kind
        case _:
            return None
