"""YAML text as plain data, with the line of each setting."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import yaml

from ..errors import Finding
from .words import item_paths, join, show
from .yaml_text import Loader

# The marks of CDK's tokens (core/lib/private/encoding.ts), and CloudFormation's dynamic references.
_REPLACED = re.compile(r"[$#]\{Token\[|\{\{\s*resolve\s*:", re.IGNORECASE)


class Document:
    """The data of a file, with the line of each setting."""

    def __init__(self, text: str) -> None:
        self.findings: list[Finding] = []
        self.data: object = None
        self._replaced: dict[str, Finding] = {}
        self._places: dict[str, tuple[int, int | None]] = {"": (0, None)}
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                # A setting that is missing at the top is reported where the settings begin.
                self._places[""] = (0, node.start_mark.line + 1)
                self._note(node, "", node)
                self.data = loader.construct_document(node)
        finally:
            loader.dispose()

    def _note(self, node: yaml.Node, path: str, begins: yaml.Node) -> None:
        """Note the line of a value's key, of all values in it, and duplicated keys, of which YAML would keep the last."""
        self._places.setdefault(path, (len(self._places), begins.start_mark.line + 1))
        if isinstance(node, yaml.ScalarNode):
            self._refuse_replaced(node, path)
        elif isinstance(node, yaml.SequenceNode):
            names = [_name_of(item) for item in node.value]
            for item, item_path in zip(node.value, item_paths(path, names), strict=True):
                self._note(item, item_path, item)
        elif isinstance(node, yaml.MappingNode):
            seen: set[tuple[str, str]] = set()
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                if key.tag == "tag:yaml.org,2002:merge":
                    self._note_merged(value, path)
                    continue
                key_path = join(path, key.value)
                self._refuse_replaced(key, key_path)
                if (key.tag, key.value) in seen:
                    line = key.start_mark.line + 1
                    self.findings.append(
                        Finding(
                            code="setting-duplicated",
                            path=key_path,
                            problem=f"is duplicated in line {line}",
                            remedy="keep one of them",
                        )
                    )
                seen.add((key.tag, key.value))
                self._note(value, key_path, key)

    def _refuse_replaced(self, node: yaml.ScalarNode, path: str) -> None:
        """Note text that CDK or CloudFormation replaces: the value that is deployed could not be validated."""
        if path not in self._replaced and (found := _REPLACED.search(node.value)):
            who = "CDK" if found[0][0] in "$#" else "CloudFormation"
            mark = " ".join(found[0].split())  # on one line
            text = show(node.value)
            self._replaced[path] = Finding(
                code="value-replaced-at-deployment",
                path=path,
                problem=f"{who} replaces {mark}… by another value, got {text}",
                remedy="write the value itself",
            )

    def _note_merged(self, node: yaml.Node, path: str) -> None:
        for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            self._note(item, path, item)

    def in_order(self, findings: Iterable[Finding]) -> list[Finding]:
        """Each finding once, with its line, in the order of the file. A missing setting has the line of the settings around it."""

        def place(finding: Finding) -> tuple[int, int | None]:
            path = finding.path
            while path not in self._places:
                path = path[: max(path.rfind("."), path.rfind("["), 0)]
            return self._places[path]

        # Of text that is replaced, no other finding is reported. The types do not accept a list with CDK's mark in it.
        lists = {path.rpartition("[")[0] for path, finding in self._replaced.items() if "#{Token[" in finding.problem}
        others = [finding for finding in findings if finding.path not in {*self._replaced, *lists - {""}}]
        places = {finding: place(finding) for finding in [*self._replaced.values(), *others]}
        return [
            replace(finding, line=places[finding][1]) for finding in sorted(places, key=lambda each: places[each][0])
        ]


def _name_of(node: yaml.Node) -> dict[str, object]:
    """The name of an item, for its path."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        if key.value == "name" and isinstance(value, yaml.ScalarNode):
            return {"name": value.value}
    return {}
