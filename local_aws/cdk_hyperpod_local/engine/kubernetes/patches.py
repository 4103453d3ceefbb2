"""Patches of objects. No function here changes its arguments."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.engine.kubernetes.kinds import Kinds

Json = Any
_DIRECTIVES = ("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch")


def merged(value: Json, patch: Json) -> Json:
    """A merge patch (RFC 7386): null removes a field, a list replaces a list."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), item)
    return result


def strategically_merged(value: Json, patch: Json, schema: Json, kinds: Kinds) -> Json:
    """A strategic merge patch, as kubectl sends it: a list whose items have a merge key is merged item by item."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: item for key, item in patch.items() if not key.startswith("$")}
    fields = kinds.fields(schema)
    result = dict(value) if isinstance(value, dict) else {}
    if "$retainKeys" in patch:
        result = {key: item for key, item in result.items() if key in patch["$retainKeys"]}
    for key, item in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [one for one in result.get(name, []) if one not in item]
    for key, item in patch.items():
        if key.startswith(_DIRECTIVES):
            continue
        field = fields.get(key, {})
        if item is None:
            result.pop(key, None)
        elif isinstance(item, list) and field.get("x-kubernetes-patch-strategy", "").startswith("merge"):
            result[key] = _merged_list(result.get(key) or [], item, field, kinds)
        else:
            result[key] = strategically_merged(result.get(key), item, field, kinds)
    return result


def _merged_list(value: list[Json], patch: list[Json], field: Json, kinds: Kinds) -> list[Json]:
    name = field.get("x-kubernetes-patch-merge-key")
    if name is None:  # a list of plain values
        return [*value, *(item for item in patch if item not in value)]
    result = {item.get(name): item for item in value}
    for item in patch:
        if item.get("$patch") == "delete":
            result.pop(item.get(name), None)
        elif "$patch" not in item:
            result[item.get(name)] = strategically_merged(
                result.get(item.get(name)), item, field.get("items", {}), kinds
            )
    return list(result.values())


def applied(value: Json, before: Json, after: Json) -> Json:
    """Server-side apply by a single manager: fields that it no longer sends are removed, fields of others stay; lists
    are replaced."""
    if not isinstance(after, dict) or not isinstance(value, dict):
        return after
    before = before if isinstance(before, dict) else {}
    result = {key: item for key, item in value.items() if key in after or key not in before}
    for key, item in after.items():
        result[key] = applied(result.get(key), before.get(key), item)
    return result
