"""How this app puts the constructs together: a long-lived foundation and a cluster that can be replaced."""

from __future__ import annotations

from aws_cdk import App, Environment

from cdk_hyperpod import LoadedConfig

from .cluster_stack import ClusterStack
from .foundation_stack import FoundationStack

__all__ = ["ClusterStack", "FoundationStack", "add_stacks"]


def add_stacks(app: App, loaded: LoadedConfig) -> ClusterStack:
    """Both stacks of one cluster file; the foundation is the cluster stack's `foundation`."""
    env = Environment(account=loaded.config.account, region=loaded.config.region)
    return ClusterStack(app, loaded, FoundationStack(app, loaded, env=env), env=env)
