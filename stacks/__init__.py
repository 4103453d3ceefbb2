"""How this app puts the constructs together: a long-lived foundation and a cluster that can be replaced."""

from .all_stacks import add_stacks
from .cluster_stack import ClusterStack
from .foundation_stack import FoundationStack

__all__ = ["ClusterStack", "FoundationStack", "add_stacks"]
