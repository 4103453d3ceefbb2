"""Reads a cluster file: YAML in, a ClusterConfig out, or every finding at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from .config.cluster import ClusterConfig
from .errors import ConfigError, Finding, raise_errors
from .rules import check_cluster
from .rules.files import check_dependencies_chart, check_scripts
from .typed.build import structure
from .typed.document import Document
from .typed.judge import require_arguments
from .typed.words import shown_name
from .typed.yaml_text import YamlProblem, decoded, in_words

MAX_FILE_BYTES = 1_048_576
"""A cluster of 100 groups is a tenth of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A cluster file that has no error."""

    config: ClusterConfig
    """The cluster."""
    warnings: tuple[Finding, ...]
    """What is only worth knowing."""
    folder: Path
    """The file's own folder: relative paths in the file begin there."""

    @property
    def lifecycle_scripts(self) -> Path | None:
        """The user's own folder of lifecycle scripts; None for the library's."""
        name = self.config.scripts_folder
        return None if name is None else self.folder / name

    def warnings_of(self, part: Literal["cluster", "eks", "teams"]) -> tuple[Finding, ...]:
        """The warnings of one part of the file, so that each is told once.

        :param part: the EKS cluster, the teams, or the rest.
        """
        return tuple(warning for warning in self.warnings if _part(warning) == part)


def load_config(path: str | Path) -> LoadedConfig:
    """The cluster that a file describes.

    Reads nothing but the file and the names in the folder that it may point to.

    Example::

        loaded = load_config("cluster.yaml")
        groups = loaded.config.instance_groups

    :param path: the file.
    :raises ConfigError: with every finding in the order of the file, for a file that is missing, unreadable, not YAML,
        or describes a cluster that HyperPod would refuse.
    """
    require_arguments(load_config, path=path)
    path = Path(path)
    source = shown_name(str(path), length=4096)
    document = _parse(_read(path, source), source)
    findings = document.findings
    config = structure(ClusterConfig, document.data, findings)
    if isinstance(config, ClusterConfig):
        findings += check_cluster(config)
        findings += check_scripts(config, path.parent)
        findings += check_dependencies_chart(config, path.parent)
    findings = document.in_order(findings)
    raise_errors(findings, source)
    return LoadedConfig(config=config, warnings=tuple(findings), folder=path.parent)


def _part(warning: Finding) -> str:
    if warning.path.startswith("teams"):
        return "teams"
    return "eks" if warning.path.startswith("eks.") or warning.code == "second-zone" else "cluster"


def _refusal(source: str, problem: str, remedy: str, line: int | None = None) -> ConfigError:
    return ConfigError([Finding(path="", problem=problem, remedy=remedy, line=line)], source)


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
            "give its path (`cdk-hyperpod … --config FILE`, `cdk -c config=FILE`, `make … CONFIG=FILE`), "
            "or let `cdk-hyperpod init` write one"
        )
        raise _refusal(source, f"there is no file {shown_name(str(path.absolute()), length=4096)}", remedy) from None
    except YamlProblem as problem:
        raise _refusal(source, str(problem), "save the file as UTF-8", problem.line) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _refusal(source, f"the file cannot be read ({reason})", "name a readable file") from None


def _parse(text: str, source: str) -> Document:
    try:
        document = Document(text)
    except (yaml.YAMLError, RecursionError) as error:
        why = in_words(error, text)
        remedy = "indent with spaces, never with tabs" if "character '\\t'" in str(why) else "correct it there"
        raise _refusal(source, f"cannot be read as YAML: {why}", remedy, why.line) from None
    if document.data is None:
        remedy = "begin with name, region and instance_groups; `cdk-hyperpod init` writes an example in an empty folder"
        raise _refusal(source, "the file is empty", remedy)
    return document
