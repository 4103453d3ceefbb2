"""The protocol of drains (docs/adr/0014): what is asked for in a request, and what its reader answers in a status.

One file for all who speak it: the scale-down function and the drainer, which have it beside them; the commands, which
import it; and the agent on a Slurm controller, which gets a copy with the lifecycle scripts (`_assets.pack_lifecycle`). So
it imports the standard library alone, and runs on Python 3.8, which is what nodes have.
"""

from __future__ import annotations

MAX_NODES = 6758
"""HyperPod's own limit for a group (botocore: ClusterInstanceCount), and the most that scale_down.max_nodes can be."""

# As texts: compiling them is a part of a function's cold start, and most polls ask for few.
NODE_ID = r"i-[a-f0-9]{8}(?:[a-f0-9]{9})?"
"""What SageMaker takes for the id of a node (botocore: ClusterNodeId)."""
INSTANCE_ID = r"i-[0-9a-f]{8,17}"
"""What the protocol takes for one, and what names of nodes, reservations and Jobs have of it: any that EC2 may ever give."""
REQUEST_ID = r"[A-Za-z0-9-]{1,64}"
"""What a writer may call a request, or what it wants of one node."""

SCHEMA = 1
"""Of requests and of statuses."""
WRITERS = ("deployment", "operator")
"""Who may ask. Each has one request, which nobody else writes."""
MAX_AHEAD_S = 26 * 3600
"""No request holds a node longer: one that outlives this is no request of ours."""
MAX_REQUEST_BYTES = 2 * 1024**2
MAX_STATUS_BYTES = 8 * 1024**2
"""What is read of a status: more than a thousand bytes for every node that a cluster may have."""
SILENT_S = 180
"""The agent writes its status every minute; after this long it is taken for dead."""


def request_key(cluster_name: str, writer: str) -> str:
    """Where a writer's request is, in the bucket."""
    return f"{cluster_name}/requests/{writer}.json"


def status_key(cluster_name: str) -> str:
    """Where the agent's status is."""
    return f"{cluster_name}/status.json"
