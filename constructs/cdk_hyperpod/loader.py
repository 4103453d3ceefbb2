"""Reads a cluster file and returns a ClusterConfig, or raises ConfigError with all findings."""

from __future__ import annotations

import errno
import os
import select
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from .config.cluster import ClusterConfig
from .errors import ConfigError, Finding, raise_errors
from .rules import check_cluster
from .rules.files import check_files
from .typed.build import structure
from .typed.document import Document
from .typed.validation import require_arguments
from .typed.words import shown_name
from .typed.yaml_text import ConflictProblem, TabProblem, YamlProblem, decoded, in_words

MAX_FILE_BYTES = 1_048_576
"""A cluster file with 100 groups has a tenth of this."""
_SILENCE_S = 10.0
"""How long a pipe may be silent. A program that writes the file into it takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A cluster file without errors."""

    config: ClusterConfig
    """The cluster."""
    warnings: tuple[Finding, ...]
    """Findings that do not prevent a deployment."""
    folder: Path
    """The file's own folder, to which paths in the file are relative."""

    @property
    def lifecycle_scripts(self) -> Path | None:
        """The user's own folder of lifecycle scripts. None: the library's scripts."""
        name = self.config.scripts_folder
        return None if name is None else self.folder / name

    def warnings_of(self, part: Literal["cluster", "eks", "teams"]) -> tuple[Finding, ...]:
        """The warnings of one part of the file, so that each is reported once.

        :param part: the EKS cluster, the teams, or the rest.
        """
        return tuple(warning for warning in self.warnings if _part(warning) == part)


def load_config(path: str | Path) -> LoadedConfig:
    """Read the cluster that a file describes.

    Reads only the file, and the files and folders that it names below the app's folder.

    Example::

        loaded = load_config("cluster.yaml")
        groups = loaded.config.instance_groups

    :param path: the file.
    :raises ConfigError: with every finding in the order of the file. The file is missing, unreadable or not YAML, or HyperPod
        would refuse the cluster.
    """
    require_arguments(load_config, path=path)
    path = Path(path)
    source = shown_name(str(path), length=4096)
    document = _parse(_read(path, source), source)
    findings = document.findings
    config = structure(ClusterConfig, document.data, findings)
    if isinstance(config, ClusterConfig):
        findings += check_cluster(config)
        findings += check_files(config, path.parent)
    findings = document.in_order(findings)
    raise_errors(findings, source)
    return LoadedConfig(config=config, warnings=tuple(findings), folder=path.parent)


def _part(warning: Finding) -> str:
    if warning.path.startswith("teams"):
        return "teams"
    return "eks" if warning.path.startswith("eks.") or warning.code == "second-zone" else "cluster"


def _read(path: Path, source: str) -> str:
    try:
        content = _first_bytes(path)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigError([_TOO_LARGE], source)
        return decoded(content)
    except FileNotFoundError:
        raise ConfigError([_not_found(path)], source) from None
    except YamlProblem as problem:
        not_text = Finding(
            code="file-not-utf-8", path="", problem=f"{problem}", remedy="save the file as UTF-8", line=problem.line
        )
        raise ConfigError([not_text], source) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        unreadable = Finding(
            code="file-unreadable",
            path="",
            problem=f"the file cannot be read ({reason})",
            remedy="name a readable file",
        )
        raise ConfigError([unreadable], source) from None


def _first_bytes(path: Path) -> bytes:
    """The file's content, or one byte more than a file may have. A pipe is read, too, but nothing is waited for without end."""
    at_once = getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | at_once)) as file:
        # A file of the kernel, such as /proc/kmsg, is a regular one without a size, and may wait like a pipe.
        may_wait = at_once and os.fstat(file.fileno()).st_size == 0
        content = b""
        while len(content) <= MAX_FILE_BYTES:
            if may_wait and not select.select([file], [], [], _SILENCE_S)[0]:
                raise OSError(errno.ETIMEDOUT, f"nothing came from it for {_SILENCE_S:g} seconds")
            some = file.read(MAX_FILE_BYTES + 1 - len(content))
            if some == b"":
                break
            content += some or b""
        return content


_TOO_LARGE = Finding(
    code="file-too-large",
    path="",
    problem=f"the file has more than {MAX_FILE_BYTES:,} bytes",
    remedy="name a cluster file, which is smaller",
)


def _not_found(path: Path) -> Finding:
    absolute_path = str(path.absolute())
    return Finding(
        code="file-not-found",
        path="",
        problem=f"there is no file {shown_name(absolute_path, length=4096)}",
        remedy="give its path (`cdk-hyperpod … --config FILE`, `cdk -c config=FILE`, `make … CONFIG=FILE`), or create one "
        "with `cdk-hyperpod init`",
    )


def _parse(text: str, source: str) -> Document:
    try:
        document = Document(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError([_not_yaml(in_words(error, text))], source) from None
    if document.data is None:
        empty = Finding(
            code="file-empty",
            path="",
            problem="the file is empty",
            remedy="begin with name, region and instance_groups. `cdk-hyperpod init` writes an example in an empty folder",
        )
        raise ConfigError([empty], source)
    return document


def _not_yaml(why: YamlProblem) -> Finding:
    if isinstance(why, ConflictProblem):
        return Finding(
            code="file-with-merge-conflict",
            path="",
            problem=f"cannot be read as YAML: {why}",
            remedy="keep one of the two versions, and delete the lines of all markers",
            line=why.line,
        )
    if isinstance(why, TabProblem):
        return Finding(
            code="file-with-tabs",
            path="",
            problem=f"cannot be read as YAML: {why}",
            remedy="indent with spaces, not with tabs",
            line=why.line,
        )
    return _unreadable(why, why.remedy)


def _unreadable(why: YamlProblem, remedy: str) -> Finding:
    return Finding(
        code="file-not-yaml",
        path="",
        problem=f"cannot be read as YAML: {why}",
        remedy=f"in this line, {remedy}",
        line=why.line,
    )
