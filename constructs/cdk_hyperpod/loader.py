"""Reads a cluster file: YAML in, a ClusterConfig out, or every finding at once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ._structure import show, structure
from .config import ClusterConfig
from .errors import ConfigError, Finding, raise_errors
from .rules import check_cluster

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
        name = self.config.lifecycle_scripts
        return None if name is None else self.folder / name


class _Loader(yaml.SafeLoader):
    """SafeLoader that notices keys that stand twice, of which YAML would silently keep the last."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.findings: list[Finding] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge" or not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                self.findings.append(
                    Finding(
                        path=key.value[:80],
                        problem=f"stands twice, again in line {key.start_mark.line + 1}",
                        remedy="keep one of them",
                    )
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_config(path: str | Path) -> LoadedConfig:
    """The cluster that a file describes.

    Raises ConfigError, with every finding, for a file that is missing, unreadable, not YAML, or describes a cluster
    that HyperPod would refuse. Reads nothing but the file and the names of the folder that it may point to.
    """
    path = Path(path)
    findings: list[Finding] = []
    data = _parse(_read(path), str(path), findings)
    config = structure(ClusterConfig, data, findings)
    if isinstance(config, ClusterConfig):
        findings += check_cluster(config)
        findings += _check_scripts(config.lifecycle_scripts, path.parent)
    raise_errors(findings, str(path))
    warnings = tuple(finding for finding in findings if finding.level == "warning")
    return LoadedConfig(config=config, warnings=warnings, folder=path.parent)


def _read(path: Path) -> str:
    def refuse(problem: str, remedy: str) -> ConfigError:
        return ConfigError([Finding(path="", problem=problem, remedy=remedy)], str(path))

    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise refuse(
                f"the file has {path.stat().st_size:,} bytes", f"a cluster file has at most {MAX_FILE_BYTES:,}"
            )
        text = path.read_bytes()[: MAX_FILE_BYTES + 1].decode()
    except FileNotFoundError:
        raise refuse("there is no such file", "name one with -c config=PATH or --config PATH") from None
    except UnicodeDecodeError as error:
        raise refuse(f"byte {error.start} is not UTF-8 text", "save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise refuse(f"the file cannot be read ({reason})", "name a readable file") from None
    if not text.strip():
        raise refuse("the file is empty", "begin with name, region and instance_groups, as cluster.yaml does")
    return text


def _parse(text: str, source: str, findings: list[Finding]) -> object:
    def refuse(problem: str) -> ConfigError:
        return ConfigError([Finding(path="", problem=f"not YAML: {problem}", remedy="mend the file")], source)

    try:
        loader = _Loader(text)
        try:
            data: object = loader.get_single_data()
            findings += loader.findings
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise refuse(f"{error.problem or error.context}{line}") from None
    except yaml.YAMLError as error:
        raise refuse(show(str(error).splitlines()[0])) from None
    except RecursionError:
        raise refuse("nested too deeply") from None
    except (
        ValueError,
        OverflowError,
        TypeError,
        AttributeError,
    ) as error:  # a date or number that Python has no value for
        raise refuse(show(str(error))) from None
    return data


def _check_scripts(name: object, folder: Path) -> list[Finding]:
    if not isinstance(name, str):
        return []
    try:
        found = (folder / name).is_dir() and any(path.is_file() for path in (folder / name).iterdir())
    except (OSError, ValueError):
        found = False
    if found:
        return []
    return [
        Finding(
            path="lifecycle_scripts",
            problem=f"{show(name)} is not a folder with scripts in it",
            remedy="name a folder, relative to the file, or remove the line to use the library's scripts",
        )
    ]
