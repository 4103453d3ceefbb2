#!/usr/bin/env python3
"""Decide which steps this node runs. Usage: provision.py CLUSTER_FILE NODE_TYPE.

Prints one line for each step: the name of a script in steps/ and its arguments, separated by tabs. What it finds out
goes to stderr. Exit code 1, after one line that starts with the time and ERROR, when it cannot tell which node this is
or the node is not what NODE_TYPE says; exit code 2, after such a line, when there is no such NODE_TYPE.

It reads two files. resource_config.json is HyperPod's: the cluster, its instance groups and their instances with
addresses, and no node types except where the controller is. CLUSTER_FILE (cluster.json) is written with the scripts and
says what this cluster expects of every node; without it no step is run:

    {"cluster_name": "llm-train", "mounts": [{"path": "/fsx", "type": "lustre"}]}

It names no instance group: the scripts' S3 prefix is a hash of all that is uploaded with them, and one more group must
not change the prefix of every other. So NODE_TYPE comes from the script that the group's LifeCycleConfig.OnCreate names.

Only the standard library, and nothing newer than Python 3.8: that is what nodes with Ubuntu 20.04 have.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
"""Where HyperPod puts the file unless SAGEMAKER_RESOURCE_CONFIG_PATH says otherwise."""
NODE_TYPES = ("controller", "login", "compute")
"""The values of SlurmConfig.NodeType, in lower case. Each has a script of that name, which OnCreate names."""
MOUNT_PATH = re.compile(r"(/[A-Za-z0-9._-]+)+")
FILE_SYSTEM_TYPE = re.compile(r"[a-z0-9.]+")


class ProvisionError(Exception):
    """Why the node cannot be provisioned, and what to look at."""


@dataclass(frozen=True)
class Instance:
    """This node, as resource_config.json has it."""

    group: str
    name: str
    """The instance id, or HyperPod's name for the instance where the file has no id."""
    addresses: frozenset[str]
    """What HyperPod knows it by. The node itself need not see all of them: its agent may have a network of its own."""


@dataclass(frozen=True)
class Mount:
    """A file system that every node must have."""

    path: str
    type: str
    """As the kernel calls it: lustre."""


@dataclass(frozen=True)
class Cluster:
    """cluster.json."""

    name: str
    mounts: tuple[Mount, ...]


@dataclass(frozen=True)
class Step:
    """A script in steps/ and its arguments."""

    script: str
    arguments: tuple[str, ...] = ()


def steps_for(cluster: Cluster) -> tuple[Step, ...]:
    """The steps of every node, in the order in which they run. A new step is a new line here and a script in steps/."""
    steps = []
    if cluster.mounts:
        steps.append(
            Step("10_verify_mounts.sh", tuple(word for mount in cluster.mounts for word in (mount.path, mount.type)))
        )
    return tuple(steps)


def parse_cluster(content: Any) -> Cluster:
    """cluster.json, checked: what is wrong in it must not show on a node as a step that was left out."""
    mounts = _mapping("its content", content).get("mounts", [])
    if not isinstance(mounts, list):
        raise ProvisionError(f"cluster.json: mounts: must be a list, got {json.dumps(mounts)}")
    return Cluster(
        name=_text("cluster_name", content.get("cluster_name")),
        mounts=tuple(_parse_mount(f"mounts[{i}]", _mapping(f"mounts[{i}]", mount)) for i, mount in enumerate(mounts)),
    )


def find_self(resource_config: Any, addresses: frozenset[str]) -> Instance:
    """The instance that has one of this node's addresses.

    Never a guess: a node that took itself for another one would start the wrong daemons.
    """
    try:
        found = {
            Instance(group["Name"], instance.get("InstanceId") or instance["InstanceName"], _known_addresses(instance))
            for group in resource_config["InstanceGroups"]
            for instance in group.get("Instances") or ()
            if addresses & _known_addresses(instance)
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise _unknown_form(error) from error
    own = ", ".join(sorted(addresses)) or "none"
    if not found:
        raise ProvisionError(
            f"no instance in resource_config.json has an address of this node ({own}); "
            "compare them with CustomerIpAddress and AgentIpAddress there"
        )
    if len(found) > 1:
        names = ", ".join(sorted(f"{instance.name} in {instance.group}" for instance in found))
        raise ProvisionError(
            f"more than one instance in resource_config.json has an address of this node ({own}): {names}"
        )
    return found.pop()


def check_node_type(
    node_type: str, instance: Instance, resource_config: Mapping[str, Any], addresses: frozenset[str]
) -> None:
    """Refuse a controller where HyperPod has it elsewhere, and any other node where HyperPod has the controller.

    Without PrimaryControllerIp HyperPod does not say. SecondaryControllerIps are those of a cluster with several.
    """
    own = addresses | instance.addresses
    try:
        slurm = resource_config.get("SlurmConfig") or {}
        controllers = [slurm.get("PrimaryControllerIp"), *(slurm.get("SecondaryControllerIps") or ())]
        is_controller = not own.isdisjoint(controllers)
    except (TypeError, AttributeError) as error:
        raise _unknown_form(error) from error
    if controllers[0] and is_controller != (node_type == "controller"):
        raise ProvisionError(
            f"OnCreate of the instance group {instance.group!r} says {node_type}, but HyperPod says the controller is "
            f"{', '.join(map(str, controllers))} (SlurmConfig in resource_config.json), and this node has the addresses "
            f"{', '.join(sorted(own))}; correct LifeCycleConfig.OnCreate of the group"
        )


def check_cluster(resource_config: Mapping[str, Any], cluster: Cluster) -> None:
    """Refuse the scripts of another cluster."""
    named = resource_config.get("ClusterConfig")
    name = named.get("ClusterName", cluster.name) if isinstance(named, dict) else cluster.name
    if name != cluster.name:
        raise ProvisionError(
            f"these scripts are those of the cluster {cluster.name!r}, and this node is in {name!r}; "
            "correct SourceS3Uri of its instance group"
        )


def addresses_in(interfaces: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The addresses in the output of `ip -json address show` that another machine could know this one by."""
    addresses = (
        ipaddress.ip_address(address["local"])
        for interface in interfaces
        for address in interface.get("addr_info", ())
        if "local" in address
    )
    return frozenset(str(address) for address in addresses if not (address.is_loopback or address.is_link_local))


def _known_addresses(instance: Mapping[str, Any]) -> frozenset[str]:
    addresses = (instance.get("CustomerIpAddress"), instance.get("AgentIpAddress"))
    return frozenset(address for address in addresses if address)


def _unknown_form(error: Exception) -> ProvisionError:
    return ProvisionError(f"resource_config.json does not have HyperPod's form: {error!r}")


def _parse_mount(path: str, content: Mapping[str, Any]) -> Mount:
    mount = Mount(_text(f"{path}.path", content.get("path")), _text(f"{path}.type", content.get("type")))
    if not MOUNT_PATH.fullmatch(mount.path):
        raise ProvisionError(
            f"cluster.json: {path}.path: must be an absolute path like /fsx, got {json.dumps(mount.path)}"
        )
    if not FILE_SYSTEM_TYPE.fullmatch(mount.type):
        raise ProvisionError(f"cluster.json: {path}.type: must be a type like lustre, got {json.dumps(mount.type)}")
    return mount


def _mapping(path: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProvisionError(f"cluster.json: {path}: must be an object, got {json.dumps(value)}")
    return value


def _text(path: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ProvisionError(f"cluster.json: {path}: must be text, got {json.dumps(value)}")
    return value


def _log(level: str, message: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {level} provision.py: {message}", file=sys.stderr)


def _read_json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise ProvisionError(f"{path} cannot be read: {error}") from error


def _own_addresses() -> frozenset[str]:
    command = ["ip", "-json", "address", "show"]
    try:
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=30).stdout
        return addresses_in(json.loads(output))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ProvisionError(f"`{' '.join(command)}` does not tell this node's addresses: {error}") from error


def _wait_for_self(path: str, node_type: str) -> tuple[Instance, Any]:
    """Find this node in resource_config.json, check its type, and return it with the file's content.

    It is looked at again for a minute: under continuous provisioning HyperPod may write it while nodes still join, and
    where a controller is replaced it may have the old one's address at first.
    """
    attempts = int(os.environ.get("PROVISION_ATTEMPTS", "12"))
    for attempt in range(1, attempts + 1):
        try:
            resource_config = _read_json(path)
            addresses = _own_addresses()
            instance = find_self(resource_config, addresses)
            check_node_type(node_type, instance, resource_config, addresses)
            return instance, resource_config
        except ProvisionError as error:
            if attempt == attempts:
                raise
            if attempt == 1:
                _log("INFO", f"waiting: {error}")
            time.sleep(float(os.environ.get("PROVISION_DELAY_S", "5")))
    raise ProvisionError("PROVISION_ATTEMPTS: must be 1 or more")


def main(cluster_file: str, node_type: str) -> int:
    """Print the steps of this node."""
    if node_type not in NODE_TYPES:
        allowed = ", ".join(NODE_TYPES)
        _log(
            "ERROR",
            f"NODE_TYPE: must be one of {allowed}, got {json.dumps(node_type)}; correct the script that gave it",
        )
        return 2
    try:
        cluster = parse_cluster(_read_json(cluster_file)) if os.path.exists(cluster_file) else None
        path = os.environ.get("SAGEMAKER_RESOURCE_CONFIG_PATH") or RESOURCE_CONFIG
        instance, resource_config = _wait_for_self(path, node_type)
        _log("INFO", f"this node is {instance.name} in the instance group {instance.group}, node type {node_type}")
        if cluster is None:
            _log("INFO", f"there is no {cluster_file}: no step to run")
            return 0
        check_cluster(resource_config, cluster)
        for step in steps_for(cluster):
            print("\t".join((step.script, *step.arguments)))
    except ProvisionError as error:
        _log("ERROR", str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
