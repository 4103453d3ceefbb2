"""Names of stacks, which derive from the cluster's, so that two clusters deploy side by side."""


def foundation_stack_name(cluster_name: str) -> str:
    """The stack of what outlives the cluster. The prefix keeps it legal for a cluster whose name begins with a digit."""
    return f"hyperpod-{cluster_name}-foundation"


def eks_stack_name(cluster_name: str) -> str:
    """The stack of the EKS cluster and what is in it before the first node."""
    return f"hyperpod-{cluster_name}-eks"


def cluster_stack_name(cluster_name: str) -> str:
    """The stack of the cluster and its roles."""
    return f"hyperpod-{cluster_name}-cluster"


def teams_stack_name(cluster_name: str) -> str:
    """The stack of what teams work with: add-ons, queues, quotas and access."""
    return f"hyperpod-{cluster_name}-teams"


def stack_names(cluster_name: str) -> tuple[str, ...]:
    """All stacks that a cluster file may have, in the order in which they are deployed."""
    names = (foundation_stack_name, eks_stack_name, cluster_stack_name, teams_stack_name)
    return tuple(name(cluster_name) for name in names)
