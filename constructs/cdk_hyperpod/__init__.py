"""AWS CDK constructs for Amazon SageMaker HyperPod clusters.

The public names are those that the block below imports: they are listed there and nowhere else. The other settings of a
cluster are in `cdk_hyperpod.config`. The names load when they are first used, so that the command-line tool and the custom resource's code, which live in this package too, need neither
aws_cdk nor its Node process.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __all__: list[str]

    from .cluster import HyperPodCluster as HyperPodCluster
    from .config.cluster import ClusterConfig as ClusterConfig
    from .config.cluster import DataRepository as DataRepository
    from .config.cluster import EbsVolume as EbsVolume
    from .config.cluster import InstanceGroup as InstanceGroup
    from .config.cluster import SubnetConfig as SubnetConfig
    from .config.teams import Team as Team
    from .drain import DrainChannel as DrainChannel
    from .drain import IEksDrainer as IEksDrainer
    from .eks import EksControlPlane as EksControlPlane
    from .eks import EksDrainer as EksDrainer
    from .eks import HyperPodAddOns as HyperPodAddOns
    from .eks import HyperPodTeams as HyperPodTeams
    from .encryption import encryption_key as encryption_key
    from .errors import ConfigError as ConfigError
    from .errors import Finding as Finding
    from .errors import HyperPodError as HyperPodError
    from .instance_types import InstanceType as InstanceType
    from .instance_types import catalogue as catalogue
    from .interface import IHyperPodCluster as IHyperPodCluster
    from .lifecycle import LifecycleScripts as LifecycleScripts
    from .loader import LoadedConfig as LoadedConfig
    from .loader import load_config as load_config
    from .network import HyperPodNetwork as HyperPodNetwork
    from .network import PrivateSubnet as PrivateSubnet
    from .scale_down import ScaleDown as ScaleDown
    from .storage import ILustreFileSystem as ILustreFileSystem
    from .storage import LustreFileSystem as LustreFileSystem
    from .storage import LustreMount as LustreMount
    from .storage import OpenZfsMount as OpenZfsMount


@functools.cache
def _modules() -> dict[str, str]:
    """Each public name and its module. Python runs no block that is for type checkers, so it is read; and only when a name is
    first used, since that is half of what the command-line tool takes to start."""
    import ast
    import pkgutil

    (block,) = (
        node for node in ast.parse(pkgutil.get_data(__name__, "__init__.py") or b"").body if isinstance(node, ast.If)
    )
    return {
        alias.name: f".{node.module}" for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def __getattr__(name: str) -> object:
    if name == "__all__":
        return [*_modules()]
    if name not in _modules():
        raise _unknown(name)
    value: object = getattr(importlib.import_module(_modules()[name], __name__), name)
    globals()[name] = value
    return value


_REPLACED = {
    "existing_lustre_mount": "LustreFileSystem.from_attributes(…).mount",
    "existing_openzfs_mount": "OpenZfsMount.from_attributes(…)",
}
"""Public name that is no more -> what to use instead."""


def _unknown(name: str) -> Exception:
    """An ImportError for a name that is elsewhere now: of an AttributeError, `from cdk_hyperpod import` does not show the text."""
    if name in _REPLACED:
        return ImportError(f"cdk_hyperpod.{name} does not exist; use {_REPLACED[name]}")
    if name in importlib.import_module(".config", __name__).__all__:
        return ImportError(f"{name} is not in cdk_hyperpod; write `from cdk_hyperpod.config import {name}`")
    return AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "__all__", *_modules()]
