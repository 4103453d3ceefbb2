"""Rules of the files that a cluster file names. `folder`: the cluster file's own folder, to which paths are relative.

These rules read the disk, so they run for a cluster file and not for constructs. They read only what the file names, and only below
the app's folder: a file that somebody else wrote could name any file of the machine, which would then be uploaded or printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ..config.cluster import EKS_ENTRY_SCRIPT, ENTRY_SCRIPTS, ClusterConfig, Orchestrator
from ..config.eks import INSTALLED, EksConfig
from ..config.lifecycle import LifecycleConfig
from ..errors import Finding
from ..typed.known import is_known
from ..typed.words import show, shown_name
from .eks import check_installed_chart, is_closed
from .groups import has_neuron
from .own_scripts import check_own_folder, own_folders
from .slurm_files import check_slurm_files, named_files


def check_files(config: ClusterConfig, folder: Path) -> Iterator[Finding]:
    """Whether the files and folders that a cluster file names exist below the app's folder, and can be used."""
    for places, check in _CHECKS:
        outside = [finding for path, name in places(config) for finding in _outside(folder, name, path)]
        yield from outside or check(config, folder)


def app_folder(folder: Path) -> Path:
    """The nearest folder above a cluster file with cdk.json or .git, otherwise the file's own. Links are resolved."""
    own = Path(os.path.realpath(folder))
    return next((each for each in (own, *own.parents) if any((each / name).exists() for name in _TOP)), own)


_TOP = ("cdk.json", ".git")


def _outside(folder: Path, name: str, path: str) -> Iterator[Finding]:
    """Whether a path, or a link below it, leads out of the app's folder. The first one is enough."""
    top = app_folder(folder)
    for place in _links_below(folder / name):
        if not Path(os.path.realpath(place)).is_relative_to(top):
            shown = name if place == folder / name else f"{name}/{place.relative_to(folder / name)}"
            yield Finding(
                code="path-outside-the-app",
                path=path,
                problem=f"{show(shown)} leads out of {shown_name(str(top), 300)}, the app's folder",
                remedy="move it below the folder of cdk.json (without one: the repository's, or the cluster file's own)",
            )
            return


def _links_below(place: Path) -> Iterator[Path]:
    """The path itself, and below it every link to something that exists."""
    yield place
    for folder, folders, files in os.walk(place):
        links = (
            Path(folder, each) for each in sorted([*folders, *files]) if os.path.islink(os.path.join(folder, each))
        )
        yield from filter(Path.exists, links)


def check_dependencies_chart(config: ClusterConfig, folder: Path) -> Iterable[Finding]:
    """Whether the chart that the file names exists and can be installed."""
    eks = config.eks
    if config.orchestrator != "eks" or not isinstance(eks, EksConfig) or not isinstance(eks.dependencies_chart, str):
        return []
    if eks.dependencies_chart == INSTALLED:
        return check_installed_chart(config)
    # Imported only if there is a chart to read.
    from .charts import check_chart

    return check_chart(
        folder / eks.dependencies_chart,
        eks.dependencies_chart,
        digest=eks.dependencies_chart_digest,
        image_registry=eks.image_registry,
        neuron=has_neuron(config.instance_groups),
        closed_region=config.region if is_closed(config.network) else None,
    )


def check_scripts(config: ClusterConfig, folder: Path) -> Sequence[Finding]:
    """Whether the folder of scripts that the file names exists and has the scripts that HyperPod runs."""
    name = config.lifecycle.scripts if isinstance(config.lifecycle, LifecycleConfig) else None
    if not isinstance(name, str) or not is_known(name):
        return []
    return check_script_folder(folder / name, name, "lifecycle.scripts", config.orchestrator)


def check_own_script_folders(config: ClusterConfig, folder: Path) -> Iterable[Finding]:
    """Whether the folders of the user's own scripts exist, and nodes can run what is in them."""
    for own in own_folders(config):
        yield from check_own_folder(folder / own.name, own.name, own.path)


def check_script_folder(folder: Path, name: str, path: str, orchestrator: Orchestrator) -> Sequence[Finding]:
    """Whether a folder exists and has the scripts that HyperPod runs. `name`: the folder in the text. `path`: the setting."""
    entry_scripts = [EKS_ENTRY_SCRIPT] if orchestrator == "eks" else [*ENTRY_SCRIPTS.values()]
    try:
        exists = folder.is_dir()
        missing = [script for script in entry_scripts if not (folder / script).is_file()]
    except OSError as error:
        reason = error.strerror
        return [
            Finding(
                code="scripts-unreadable",
                path=path,
                problem=f"{show(name)} cannot be read ({reason})",
                remedy="name a folder",
            )
        ]
    if not exists:
        return [
            Finding(
                code="scripts-not-found",
                path=path,
                problem=f"there is no folder {show(name)}",
                remedy="name a folder, or remove the setting to use the library's scripts",
            )
        ]
    if not missing:
        return []
    return [
        Finding(
            code="scripts-incomplete",
            path=path,
            problem=f"{show(name)} lacks {', '.join(missing)}",
            remedy="add it: HyperPod runs the script of the node's type",
        )
    ]


_Places = Iterator[tuple[str, str]]
"""The path of a setting, and the file or folder that it names."""


def _scripts_place(config: ClusterConfig) -> _Places:
    name = config.lifecycle.scripts if isinstance(config.lifecycle, LifecycleConfig) else None
    if isinstance(name, str) and is_known(name):
        yield "lifecycle.scripts", name


def _chart_place(config: ClusterConfig) -> _Places:
    name = config.eks.dependencies_chart if isinstance(config.eks, EksConfig) else None
    if isinstance(name, str) and is_known(name) and name != INSTALLED:
        yield "eks.dependencies_chart", name


_CHECKS: Sequence[tuple[Callable[[ClusterConfig], _Places], Callable[[ClusterConfig, Path], Iterable[Finding]]]] = (
    (_scripts_place, check_scripts),
    (lambda config: ((own.path, own.name) for own in own_folders(config)), check_own_script_folders),
    (lambda config: named_files(config.slurm), lambda config, folder: check_slurm_files(config.slurm, folder)),
    (_chart_place, check_dependencies_chart),
)
"""What the file names, and its rules. They read nothing if one of the places is outside of the app's folder."""
