"""Short ways to write live clusters and the plans of deployments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import (
    Cluster,
    Desired,
    DesiredGroup,
    Fixed,
    Group,
    Network,
    Node,
    RequestContext,
)

START = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
"""When the request of a test begins. Each node is a minute older than the next."""

STACK = "arn:aws:cloudformation:us-west-2:111122223333:stack/train/0a1b"
OURS = {"cdk-hyperpod:stack-id": STACK}
ROLE = "arn:aws:iam::111122223333:role/node"
VPC = Network(subnets=frozenset({"subnet-1"}), security_groups=frozenset({"sg-1"}))
P5 = Fixed(instance_types=("ml.p5.48xlarge",), node_type="Compute", execution_role=ROLE)
CONTROLLER = Fixed(instance_types=("ml.m5.4xlarge",), node_type="Controller", execution_role=ROLE)


def node_id(number: int) -> str:
    return f"i-{number:017x}"


def nodes(group: str, count: int, *, first: int = 1, status: str = "Running", outdated: bool = False) -> list[Node]:
    """Nodes with increasing numbers, each a minute younger than the one before."""
    return [
        Node(
            group=group,
            instance_id=node_id(number),
            logical_id=f"{group}-{number}",
            status=status,
            launched=START - timedelta(days=30) + timedelta(minutes=number),
            outdated=outdated,
        )
        for number in range(first, first + count)
    ]


def waiting(group: str, *numbers: int) -> list[Node]:
    """Nodes that are not launched yet."""
    return [Node(group=group, instance_id=None, logical_id=f"{group}-{number}", status="Pending") for number in numbers]


def late(group: str, *numbers: int) -> list[Node]:
    """Nodes that the service launched after the request began."""
    return [
        replace(node, launched=START + timedelta(minutes=1))
        for number in numbers
        for node in nodes(group, 1, first=number)
    ]


def group(name: str = "p5", target: int = 8, *, current: int | None = None, fixed: Fixed = P5, **more: Any) -> Group:
    return Group(name=name, fixed=fixed, current=target if current is None else current, target=target, **more)


def live(*groups: Group, nodes: Sequence[Node] = (), **more: Any) -> Cluster:
    """A continuous Slurm cluster with a controller and these groups."""
    values: dict[str, Any] = {"continuous": True, "network": VPC, "tags": OURS, **more}
    return Cluster(
        name="train",
        arn="arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghijkl",
        groups=(group("controller", 1, fixed=CONTROLLER), *groups),
        nodes=(*nodes, *controller_nodes()),
        **values,
    )


def controller_nodes() -> list[Node]:
    return nodes("controller", 1, first=900)


def desired_group(
    name: str = "p5", count: int = 8, minimum: int = 0, *, fixed: Fixed = P5, **more: Any
) -> DesiredGroup:
    spec = {"InstanceGroupName": name, "InstanceType": fixed.instance_types[0], "ExecutionRole": ROLE}
    return DesiredGroup(name=name, count=count, minimum=minimum, fixed=fixed, spec=spec, **more)


def desired(*groups: DesiredGroup, **more: Any) -> Desired:
    """The same controller, and these groups."""
    values: dict[str, Any] = {"owner": STACK, "network": VPC, "create_only": "vpc", **more}
    return Desired(cluster="train", groups=(desired_group("controller", 1, fixed=CONTROLLER), *groups), **values)


def request_context(*, first: bool = True, **more: Any) -> RequestContext:
    return RequestContext(first=first, began=START, **more)
