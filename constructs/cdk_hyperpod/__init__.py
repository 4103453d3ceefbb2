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
    from ._common.encryption import encryption_key as encryption_key
    from .cluster.cluster import HyperPodCluster as HyperPodCluster
    from .config.cluster import ClusterConfig as ClusterConfig
    from .config.cluster import EbsVolume as EbsVolume
    from .config.cluster import InstanceGroup as InstanceGroup
    from .config.cluster import SubnetConfig as SubnetConfig
    from .config.storage import DataRepository as DataRepository
    from .config.teams import Team as Team
    from .eks import EksControlPlane as EksControlPlane
    from .eks import EksDrainer as EksDrainer
    from .eks import HyperPodAddOns as HyperPodAddOns
    from .eks import HyperPodTeams as HyperPodTeams
    from .errors import ConfigError as ConfigError
    from .errors import Finding as Finding
    from .errors import HyperPodError as HyperPodError
    from .facts.instance_types import InstanceType as InstanceType
    from .facts.instance_types import catalogue as catalogue
    from .guard.drain_channel import DrainChannel as DrainChannel
    from .guard.drain_channel import IEksDrainer as IEksDrainer
    from .guard.scale_down import ScaleDown as ScaleDown
    from .interface import IHyperPodCluster as IHyperPodCluster
    from .loader import LoadedConfig as LoadedConfig
    from .loader import load_config as load_config
    from .monitoring.cluster_monitoring import ClusterMonitoring as ClusterMonitoring
    from .network.network import HyperPodNetwork as HyperPodNetwork
    from .network.network import PrivateSubnet as PrivateSubnet
    from .scripts.lifecycle_scripts import LifecycleScripts as LifecycleScripts
    from .storage.lustre import ILustreFileSystem as ILustreFileSystem
    from .storage.lustre import LustreFileSystem as LustreFileSystem
    from .storage.lustre import LustreMount as LustreMount
    from .storage.openzfs import OpenZfsMount as OpenZfsMount

_MODULES = {
    "HyperPodCluster": ".cluster.cluster",
    "ClusterConfig": ".config.cluster",
    "DataRepository": ".config.storage",
    "EbsVolume": ".config.cluster",
    "InstanceGroup": ".config.cluster",
    "SubnetConfig": ".config.cluster",
    "Team": ".config.teams",
    "DrainChannel": ".guard.drain_channel",
    "IEksDrainer": ".guard.drain_channel",
    "EksControlPlane": ".eks",
    "EksDrainer": ".eks",
    "HyperPodAddOns": ".eks",
    "HyperPodTeams": ".eks",
    "encryption_key": "._common.encryption",
    "ConfigError": ".errors",
    "Finding": ".errors",
    "HyperPodError": ".errors",
    "InstanceType": ".facts.instance_types",
    "catalogue": ".facts.instance_types",
    "IHyperPodCluster": ".interface",
    "LifecycleScripts": ".scripts.lifecycle_scripts",
    "LoadedConfig": ".loader",
    "load_config": ".loader",
    "ClusterMonitoring": ".monitoring.cluster_monitoring",
    "HyperPodNetwork": ".network.network",
    "PrivateSubnet": ".network.network",
    "ScaleDown": ".guard.scale_down",
    "ILustreFileSystem": ".storage.lustre",
    "LustreFileSystem": ".storage.lustre",
    "LustreMount": ".storage.lustre",
    "OpenZfsMount": ".storage.openzfs",
}
"""Public name -> its module."""

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise _unknown(name)
    value: object = getattr(importlib.import_module(_MODULES[name], __name__), name)
    globals()[name] = value
    return value


def _unknown(name: str) -> Exception:
    """An ImportError for a name that is elsewhere now: of an AttributeError, `from cdk_hyperpod import` does not show the text."""
    if name in importlib.import_module(".config", __name__).__all__:
        return ImportError(f"{name} is not in cdk_hyperpod; write `from cdk_hyperpod.config import {name}`")
    return AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
