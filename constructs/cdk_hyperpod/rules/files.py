"""Rules of the files that a cluster file names. `folder`: the cluster file's own folder, to which paths are relative.

These rules read the disk, so they run for a cluster file and not for constructs. They read only what the file names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..config.cluster import EKS_ENTRY_SCRIPT, ENTRY_SCRIPTS, ClusterConfig, Orchestrator
from ..config.eks import INSTALLED, EksConfig
from ..config.lifecycle import LifecycleConfig
from ..errors import Finding
from ..typed.words import show
from .eks import check_installed_chart, is_closed
from .groups import has_neuron
from .own_scripts import check_own_folder, own_folders


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
    if not isinstance(name, str):
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
