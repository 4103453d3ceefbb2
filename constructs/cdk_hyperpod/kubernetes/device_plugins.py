"""The lists of instance types in HyperPod's chart, one for each device plug-in, and what adds a type to a list.

The lists of the NVIDIA and the EFA plug-in are values of the chart. That of the Neuron plug-in is in its template, so a
type is added to the template before the chart is installed. Nothing else of a chart is changed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..facts.device_plugins import EFA, NEURON, NVIDIA
from ..facts.instance_types import InstanceType
from ..typed.yaml_text import YamlProblem, read_yaml
from .allocatable import plugins_of
from .helm_chart import MAX_YAML_BYTES

NODE_LABEL = "node.kubernetes.io/instance-type"
"""The label of a node with its type, by which the plug-ins choose nodes."""
_TERMS = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_EFA_TYPES = ("supportedInstanceLabels", "values")
_NEURON_TEMPLATE = re.compile(rf"charts/{NEURON}/templates/[^/]+\.ya?ml")
# A list of types: its key, and lines with one type each.
_LIST = re.compile(r"(?<=values:\n)(?P<items>(?:[ ]+- +(?:ml\.)?[a-z0-9-]+\.[a-z0-9-]+\n)+)")
_ITEM = re.compile(r"([ ]+- +)([a-z0-9.-]+)\n")


def plugin_lists(files: Mapping[str, bytes]) -> dict[str, tuple[str, ...] | None]:
    """The types in each plug-in's list, of the files of a chart. None: it has no such list, and runs where its chart says."""
    affinity = _nvidia_expression(_value(files, NVIDIA, _TERMS))
    return {
        NVIDIA: None if affinity is None else _names(affinity.get("values")),
        EFA: _names(_value(files, EFA, _EFA_TYPES)),
        NEURON: _neuron_types(files),
    }


def list_values(files: Mapping[str, bytes], kinds: Collection[InstanceType]) -> dict[str, dict[str, object]]:
    """The chart's values that add these types to the lists. Empty if none is missing. Helm replaces lists as a whole."""
    missing = _missing_in(plugin_lists(files), kinds)
    values: dict[str, dict[str, object]] = {}
    if NVIDIA in missing:
        terms = copy.deepcopy(_value(files, NVIDIA, _TERMS))
        expression = _nvidia_expression(terms)
        assert expression is not None
        expression["values"] += missing[NVIDIA]
        values[NVIDIA] = _nested(_TERMS, terms)
    if EFA in missing:
        values[EFA] = _nested(_EFA_TYPES, [*_value(files, EFA, _EFA_TYPES), *missing[EFA]])
    return values


def with_neuron_types(files: Mapping[str, bytes], kinds: Collection[InstanceType]) -> dict[str, bytes]:
    """The files of the chart, with these types in the list of the Neuron plug-in's template. The same files if none is missing."""
    missing = _missing_in(plugin_lists(files), kinds).get(NEURON, ())
    return {name: _with_types(content, missing) if _is_neuron(name) else content for name, content in files.items()}


def _missing_in(
    lists: Mapping[str, Sequence[str] | None], kinds: Collection[InstanceType]
) -> dict[str, tuple[str, ...]]:
    """The types that each list lacks, in the order of their names. A plug-in without a list lacks none."""
    needed: dict[str, set[str]] = {}
    for kind in kinds:
        for plugin in plugins_of(kind):
            names = lists[plugin]
            if names is not None and kind.name not in names:
                needed.setdefault(plugin, set()).add(kind.name)
    return {plugin: tuple(sorted(names)) for plugin, names in needed.items()}


def _value(files: Mapping[str, bytes], chart: str, keys: Sequence[str]) -> Any:
    """A value of a chart in the chart: HyperPod's own, or that chart's default. None: neither has it."""
    for found in (_read(files, "values.yaml").get(chart), _read(files, f"charts/{chart}/values.yaml")):
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None


def _read(files: Mapping[str, bytes], name: str) -> Mapping[Any, Any]:
    """The values of a file. Empty if they cannot be read, which Helm itself refuses."""
    return _parsed(files.get(name, b""))


@lru_cache(maxsize=8)
def _parsed(content: bytes) -> Mapping[Any, Any]:
    if len(content) > MAX_YAML_BYTES:
        return {}
    try:
        values = read_yaml(content)
    except YamlProblem:
        return {}
    return values if isinstance(values, dict) else {}


def _nvidia_expression(terms: object) -> dict[str, Any] | None:
    """The expression of the node affinity that names the types. None: there is not exactly one."""
    expressions = [
        expression
        for term in (terms if isinstance(terms, list) else ())
        if isinstance(term, dict) and isinstance(term.get("matchExpressions"), list)
        for expression in term["matchExpressions"]
        if isinstance(expression, dict) and _names_types(expression)
    ]
    return expressions[0] if len(expressions) == 1 else None


def _names_types(expression: Mapping[Any, Any]) -> bool:
    is_of_types = (expression.get("key"), expression.get("operator")) == (NODE_LABEL, "In")
    return is_of_types and _names(expression.get("values")) is not None


def _names(value: object) -> tuple[str, ...] | None:
    """The value as a list of names. None: it is not one."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return None
    return tuple(value)


def _neuron_types(files: Mapping[str, bytes]) -> tuple[str, ...] | None:
    lists = [found["items"] for name in files if _is_neuron(name) for found in _LIST.finditer(_text(files[name]))]
    return tuple(name for _, name in _ITEM.findall(lists[0])) if len(lists) == 1 else None


def _is_neuron(name: str) -> bool:
    return _NEURON_TEMPLATE.fullmatch(name) is not None


def _with_types(content: bytes, types: Sequence[str]) -> bytes:
    found = _LIST.search(_text(content)) if types else None
    if found is None:
        return content
    indent = _ITEM.findall(found["items"])[-1][0]
    added = "".join(f"{indent}{name}\n" for name in types)
    text = found.string
    return (text[: found.end()] + added + text[found.end() :]).encode("utf-8", "surrogateescape")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _nested(keys: Sequence[str], value: object) -> dict[str, object]:
    first, *others = keys
    for key in reversed(others):
        value = {key: value}
    return {first: value}
