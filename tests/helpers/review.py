"""Templates and manifests as YAML that is short enough to review: a list or mapping that fits on a line takes one.

A reference is `!Ref`, `!GetAtt` or `!GetStackOutput`, and a text with references is `!Sub`, where CDK writes longer forms.
Nothing is left out: `read` returns the same data.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from cdk_hyperpod.kubernetes.manifests import _Dumper

WIDTH = 120
_OUTPUT = ("StackName", "Region", "OutputName")


def written(data: object) -> str:
    """One YAML document. Different data has a different text."""
    return yaml.dump(data, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=WIDTH)


def read(text: str) -> Any:
    """What `written` got."""
    return yaml.load(text, _Reader)


class _Writer(_Dumper):
    def serialize(self, node: yaml.Node) -> None:
        _fit(node, 0, WIDTH)
        super().serialize(node)


class _Reader(yaml.CSafeLoader):
    pass


def _fit(node: yaml.Node, indent: int, column: int) -> int:
    """Put each list and mapping on one line if it fits there, and return the length of the node on one line."""
    if isinstance(node, yaml.ScalarNode):
        quotes_or_tag = len(node.tag) + 3 if node.tag.startswith("!") else 2
        return WIDTH if "\n" in node.value else len(node.value) + quotes_or_tag
    if isinstance(node, yaml.SequenceNode):
        length = sum(2 + _fit(item, indent + 2, indent + 2) for item in node.value)
    else:
        assert isinstance(node, yaml.MappingNode)
        keys = [(len(key.value) + 2, value) for key, value in node.value]
        length = sum(key + 2 + _fit(value, indent + 2, indent + key) for key, value in keys)
    node.flow_style = column + length <= WIDTH
    return length


def _short(value: object) -> tuple[str, str] | None:
    """Tag and text of a reference, or of a text with references."""
    match value:
        case {"Ref": str(name)}:
            return "!Ref", name
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return "!GetAtt", f"{name}.{attribute}"
        case {"Fn::GetStackOutput": {"StackName": str(), "Region": str(), "OutputName": str()} as output}:
            return "!GetStackOutput", "/".join(output[key] for key in _OUTPUT)
        case {"Fn::Join": ["", [*parts]]}:
            return "!Sub", "".join(part if isinstance(part, str) else _placeholder(part) for part in parts)
    return None


def _placeholder(part: object) -> str:
    short = _short(part)
    return f"${{{short[1]}}}" if short else ""


def _reference(text: str) -> Any:
    if text.count("/") == 2:
        return {"Fn::GetStackOutput": dict(zip(_OUTPUT, text.split("/"), strict=True))}
    return {"Fn::GetAtt": text.split(".", 1)} if "." in text else {"Ref": text}


def _join(text: str) -> Any:
    parts = [_reference(part) if number % 2 else part for number, part in enumerate(re.split(r"\$\{([^}]+)\}", text))]
    return {"Fn::Join": ["", [part for part in parts if part != ""]]}


_LONG = {"!Ref": _reference, "!GetAtt": _reference, "!GetStackOutput": _reference, "!Sub": _join}


def _mapping(dumper: yaml.SafeDumper, data: dict[str, Any]) -> yaml.Node:
    short = _short(data)
    if short and _LONG[short[0]](short[1]) == data:  # otherwise it is special, such as a text with ${
        return dumper.represent_scalar(*short)
    return dumper.represent_dict(data)


def _value(_: yaml.CSafeLoader, node: yaml.ScalarNode) -> Any:
    return _LONG[node.tag](node.value)


_Writer.add_representer(dict, _mapping)
for _tag in _LONG:
    _Reader.add_constructor(_tag, _value)
