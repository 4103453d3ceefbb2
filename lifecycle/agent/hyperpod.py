"""The nodes of the cluster and their types, from the files that HyperPod writes on the controller."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from lib import on_node

from .slurm import SlurmError, run_slurm

RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
PROVISIONING_PARAMETERS = "/opt/ml/config/provisioning_parameters.json"
COMPUTE = "a compute node"


class Instances(NamedTuple):
    """What HyperPod's files say of the cluster's nodes."""

    addresses: dict[str, str]
    """By instance id."""
    never_drained: dict[str, str]
    """Address -> what the node is: a controller, or a login node."""
    unknown_types: frozenset[str]
    """Addresses of nodes whose type no file has."""


def read_instances() -> Instances:
    """Read the files. Raises SlurmError."""
    path = os.environ.get("SAGEMAKER_RESOURCE_CONFIG_PATH") or RESOURCE_CONFIG
    try:
        config = json.loads(on_node(path).read_text("utf-8"))
        return _parse_instances(config, _group_kinds())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SlurmError(f"{path} cannot be read: {error!r}") from None


def _parse_instances(config: Any, kinds: Mapping[str, str]) -> Instances:
    found = Instances({}, _find_controllers(config, kinds), frozenset())
    unknown_types = set()
    for group in config["InstanceGroups"]:
        kind = kinds.get(group["Name"], "")
        for instance in group.get("Instances") or ():
            address = instance.get("CustomerIpAddress")
            if not address or not instance.get("InstanceId"):
                continue
            found.addresses[instance["InstanceId"]] = address
            if not kind:
                unknown_types.add(address)
            elif kind != COMPUTE:
                found.never_drained.setdefault(address, kind)
    return found._replace(unknown_types=frozenset(unknown_types))


def _find_controllers(config: Any, kinds: Mapping[str, str]) -> dict[str, str]:
    """The controllers' addresses, as SlurmConfig has them."""
    slurm = config.get("SlurmConfig") or {}
    addresses = [slurm.get("PrimaryControllerIp"), *(slurm.get("SecondaryControllerIps") or ())]
    found = {address: "a controller" for address in addresses if address}
    if found or "a controller" in kinds.values():
        return found
    # Only if no file has the controllers: the network of HyperPod's agents may overlap the cluster's own, so one of this
    # node's addresses may be another node's.
    return dict.fromkeys(own_addresses(), "the agent's own node, a controller")


def _group_kinds() -> dict[str, str]:
    """What the nodes of each group are. Under SlurmConfig the file may be absent: it is not documented."""
    try:
        found = json.loads(on_node(PROVISIONING_PARAMETERS).read_text("utf-8"))
        workers = {group["instance_group_name"]: COMPUTE for group in found.get("worker_groups") or ()}
        kinds = {"controller_group": "a controller", "login_group": "a login node"}
        return {**workers, **{found[name]: kind for name, kind in kinds.items() if found.get(name)}}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}


@functools.lru_cache(maxsize=1)
def own_addresses() -> frozenset[str]:
    """This node's addresses. Raises SlurmError: without them the agent could drain its own node."""
    try:
        interfaces = json.loads(run_slurm("ip", "-json", "address", "show"))
        return frozenset(one["local"] for each in interfaces for one in each.get("addr_info", ()) if "local" in one)
    except (ValueError, TypeError, AttributeError) as error:
        raise SlurmError(f"`ip -json address show`: {error!r}") from None
