"""The nodes of the cluster, and what they are, by the files that HyperPod writes on the controller."""

from __future__ import annotations

import functools
import json
import os

from lib import on_node

from .slurm import SlurmError, run_slurm

RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
PROVISIONING_PARAMETERS = "/opt/ml/config/provisioning_parameters.json"
COMPUTE = "a compute node"


def read_instances() -> tuple[dict[str, str], dict[str, str], frozenset[str]]:
    """Instances by id with their addresses; the addresses of controllers and login nodes; those of nodes of no known type."""
    path = os.environ.get("SAGEMAKER_RESOURCE_CONFIG_PATH") or RESOURCE_CONFIG
    try:
        config = json.loads(on_node(path).read_text("utf-8"))
        slurm = config.get("SlurmConfig") or {}
        controllers = [slurm.get("PrimaryControllerIp"), *(slurm.get("SecondaryControllerIps") or ())]
        barred = {address: "a controller" for address in controllers if address}
        kinds = _group_kinds()
        if not barred and "a controller" not in kinds.values():
            # Not besides: the network of HyperPod's agents may overlap the cluster's own, so one of these may be another's.
            barred = dict.fromkeys(own_addresses(), "the agent's own node, a controller")
        instances, untold = {}, set()
        for group in config["InstanceGroups"]:
            kind = kinds.get(group["Name"], "")
            for each in group.get("Instances") or ():
                address = each.get("CustomerIpAddress")
                if address and each.get("InstanceId"):
                    instances[each["InstanceId"]] = address
                    if not kind:
                        untold.add(address)
                    elif kind != COMPUTE:
                        barred.setdefault(address, kind)
        return instances, barred, frozenset(untold)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SlurmError(f"{path} cannot be read: {error!r}") from None


def _group_kinds() -> dict[str, str]:
    """What the nodes of a group are. The file is absent under SlurmConfig, perhaps: nobody has documented it."""
    try:
        found = json.loads(on_node(PROVISIONING_PARAMETERS).read_text("utf-8"))
        workers = {group["instance_group_name"]: COMPUTE for group in found.get("worker_groups") or ()}
        kinds = {"controller_group": "a controller", "login_group": "a login node"}
        return {**workers, **{found[name]: kind for name, kind in kinds.items() if found.get(name)}}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}


@functools.lru_cache(maxsize=1)
def own_addresses() -> frozenset[str]:
    """This node's. Raises SlurmError: without them the agent could drain its own node."""
    try:
        interfaces = json.loads(run_slurm("ip", "-json", "address", "show"))
        return frozenset(one["local"] for each in interfaces for one in each.get("addr_info", ()) if "local" in one)
    except (ValueError, TypeError, AttributeError) as error:
        raise SlurmError(f"`ip -json address show`: {error!r}") from None
