"""Finds the files that come with the library, in a checkout and in an installed wheel."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def lifecycle_dir() -> Path:
    """The folder of lifecycle scripts. Raises FileNotFoundError if the installation lacks them."""
    places = (_PACKAGE / "_lifecycle", _PACKAGE.parents[1] / "lifecycle")
    for place in places:
        if (place / "on_create.sh").is_file():
            return place
    raise FileNotFoundError(f"the lifecycle scripts are neither in {places[0]} nor in {places[1]}; install again")


def drain_protocol() -> Path:
    """The protocol between the functions, the commands and the drain agent. Nodes get a copy."""
    return lambda_dir() / "hyperpod" / "kernel" / "drain_protocol.py"


def pack_lifecycle(target: Path) -> Path:
    """Copy the lifecycle scripts of Slurm's nodes and the drain protocol to a folder. Returns that folder."""
    if target.exists():
        shutil.rmtree(target)
    ignored = shutil.ignore_patterns("eks", "__pycache__", "*.pyc", ".*")
    shutil.copytree(lifecycle_dir(), target, ignore=ignored)
    # An installation may be read-only, but the next synthesis replaces the copy.
    for folder, _, _ in os.walk(target):
        os.chmod(folder, os.stat(folder).st_mode | stat.S_IWUSR)
    shutil.copy(drain_protocol(), target)
    return target


SHARED_WITH_EKS = ("lib.py", "provision.py", "steps/05_own_scripts.py", "steps/12_efa.py")
"""What nodes under EKS need of the scripts for Slurm's nodes."""


def pack_eks_lifecycle(target: Path) -> Path:
    """Copy the lifecycle scripts of nodes under EKS to a folder. Returns that folder."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    source = lifecycle_dir()
    for file in sorted((source / "eks").iterdir()):
        if file.is_file():
            shutil.copy(file, target)
    for name in SHARED_WITH_EKS:
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copy(source / name, target / name)
    return target


def docs_dir() -> Path:
    """The pages that messages and docstrings name, such as docs/eks.md."""
    within = _PACKAGE / "docs"
    return within if within.is_dir() else _PACKAGE.parents[1] / "docs"


def lambda_dir() -> Path:
    """The functions' code, a folder each in `hyperpod/`, and the API model that they use."""
    return _PACKAGE / "_lambda"


def models_dir() -> Path:
    """The pinned API model of SageMaker, in a folder of botocore's form."""
    return lambda_dir() / "hyperpod" / "common" / "models"


def project_file(name: str) -> Path:
    """`cdk.json`, `package.json` or `package-lock.json` of this project, which a new app begins with; or what `init` writes beside them."""
    within = _PACKAGE / "_project" / name
    return within if within.is_file() else _PACKAGE.parents[1] / name
