"""AWS CDK constructs for Amazon SageMaker HyperPod clusters.

`_MODULES` lists the public names. The other settings of a cluster are in `cdk_hyperpod.config`. The names load when they are
first used, so that the command-line tool and the custom resource's code, which live in this package too, need neither aws_cdk
nor its Node process.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# The same names, for type checkers.
if TYPE_CHECKING:
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

_MODULES = {
    "HyperPodCluster": ".cluster",
    "ClusterConfig": ".config.cluster",
    "DataRepository": ".config.cluster",
    "EbsVolume": ".config.cluster",
    "InstanceGroup": ".config.cluster",
    "SubnetConfig": ".config.cluster",
    "Team": ".config.teams",
    "DrainChannel": ".drain",
    "IEksDrainer": ".drain",
    "EksControlPlane": ".eks",
    "EksDrainer": ".eks",
    "HyperPodAddOns": ".eks",
    "HyperPodTeams": ".eks",
    "encryption_key": ".encryption",
    "ConfigError": ".errors",
    "Finding": ".errors",
    "HyperPodError": ".errors",
    "InstanceType": ".instance_types",
    "catalogue": ".instance_types",
    "IHyperPodCluster": ".interface",
    "LifecycleScripts": ".lifecycle",
    "LoadedConfig": ".loader",
    "load_config": ".loader",
    "HyperPodNetwork": ".network",
    "PrivateSubnet": ".network",
    "ScaleDown": ".scale_down",
    "ILustreFileSystem": ".storage",
    "LustreFileSystem": ".storage",
    "LustreMount": ".storage",
    "OpenZfsMount": ".storage",
}
"""Public name -> its module."""

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise _unknown(name)
    value: object = getattr(importlib.import_module(_MODULES[name], __name__), name)
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
    return [*globals(), *_MODULES]
