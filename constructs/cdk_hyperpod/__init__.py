"""AWS CDK constructs for Amazon SageMaker HyperPod clusters.

The public names are those of `__all__`. They load when they are first used, so that the command-line tool and the
custom resource's code, which live in this package too, need neither aws_cdk nor its Node process.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cluster import HyperPodCluster
    from .config import (
        ClusterConfig,
        DataRepository,
        EbsVolume,
        InstanceGroup,
        NetworkConfig,
        OpenZfsConfig,
        ScaleDownConfig,
        StorageConfig,
        SubnetConfig,
        Taint,
        TieredStorageConfig,
    )
    from .config_eks import (
        AddOn,
        AddOnsConfig,
        AutoscalingConfig,
        EksConfig,
        ExistingEksCluster,
    )
    from .config_lifecycle import LifecycleConfig, LifecycleSteps
    from .config_slurm import AccountingDatabase, DrainBackup, DrainConfig, Group, SlurmAccount, SlurmConfig, User
    from .drain import DrainChannel
    from .eks import EksControlPlane, HyperPodAddOns, HyperPodTeams
    from .encryption import encryption_key
    from .errors import ConfigError, Finding, HyperPodError
    from .instance_types import InstanceType, catalogue
    from .kubernetes.governance import TaskClass, TaskGovernance
    from .kubernetes.teams import PriorityClass, Team
    from .lifecycle import LifecycleScripts
    from .loader import LoadedConfig, load_config
    from .network import HyperPodNetwork, PrivateSubnet
    from .scale_down import ScaleDown
    from .storage import LustreFileSystem, LustreMount, OpenZfsMount, existing_lustre_mount, existing_openzfs_mount

_MODULES = {
    "cluster": ["HyperPodCluster"],
    "config": [
        "ClusterConfig",
        "DataRepository",
        "EbsVolume",
        "InstanceGroup",
        "NetworkConfig",
        "OpenZfsConfig",
        "ScaleDownConfig",
        "StorageConfig",
        "SubnetConfig",
        "Taint",
        "TieredStorageConfig",
    ],
    "config_eks": [
        "AddOn",
        "AddOnsConfig",
        "AutoscalingConfig",
        "EksConfig",
        "ExistingEksCluster",
    ],
    "config_lifecycle": ["LifecycleConfig", "LifecycleSteps"],
    "config_slurm": [
        "AccountingDatabase",
        "DrainBackup",
        "DrainConfig",
        "Group",
        "SlurmAccount",
        "SlurmConfig",
        "User",
    ],
    "drain": ["DrainChannel"],
    "eks": ["EksControlPlane", "HyperPodAddOns", "HyperPodTeams"],
    "encryption": ["encryption_key"],
    "errors": ["ConfigError", "Finding", "HyperPodError"],
    "instance_types": ["InstanceType", "catalogue"],
    "kubernetes.governance": ["TaskClass", "TaskGovernance"],
    "kubernetes.teams": ["PriorityClass", "Team"],
    "lifecycle": ["LifecycleScripts"],
    "loader": ["LoadedConfig", "load_config"],
    "network": ["HyperPodNetwork", "PrivateSubnet"],
    "scale_down": ["ScaleDown"],
    "storage": ["LustreFileSystem", "LustreMount", "OpenZfsMount", "existing_lustre_mount", "existing_openzfs_mount"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AccountingDatabase",
    "AddOn",
    "AddOnsConfig",
    "AutoscalingConfig",
    "ClusterConfig",
    "ConfigError",
    "DataRepository",
    "DrainBackup",
    "DrainChannel",
    "DrainConfig",
    "EbsVolume",
    "EksConfig",
    "EksControlPlane",
    "ExistingEksCluster",
    "Finding",
    "Group",
    "HyperPodAddOns",
    "HyperPodCluster",
    "HyperPodError",
    "HyperPodNetwork",
    "HyperPodTeams",
    "InstanceGroup",
    "InstanceType",
    "LifecycleConfig",
    "LifecycleScripts",
    "LifecycleSteps",
    "LoadedConfig",
    "LustreFileSystem",
    "LustreMount",
    "NetworkConfig",
    "OpenZfsConfig",
    "OpenZfsMount",
    "PriorityClass",
    "PrivateSubnet",
    "ScaleDown",
    "ScaleDownConfig",
    "SlurmAccount",
    "SlurmConfig",
    "StorageConfig",
    "SubnetConfig",
    "Taint",
    "TaskClass",
    "TaskGovernance",
    "Team",
    "TieredStorageConfig",
    "User",
    "catalogue",
    "encryption_key",
    "existing_lustre_mount",
    "existing_openzfs_mount",
    "load_config",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
