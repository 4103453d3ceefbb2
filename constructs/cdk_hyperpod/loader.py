"""Reads a cluster file: YAML in, a ClusterConfig out, or every finding at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from .config.cluster import EKS_ENTRY_SCRIPT, ENTRY_SCRIPTS, ClusterConfig
from .config.eks import INSTALLED, EksConfig
from .config.lifecycle import LifecycleConfig
from .errors import ConfigError, Finding, raise_errors
from .rules import check_cluster, check_installed_chart, has_neuron
from .typed.build import structure
from .typed.judge import check_arguments
from .typed.words import item_paths, join, show, shown_name
from .typed.yaml_text import Loader, YamlProblem, decoded, in_words

MAX_FILE_BYTES = 1_048_576
"""A cluster of 100 groups is a tenth of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A cluster file that has no error."""

    config: ClusterConfig
    warnings: tuple[Finding, ...]
    folder: Path
    """The file's own folder: relative paths in the file begin there."""

    @property
    def lifecycle_scripts(self) -> Path | None:
        """The user's own folder of lifecycle scripts; None for the library's."""
        name = self.config.scripts_folder
        return None if name is None else self.folder / name


def load_config(path: str | Path) -> LoadedConfig:
    """The cluster that a file describes.

    Raises ConfigError, with every finding in the order of the file, for a file that is missing, unreadable, not YAML,
    or describes a cluster that HyperPod would refuse. Reads nothing but the file and the names in the folder that it
    may point to.
    """
    raise_errors(check_arguments(load_config, path=path))
    path = Path(path)
    source = shown_name(str(path), length=4096)
    document = _parse(_read(path, source), source)
    findings = document.findings
    config = structure(ClusterConfig, document.data, findings)
    if isinstance(config, ClusterConfig):
        findings += check_cluster(config)
        findings += _check_scripts(config, path.parent)
        findings += _check_dependencies_chart(config, path.parent)
    findings = document.in_order(findings)
    raise_errors(findings, source)
    return LoadedConfig(config=config, warnings=tuple(findings), folder=path.parent)


def _refusal(source: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError([Finding(path="", problem=problem, remedy=remedy)], source)


def _read(path: Path, source: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise _refusal(
                source, f"the file has more than {MAX_FILE_BYTES:,} bytes", "name a cluster file, which is smaller"
            )
        return decoded(content)
    except FileNotFoundError:
        remedy = (
            "name one with -c config=PATH or make's CONFIG=PATH, from the folder of cdk.json, "
            "or --config PATH, from the current one"
        )
        raise _refusal(source, f"there is no file {shown_name(str(path.absolute()), length=4096)}", remedy) from None
    except YamlProblem as problem:
        raise _refusal(source, str(problem), "save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _refusal(source, f"the file cannot be read ({reason})", "name a readable file") from None


# The marks of CDK's tokens (core/lib/private/encoding.ts), and CloudFormation's dynamic references.
_REPLACED = re.compile(r"[$#]\{Token\[|\{\{\s*resolve\s*:", re.IGNORECASE)


class _Document:
    """What a file says, and where in it each setting stands."""

    def __init__(self, text: str) -> None:
        self.findings: list[Finding] = []
        self.data: object = None
        self._replaced: dict[str, Finding] = {}
        self._places: dict[str, tuple[int, int | None]] = {"": (0, None)}
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                self._note(node, "", node)
                self.data = loader.construct_document(node)
        finally:
            loader.dispose()

    def _note(self, node: yaml.Node, path: str, begins: yaml.Node) -> None:
        """Note the place of a value, which begins at its key, and of all in it; and keys that stand twice, of which YAML
        would keep the last."""
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
                        Finding(path=key_path, problem=f"stands twice, again in line {line}", remedy="keep one of them")
                    )
                seen.add((key.tag, key.value))
                self._note(value, key_path, key)

    def _refuse_replaced(self, node: yaml.ScalarNode, path: str) -> None:
        """Note text that would be another one in the template: nothing here could judge what is deployed."""
        if path not in self._replaced and (found := _REPLACED.search(node.value)):
            who = "CDK" if found[0][0] in "$#" else "CloudFormation"
            mark = " ".join(found[0].split())  # on one line
            problem = f"{who} would put another value in the place of {mark}…, got {show(node.value)}"
            self._replaced[path] = Finding(path=path, problem=problem, remedy="write the value itself")

    def _note_merged(self, node: yaml.Node, path: str) -> None:
        for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            self._note(item, path, item)

    def in_order(self, findings: Iterable[Finding]) -> list[Finding]:
        """Each finding once, with its line, in the order of the file; one about something that is missing stands with
        what lacks it."""

        def place(finding: Finding) -> tuple[int, int | None]:
            path = finding.path
            while path not in self._places:
                path = path[: max(path.rfind("."), path.rfind("["), 0)]
            return self._places[path]

        # Text that is replaced is wrong whatever else is wrong with it.
        # A list that has CDK's mark of a list in it is none to the types.
        lists = {path.rpartition("[")[0] for path, finding in self._replaced.items() if "#{Token[" in finding.problem}
        others = [finding for finding in findings if finding.path not in {*self._replaced, *lists - {""}}]
        places = {finding: place(finding) for finding in [*self._replaced.values(), *others]}
        return [
            replace(finding, line=places[finding][1]) for finding in sorted(places, key=lambda each: places[each][0])
        ]


def _name_of(node: yaml.Node) -> dict[str, object]:
    """An item as far as its path needs it."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        if key.value == "name" and isinstance(value, yaml.ScalarNode):
            return {"name": value.value}
    return {}


def _parse(text: str, source: str) -> _Document:
    try:
        document = _Document(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise _refusal(source, f"cannot be read as YAML: {in_words(error, text)}", "mend the file") from None
    if document.data is None:
        raise _refusal(source, "the file is empty", "begin with name, region and instance_groups, as cluster.yaml does")
    return document


def _check_dependencies_chart(config: ClusterConfig, folder: Path) -> Iterable[Finding]:
    eks = config.eks
    if config.orchestrator != "eks" or not isinstance(eks, EksConfig) or not isinstance(eks.dependencies_chart, str):
        return []
    if eks.dependencies_chart == INSTALLED:
        return check_installed_chart(config)
    # Only here, where there is a chart to read.
    from .rules.charts import check_chart

    return check_chart(
        folder / eks.dependencies_chart,
        eks.dependencies_chart,
        digest=eks.dependencies_chart_digest,
        image_registry=eks.image_registry,
        neuron=has_neuron(config.instance_groups),
    )


def _check_scripts(config: ClusterConfig, folder: Path) -> Sequence[Finding]:
    path = "lifecycle_scripts" if config.lifecycle_scripts is not None else "lifecycle.scripts"
    name = config.scripts_folder if isinstance(config.lifecycle, LifecycleConfig | None) else config.lifecycle_scripts
    if not isinstance(name, str):
        return []
    wanted = [EKS_ENTRY_SCRIPT] if config.orchestrator == "eks" else [*ENTRY_SCRIPTS.values()]
    try:
        scripts = folder / name
        if not scripts.is_dir():
            return [
                Finding(
                    path=path,
                    problem=f"there is no folder {show(name)}",
                    remedy="name one, relative to the file, or remove the line to use the library's scripts",
                )
            ]
        missing = [script for script in wanted if not (scripts / script).is_file()]
    except OSError as error:
        return [Finding(path=path, problem=f"{show(name)} cannot be read ({error.strerror})", remedy="name a folder")]
    if not missing:
        return []
    return [
        Finding(
            path=path,
            problem=f"{show(name)} has no {', '.join(missing)}",
            remedy="add it: HyperPod runs the script of the node's type",
        )
    ]
