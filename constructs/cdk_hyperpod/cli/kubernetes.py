"""What Kubernetes says of HyperPod's nodes and their pods, by the user's own kubectl, which nothing else of the tool needs.

HyperPod names a node hyperpod-<instance id>, and tells its health by a label (EKS user guide of HyperPod, "Kubernetes labels").
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._lambda.hyperpod.common.drain_protocol import INSTANCE_ID
from . import tables
from .live import Reply

HEALTH = "sagemaker.amazonaws.com/node-health-status"
LIMIT_S = 60
"""How long kubectl may take, with whatever it runs for its credentials."""
_NODE = re.compile(rf"hyperpod-({INSTANCE_ID})")


MOST_TOLD = 6
"""Pods of a node that are told, as the drain agent tells jobs: five are shown, and that there are more."""
_LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="


class Seen(NamedTuple):
    """What the drainer would see (docs/adr/0015), by its own rules."""

    busy: Mapping[str, Sequence[str]]
    """Instance ids of the nodes that have pods which have to leave -> some of them, NAMESPACE/NAME."""
    unmanaged: Mapping[str, Sequence[str]]
    """The same of pods that no controller owns."""
    held: Sequence[str]
    """Names in Kubernetes of the nodes that a deployment's drainer holds."""


class _UnreadError(Exception):
    """Kubernetes was not asked; why."""


def states(cluster: Reply) -> tuple[dict[str, str], str | None]:
    """Each node's state by its instance id, in kubectl's words, and a note where it could not be read."""
    try:
        arn = ((cluster.get("Orchestrator") or {}).get("Eks") or {}).get("ClusterArn")
        if not arn:
            raise _UnreadError("the cluster is not under EKS")
        (listed,) = _listed(str(arn), ("nodes",))
        nodes = [node for node in listed if isinstance(node, dict)]
        found = _states(nodes)
        if nodes and not found:
            raise _UnreadError("none of its nodes has a name such as hyperpod-i-0123456789abcdef0")
        return found, None
    except _UnreadError as error:
        return {}, f"what Kubernetes says is not shown: {error}"


def look(arn: str) -> tuple[Seen | None, str]:
    """What is on the nodes of this EKS cluster; nothing, and why, where it could not be read."""
    try:
        nodes, pods = _listed(arn, ("nodes",), ("pods", "--all-namespaces", f"--field-selector={_LIVE_PODS}"))
        return _seen(nodes, pods), ""
    except _UnreadError as error:
        return None, str(error)


def _listed(arn: str, *queries: Sequence[str]) -> Iterator[Sequence[Any]]:
    """What `kubectl get` lists of this EKS cluster, for each query."""
    context = _context(arn, _kubectl("config", "view", "-o", "json"))
    return (_kubectl("--context", context, "get", *query, "-o", "json").get("items") or () for query in queries)


def _seen(nodes: Sequence[Any], pods: Sequence[Any]) -> Seen:
    from .._lambda.hyperpod.drainer.cluster_snapshot import SYSTEM
    from .._lambda.hyperpod.drainer.objects import has_to_leave, is_unmanaged, parse_node

    try:
        known = [parse_node(each, 0) for each in nodes]
        instances = {node.name: node.instance for node in known}
        busy: dict[str, list[str]] = {}
        unmanaged: dict[str, list[str]] = {}
        for pod in pods:
            instance = instances.get(pod["spec"]["nodeName"])
            if not (instance and has_to_leave(pod)):
                continue
            title = tables.shown(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", 330)
            if pod["metadata"]["namespace"] != SYSTEM:
                _tell(busy, instance, title)
            if is_unmanaged(pod):
                _tell(unmanaged, instance, title)
        return Seen(busy, unmanaged, [tables.shown(node.name, 63) for node in known if node.mark])
    except (KeyError, TypeError, AttributeError):
        raise _UnreadError("kubectl prints nodes or pods that are none") from None


def _tell(found: dict[str, list[str]], instance: str, title: str) -> None:
    told = found.setdefault(instance, [])
    if len(told) < MOST_TOLD:
        told.append(title)


def _states(items: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    named = [(_NODE.fullmatch(str((item.get("metadata") or {}).get("name"))), item) for item in items]
    return {name[1]: state(item) for name, item in named if name}


def state(node: Mapping[str, Any]) -> str:
    """What `kubectl get nodes` has under STATUS, and HyperPod's own label where it is not Schedulable."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((each.get("status") for each in conditions if each.get("type") == "Ready"), "Unknown")
    health = ((node.get("metadata") or {}).get("labels") or {}).get(HEALTH)
    words = [
        "Ready" if ready == "True" else "NotReady",
        *(["SchedulingDisabled"] if (node.get("spec") or {}).get("unschedulable") else []),
        *([str(health)] if health not in (None, "Schedulable") else []),
    ]
    return ",".join(words)


def _context(arn: str, config: Mapping[str, Any]) -> str:
    """The context of an EKS cluster, by how its tools name the cluster of a context: the AWS CLI by its ARN, eksctl
    NAME.REGION.eksctl.io, others NAME. Of several, the current one. Another cluster of that name has none of the nodes' ids."""
    _, _, _, region, _, resource = arn.split(":")
    name = resource.partition("/")[2]
    contexts = [each for each in config.get("contexts") or () if isinstance(each, dict)]
    for known in (arn, f"{name}.{region}.eksctl.io", name):
        found = [str(each.get("name")) for each in contexts if (each.get("context") or {}).get("cluster") == known]
        if found:
            current = str(config.get("current-context"))
            return current if current in found else found[0]
    raise _UnreadError(
        f"kubectl has no context of {arn}; aws eks update-kubeconfig --name {name} --region {region} makes it"
    )


def _kubectl(*arguments: str) -> dict[str, Any]:
    """What kubectl prints as JSON."""
    program = shutil.which("kubectl")
    if program is None:
        raise _UnreadError("there is no kubectl")
    try:
        done = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise _UnreadError(f"kubectl did not answer within {LIMIT_S} seconds") from None
    except OSError as error:
        raise _UnreadError(f"{program} does not run: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise _UnreadError(f"kubectl: {tables.shown(said[-1], 300)}")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _UnreadError("kubectl prints no JSON")
    return found
