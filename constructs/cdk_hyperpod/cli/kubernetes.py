"""The state of HyperPod's nodes and pods in Kubernetes, by the user's own kubectl. Nothing else of the tool needs kubectl.

HyperPod names a node hyperpod-<instance id>, and reports its health by a label (EKS user guide of HyperPod, "Kubernetes labels").
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._lambda.hyperpod.kernel.drain_protocol import INSTANCE_ID
from . import tables
from .live import Column, Reply

HEALTH = "sagemaker.amazonaws.com/node-health-status"
LIMIT_S = 60
"""Limit of one kubectl call, with the program that gets its credentials."""
_NODE = re.compile(rf"hyperpod-({INSTANCE_ID})")


MOST_PODS = 6
"""Pods that are kept of a node, as the drain agent keeps jobs: five are shown, and that there are more."""
_LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="


class Pods(NamedTuple):
    """The pods on the nodes, by the drainer's own rules (docs/adr/0015)."""

    busy: Mapping[str, Sequence[str]]
    """Instance id -> some of the pods that have to leave the node, NAMESPACE/NAME."""
    unmanaged: Mapping[str, Sequence[str]]
    """The same for pods that no controller owns."""
    held: Sequence[str]
    """Kubernetes' names of the nodes that a deployment's drainer holds."""


class UnreadError(Exception):
    """Why kubectl could not read the cluster."""


def states(cluster: Reply) -> Column:
    """Each node's state by its instance id, in kubectl's words."""
    try:
        return Column(cells=_read_states(cluster))
    except UnreadError as error:
        return Column(unread=f"the state in Kubernetes is not shown: {error}")


def _read_states(cluster: Reply) -> dict[str, str]:
    arn = ((cluster.get("Orchestrator") or {}).get("Eks") or {}).get("ClusterArn")
    if not arn:
        raise UnreadError("the cluster is not under EKS")
    (listed,) = _listed(str(arn), ("nodes",))
    nodes = [node for node in listed if isinstance(node, dict)]
    found = _states(nodes)
    if nodes and not found:
        raise UnreadError("no node has a name such as hyperpod-i-0123456789abcdef0")
    return found


def read_pods(arn: str) -> Pods:
    """The pods on the nodes of this EKS cluster. Raises UnreadError."""
    nodes, pods = _listed(arn, ("nodes",), ("pods", "--all-namespaces", f"--field-selector={_LIVE_PODS}"))
    return _parse_pods(nodes, pods)


def _listed(arn: str, *queries: Sequence[str]) -> Iterator[Sequence[Any]]:
    """What `kubectl get` lists of this EKS cluster, for each query."""
    context = _context(arn, _kubectl("config", "view", "-o", "json"))
    return (_kubectl("--context", context, "get", *query, "-o", "json").get("items") or () for query in queries)


def _parse_pods(nodes: Sequence[Any], pods: Sequence[Any]) -> Pods:
    from .._lambda.hyperpod.drainer.objects import SYSTEM, has_to_leave, is_unmanaged, parse_node

    busy: dict[str, list[str]] = {}
    unmanaged: dict[str, list[str]] = {}
    try:
        known = [parse_node(each, 0) for each in nodes]
        instances = {node.name: node.instance for node in known}
        for pod in pods:
            instance = instances.get(pod["spec"]["nodeName"])
            if not instance or not has_to_leave(pod):
                continue
            namespace = pod["metadata"]["namespace"]
            title = tables.shown(f"{namespace}/{pod['metadata']['name']}", 330)
            if namespace != SYSTEM:
                _add(busy, instance, title)
            if is_unmanaged(pod):
                _add(unmanaged, instance, title)
    except (KeyError, TypeError, AttributeError):
        raise UnreadError("kubectl printed invalid nodes or pods") from None
    return Pods(busy, unmanaged, [tables.shown(node.name, 63) for node in known if node.mark])


def _add(found: dict[str, list[str]], instance: str, title: str) -> None:
    of_node = found.setdefault(instance, [])
    if len(of_node) < MOST_PODS:
        of_node.append(title)


def _states(items: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    named = [(_NODE.fullmatch(str((item.get("metadata") or {}).get("name"))), item) for item in items]
    return {name[1]: state(item) for name, item in named if name}


def state(node: Mapping[str, Any]) -> str:
    """What `kubectl get nodes` has under STATUS, and HyperPod's own label if it is not Schedulable."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((each.get("status") for each in conditions if each.get("type") == "Ready"), "Unknown")
    health = ((node.get("metadata") or {}).get("labels") or {}).get(HEALTH)
    words = ["Ready" if ready == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    if health not in (None, "Schedulable"):
        words.append(str(health))
    return ",".join(words)


def _context(arn: str, config: Mapping[str, Any]) -> str:
    """The context of an EKS cluster. The AWS CLI names a context's cluster by its ARN, eksctl NAME.REGION.eksctl.io, others NAME.
    Of several contexts, the current one. Another cluster of the same name does no harm: it has none of the nodes' ids."""
    _, _, _, region, _, resource = arn.split(":")
    name = resource.partition("/")[2]
    contexts = [each for each in config.get("contexts") or () if isinstance(each, dict)]
    for known in (arn, f"{name}.{region}.eksctl.io", name):
        found = [str(each.get("name")) for each in contexts if (each.get("context") or {}).get("cluster") == known]
        if found:
            current = str(config.get("current-context"))
            return current if current in found else found[0]
    raise UnreadError(
        f"kubectl has no context of {arn}. Add it by aws eks update-kubeconfig --name {name} --region {region}"
    )


def _kubectl(*arguments: str) -> dict[str, Any]:
    """What kubectl prints as JSON."""
    program = shutil.which("kubectl")
    if program is None:
        raise UnreadError("kubectl is not installed")
    try:
        done = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnreadError(f"kubectl did not answer within {LIMIT_S} seconds") from None
    except OSError as error:
        raise UnreadError(f"{program} does not run: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise UnreadError(f"kubectl: {tables.shown(lines[-1], 300)}")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UnreadError("kubectl printed no JSON")
    return found
