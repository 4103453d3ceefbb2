"""What a cluster file may say, and the values that the constructs take. Nothing here imports aws_cdk.

The names below are public. The most used settings, such as `InstanceGroup`, are in `cdk_hyperpod` itself.
May import: facts, typed, _lambda.hyperpod.kernel.drain_protocol.
"""

from __future__ import annotations

from .cluster import NetworkConfig, Rolling, ScheduledUpdate, Taint
from .eks import (
    AddOn,
    AddOnsConfig,
    AutoscalingConfig,
    ChartComponents,
    EbsCsiDriverAddOn,
    EksConfig,
    ExistingEksCluster,
    FsxCsiDriverAddOn,
    ObservabilityAddOn,
    S3CsiDriverAddOn,
)
from .governance import TaskClass, TaskGovernance
from .lifecycle import LifecycleConfig, LifecycleSteps
from .monitoring import MonitoringConfig
from .scale_down import ScaleDownConfig, ScaleDownDrain
from .slurm import (
    AccountingDatabase,
    DrainAgentConfig,
    DrainBackup,
    Group,
    SlurmAccount,
    SlurmConfig,
    SlurmFiles,
    SlurmPartition,
    SlurmQos,
    User,
)
from .storage import OpenZfsConfig, StorageConfig, TieredStorageConfig
from .teams import AcceleratorPartition, PriorityClass, Share


def __getattr__(name: str) -> object:
    if name == "DrainConfig":
        raise ImportError("cdk_hyperpod.config.DrainConfig does not exist; use DrainAgentConfig")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AcceleratorPartition",
    "AccountingDatabase",
    "AddOn",
    "AddOnsConfig",
    "AutoscalingConfig",
    "ChartComponents",
    "DrainAgentConfig",
    "DrainBackup",
    "EbsCsiDriverAddOn",
    "EksConfig",
    "ExistingEksCluster",
    "FsxCsiDriverAddOn",
    "Group",
    "LifecycleConfig",
    "LifecycleSteps",
    "MonitoringConfig",
    "NetworkConfig",
    "ObservabilityAddOn",
    "OpenZfsConfig",
    "PriorityClass",
    "Rolling",
    "S3CsiDriverAddOn",
    "ScaleDownConfig",
    "ScaleDownDrain",
    "ScheduledUpdate",
    "Share",
    "SlurmAccount",
    "SlurmConfig",
    "SlurmFiles",
    "SlurmPartition",
    "SlurmQos",
    "StorageConfig",
    "Taint",
    "TaskClass",
    "TaskGovernance",
    "TieredStorageConfig",
    "User",
]
