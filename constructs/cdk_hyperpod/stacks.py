"""In a checkout, the stacks of the top-level folder `stacks/`. A wheel has that folder itself under this name, and not this file."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stacks import *
else:
    __path__ = [str(Path(__file__).resolve().parents[2] / "stacks")]  # where Python finds the modules of this package

    from cdk_hyperpod.stacks.all_stacks import add_stacks
    from cdk_hyperpod.stacks.cluster_stack import ClusterStack
    from cdk_hyperpod.stacks.foundation_stack import FoundationStack

    __all__ = ["ClusterStack", "FoundationStack", "add_stacks"]
