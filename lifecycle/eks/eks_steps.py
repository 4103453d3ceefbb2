"""Run a step that nodes under EKS and Slurm have in common. Usage: eks_steps.py CLUSTER_FILE STEP.

Exit code 0: the step did its work, or this node does not need it. Otherwise the last line of the log says why.
"""

from __future__ import annotations

import os
import sys

import provision

NODE_TYPE = "node"
"""What all nodes are under EKS. It is the name of their script."""


def main(cluster_file: str, step: str) -> int:
    """Run the step. Returns the exit code."""
    try:
        cluster = provision.read_cluster(cluster_file)
    except provision.ProvisionError as error:
        provision.log("ERROR", str(error))
        return 1
    node = find_node()
    efa = provision.efa_step(cluster, node) if step == "efa" and "efa" not in cluster.off else None
    return provision.run_all((efa,) if efa else provision.own_step(step, cluster, node), NODE_TYPE)


def find_node() -> provision.Node:
    """This node. A node that HyperPod's file does not list is used nevertheless: the scripts get no facts about it."""
    path = os.environ.get("SAGEMAKER_RESOURCE_CONFIG_PATH") or provision.RESOURCE_CONFIG
    try:
        instance, _ = provision.wait_for_self(path, NODE_TYPE)
    except provision.ProvisionError as error:
        provision.log("WARNING", f"the scripts do not get this node's id, group and type: {error}")
        instance = provision.Instance("", "", frozenset())
    return provision.Node(NODE_TYPE, instance)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
