"""The stacks of a cluster file."""

from __future__ import annotations

from aws_cdk import Annotations, App, Environment

from cdk_hyperpod import LoadedConfig, load_config
from cdk_hyperpod.config.changes import changed, record

from .boundary import read_permissions_boundary
from .cluster_stack import ClusterStack
from .foundation_stack import FoundationStack


def add_stacks(app: App, loaded: LoadedConfig) -> ClusterStack:
    """The stacks of one cluster file: two under Slurm, four under EKS (docs/adr/0008). Returns the cluster's own.

    Raises ConfigError where the app's context names a permissions boundary that is no policy, or, as `against`, a file that is
    no cluster's.
    """
    read_permissions_boundary(app)
    cluster = _stacks(app, loaded)
    # `-c against=FILE`, relative to the cluster file: another version of it, such as the one that is deployed.
    if against := app.node.try_get_context("against"):
        before = record(load_config(loaded.folder / str(against)).config)
        for each in changed(before, record(loaded.config)):
            Annotations.of(cluster).add_info_v2("cdk-hyperpod:change", f"{each.effect}: {each}")
    return cluster


def _stacks(app: App, loaded: LoadedConfig) -> ClusterStack:
    env = Environment(account=loaded.config.account, region=loaded.config.region)
    foundation = FoundationStack(app, loaded, env=env)
    if loaded.config.eks is None:
        return ClusterStack(app, loaded, foundation, env=env)
    # Only here: an app under Slurm has no use for what these import.
    from .eks_stack import EksStack
    from .teams_stack import TeamsStack

    eks = EksStack(app, loaded, foundation, env=env)
    cluster = ClusterStack(app, loaded, foundation, env=env, eks=eks)
    TeamsStack(app, loaded, foundation, eks, cluster, env=env)
    return cluster
