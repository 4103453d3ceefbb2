#!/usr/bin/env python3
"""Find out which node this is, and run the steps that it needs. Usage: provision.py CLUSTER_FILE NODE_TYPE [STEP].

It logs to stderr. Exit code 1: it does not know which node this is, the node is not of type NODE_TYPE, or a step failed. The
last line then starts with the time and ERROR, and says why and what to do. The steps after a failed step do not run.
Exit code 2: NODE_TYPE or STEP is unknown.

It reads two files. resource_config.json is HyperPod's: the cluster, its instance groups and their instances with
addresses, and no node types except where the controller is. CLUSTER_FILE (cluster.json) is uploaded with the scripts and
has the settings of this cluster for every node. Without it no step runs:

    {"cluster_name": "llm-train", "checksums": true, "mounts": [{"path": "/fsx", "type": "lustre"}], "steps": {"slurm": true},
     "groups": [{"name": "research", "gid": 5000}],
     "users": [{"name": "alice", "uid": 5001, "group": "research", "home": "/fsx/home/alice"}],
     "accounts": [{"name": "research", "users": ["alice"], "grp_gpus": 64}]}

It names no instance group: the scripts' S3 prefix is a hash of all that is uploaded with them, and a new group must not change
the prefix of the other groups. So NODE_TYPE comes from the script that the group's LifeCycleConfig names.

Only the standard library, and nothing newer than Python 3.8: that is what nodes with Ubuntu 20.04 have.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
"""Where HyperPod puts the file unless SAGEMAKER_RESOURCE_CONFIG_PATH says otherwise."""
NODE_TYPES = ("controller", "login", "compute")
"""The values of SlurmConfig.NodeType, in lower case. Each has a script of that name, which LifeCycleConfig names."""
STEPS = (
    "mounts",
    "efa",
    "clock",
    "users",
    "keep_state",
    "slurm",
    "metadata",
    "slurm_conf",
    "accounting",
    "drain",
    "access",
    "upgrades",
    "system",
    "container_data",
    "checks",
)
"""All steps, in the order in which they run. cluster.json may switch off each of them."""
OWN_SCRIPTS = ("scripts_before", "scripts_after")
"""The steps that run the user's own scripts, before and after all others. They have no switch."""
NEEDS = {"accounting": "slurm_conf", "users": "metadata"}
"""The step that runs with a step that is run alone: limits have no effect if slurm.conf does not enforce them, and a new user must not
get the controller's role."""
CLOSED, LINES = "02_closed.py", "35_slurm_conf.py"
REFUSED = "refused"
"""The last argument of LINES after scripts_after: lines that need what those install are tried again."""
BATCH_START_S = 10
"""Slurm's BatchStartTimeout without anything else."""
QOS_WEIGHT = "1000"
"""PriorityWeightQOS, unless slurm.conf has another one."""
STATE_FOLDER = ".cdk-hyperpod-controller"
"""The folder in the shared file system that has a folder of copies for each cluster."""
MOUNT_PATH = re.compile(r"(/[A-Za-z0-9._-]+)+")
HERE = os.path.dirname(os.path.abspath(__file__))
FILE_SYSTEM_TYPE = re.compile(r"[a-z0-9.]+")


class ProvisionError(Exception):
    """The node cannot be provisioned. The message says why, and what to do."""


@dataclass(frozen=True)
class Instance:
    """This node, as resource_config.json has it."""

    group: str
    name: str
    """The instance id. If the file has none, HyperPod's name for the instance."""
    addresses: frozenset[str]
    """All addresses in HyperPod's file. The node may not have all of them itself: HyperPod's agent may have a network of its own."""
    customer_address: str | None = None
    """Its address in the cluster's own network."""
    type: str = ""
    """Its instance type. Empty: HyperPod's file does not have it."""


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
    off: frozenset[str] = frozenset()
    """The steps that are switched off."""
    has_accounts: bool = False
    limits_gpus: bool = False
    """An account limits GPUs. Slurm counts them only if slurm.conf says so."""
    drains: bool = False
    """The controller has a drain agent."""
    slurm: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The settings of `slurm` about partitions, QOS, own lines and programs around jobs. Empty: the file has none."""
    uses_qos: bool = False
    """An account names QOS."""
    file: str = "cluster.json"
    """The path of the file, which some steps read themselves."""
    efa: bool = False
    """The Lustre file system is made for EFA."""
    keeps_state: bool = False
    """The controller's state is copied to the first of the mounts."""
    own_scripts: tuple[str, ...] = ()
    """Those of OWN_SCRIPTS that have scripts."""
    region: str = ""
    """The AWS region. Empty: the file has no own scripts, which alone need it."""


@dataclass(frozen=True)
class Node:
    """The facts that decide which steps this node needs."""

    type: str
    """One of NODE_TYPES."""
    instance: Instance
    controllers: tuple[str, ...] = ()
    """The addresses of the controllers. Empty: HyperPod's file does not have them."""


@dataclass(frozen=True)
class Step:
    """One of STEPS: a script in steps/ and its arguments."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()

    def with_argument(self, more: str) -> Step:
        return dataclasses.replace(self, arguments=(*self.arguments, more))


def steps_for(cluster: Cluster, node: Node) -> tuple[Step, ...]:
    """The steps of a node, in the order in which they run."""
    settings = slurm_settings(cluster)
    closed = closed_step(cluster, node, settings)
    first = closed if "slurm_conf" not in cluster.off else ()
    steps = _library_steps(cluster, node, settings, closed, first)
    before, after = (own_step(name, cluster, node) for name in OWN_SCRIPTS)
    ours = [step for step in steps if step is not None and step.name not in cluster.off]
    again = [step.with_argument(REFUSED) for step in ours if after and step.script == LINES]
    # Before the first job, which slurmd may start while the other steps run. The same step lets users in who exist later.
    early = [step.with_argument("first") for step in ours if step.name == "metadata"]
    return (*first, *early, *before, *ours, *after, *again)


def _library_steps(
    cluster: Cluster, node: Node, settings: Mapping[str, Any], closed: Sequence[Step], first: Sequence[Step]
) -> list[Step | None]:
    """A new step is a name in STEPS, a line here and a script."""
    controller = node.controllers[0] if node.controllers else "-"
    mounts = tuple(word for mount in cluster.mounts for word in (mount.path, mount.type))
    return [
        Step("mounts", "10_verify_mounts.sh", mounts) if mounts else None,
        efa_step(cluster, node),
        Step("clock", "15_clock.py"),
        Step("users", "30_users.py", (cluster.file,)),
        # slurmctld deletes a reservation whose users the node does not know.
        *state_step(cluster, node, "restore", *(["closed"] if first else [])),
        Step("slurm", "20_slurm.py", (node.type, controller)),
        *closed,
        Step("metadata", "32_metadata.py", (cluster.file, node.type)),
        *(_controller_steps(cluster, settings) if node.type == "controller" else _hooks_step(cluster)),
        *state_step(cluster, node, "keep"),
        Step("access", "50_access.py", (node.type,)) if node.type != "controller" else None,
        Step("upgrades", "55_upgrades.py"),
        Step("system", "60_system.py", (node.type,)),
        Step("container_data", "65_container_data.py", (cluster.file,)),
        Step("checks", "70_checks.py", (node.type, node.instance.type or "-")),
    ]


def closed_step(cluster: Cluster, node: Node, settings: Mapping[str, Any]) -> tuple[Step, ...]:
    """What keeps jobs from starting before the step slurm_conf has run: first of all, and once more when slurmctld surely runs."""
    if node.type != "controller" or not (settings or cluster.slurm):
        return ()
    return (Step("slurm_conf", CLOSED),)


def state_step(cluster: Cluster, node: Node, *work: str) -> tuple[Step, ...]:
    """The step that restores or keeps the controller's state. Empty: this is no controller, or there is no shared file system."""
    if node.type != "controller" or not cluster.keeps_state or not cluster.mounts:
        return ()
    folder = f"{cluster.mounts[0].path}/{STATE_FOLDER}/{cluster.name}"
    return (Step("keep_state", "17_keep_state.py", (folder, *work)),)


def efa_step(cluster: Cluster, node: Node) -> Step | None:
    """The step that makes Lustre use EFA. None: its file system is not made for it."""
    if not cluster.efa:
        return None
    paths = (mount.path for mount in cluster.mounts if mount.type == "lustre")
    return Step("efa", "12_efa.py", ("configure", node.instance.type or "-", *paths))


def own_step(name: str, cluster: Cluster, node: Node) -> tuple[Step, ...]:
    """The step that runs the user's own scripts. Empty: there are none."""
    if name not in cluster.own_scripts:
        return ()
    facts = json.dumps(facts_for_scripts(cluster, node), sort_keys=True)
    return (Step(name, "05_own_scripts.py", (name, facts, cluster.file)),)


def facts_for_scripts(cluster: Cluster, node: Node) -> dict[str, str]:
    """The environment of the user's own scripts (docs/own-scripts.md). What HyperPod's file does not have is empty."""
    instance = node.instance
    facts = {
        "CLUSTER_NAME": cluster.name,
        "REGION": cluster.region,
        "INSTANCE_GROUP": instance.group,
        "INSTANCE_TYPE": instance.type,
        "INSTANCE_ID": instance.name,
        "NODE_TYPE": node.type,
        "NODE_ADDRESS": instance.customer_address or "",
        "CONTROLLER_ADDRESSES": " ".join(node.controllers),
        "MOUNT_PATHS": " ".join(mount.path for mount in cluster.mounts),
    }
    # The AWS CLI and SDKs read the region from these.
    names = {"AWS_REGION": cluster.region, "AWS_DEFAULT_REGION": cluster.region}
    return {**{f"HYPERPOD_{name}": value for name, value in facts.items()}, **names}


def _hooks_step(cluster: Cluster) -> Iterable[Step]:
    if cluster.slurm.get("prolog") or cluster.slurm.get("epilog"):
        yield Step("slurm_conf", "34_hooks.py", (cluster.file,))


def _controller_steps(cluster: Cluster, settings: Mapping[str, list[str] | str]) -> Iterable[Step]:
    if settings or cluster.slurm:
        yield Step("slurm_conf", LINES, (json.dumps(settings, sort_keys=True), cluster.file))
    if cluster.has_accounts or cluster.slurm.get("qos") or _limits_partitions(cluster):
        yield Step("accounting", "40_accounting.py", (cluster.file,))
    if cluster.drains:
        yield Step("drain", "45_drain.py", (cluster.file,))


def _limits_partitions(cluster: Cluster) -> bool:
    return any(each.get("allow_accounts") for each in cluster.slurm.get("partitions", {}).values())


def slurm_settings(cluster: Cluster) -> dict[str, list[str] | str]:
    """The settings of slurm.conf that the steps need, unless they are switched off. A list is added to what slurm.conf has."""
    settings: dict[str, list[str] | str] = {}
    if "access" not in cluster.off:
        # pam_slurm_adopt puts a login into the job's own step, which Slurm makes with this only.
        settings["PrologFlags"] = ["Contain"]
    if "system" not in cluster.off:
        # Else a job gets the limits of the shell that submitted it.
        settings["PropagateResourceLimitsExcept"] = ["MEMLOCK", "NOFILE"]
    if cluster.has_accounts and "accounting" not in cluster.off:
        settings["AccountingStorageEnforce"] = ["associations", "limits", *(["qos"] if cluster.uses_qos else [])]
        if cluster.limits_gpus:
            settings["AccountingStorageTRES"] = ["gres/gpu"]
    if cluster.slurm.get("prolog"):
        # Slurm requeues a batch job that has not begun by then, and it begins after the Prolog.
        seconds = int(cluster.slurm["hook_seconds"]) * int(cluster.slurm["prolog"])
        settings["BatchStartTimeout"] = str(BATCH_START_S + seconds)
    if "accounting" not in cluster.off:
        settings.update(_qos_settings(cluster.slurm.get("qos", ())))
    return settings


def _qos_settings(qos: Iterable[Mapping[str, Any]]) -> dict[str, list[str] | str]:
    """What makes priorities and preemption of QOS work."""
    settings: dict[str, list[str] | str] = {}
    if any("priority" in each for each in qos):
        settings["PriorityType"] = "priority/multifactor"
        settings["PriorityWeightQOS"] = QOS_WEIGHT
    if any(each.get("preempts") for each in qos):
        settings["PreemptType"] = "preempt/qos"
        settings["PreemptMode"] = "REQUEUE"
    return settings


def parse_cluster(content: Any) -> Cluster:
    """Check cluster.json, so that nothing wrong in it shows on a node as a step that was left out."""
    content = _mapping("its content", content)
    accounts = _list("accounts", content.get("accounts", []))
    if content.get("metadata_users") is not None:
        _list("metadata_users", content["metadata_users"])
    drain = content.get("drain")
    if drain is not None:
        _check_drain(_mapping("drain", drain))
    off = _switched_off(_mapping("steps", content.get("steps", {})))
    mounts = _list("mounts", content.get("mounts", []))
    return Cluster(
        name=_text("cluster_name", content.get("cluster_name")),
        mounts=tuple(_parse_mount(f"mounts[{i}]", mount) for i, mount in enumerate(mounts)),
        off=off,
        has_accounts=bool(accounts),
        limits_gpus=any("grp_gpus" in account for account in accounts if isinstance(account, dict)),
        drains=drain is not None,
        efa=content.get("lustre_efa") is True,
        keeps_state=content.get("keep_state") is True,
        **_parse_own_scripts(content.get("own_scripts")),
        slurm=_mapping("slurm", content.get("slurm", {})),
        uses_qos=any(account.get("qos") for account in accounts if isinstance(account, dict)),
    )


def _parse_own_scripts(own: Any) -> dict[str, Any]:
    if own is None:
        return {}
    own = _mapping("own_scripts", own)
    names = _list("own_scripts.scripts", own.get("scripts"))
    region = _text("own_scripts.region", own.get("region"))
    return {"own_scripts": tuple(name for name in OWN_SCRIPTS if name in names), "region": region}


def _check_drain(drain: Mapping[str, Any]) -> None:
    for name in ("bucket", "region"):
        if not isinstance(drain.get(name), str):
            raise ProvisionError(f"cluster.json: drain: must name bucket and region, got {json.dumps(drain)}")


def _switched_off(switches: Mapping[str, Any]) -> frozenset[str]:
    for name, switch in switches.items():
        if not isinstance(switch, bool):
            raise ProvisionError(f"cluster.json: steps.{name}: must be true or false, got {json.dumps(switch)}")
    return frozenset(name for name, switch in switches.items() if not switch)


def find_self(resource_config: Any, addresses: frozenset[str]) -> Instance:
    """The instance that has one of this node's addresses.

    It never guesses: a node that takes itself for another one would start the wrong daemons. The network of HyperPod's agents may
    overlap the cluster's own. Then one node's AgentIpAddress is another node's CustomerIpAddress, perhaps of a node that is not
    listed yet. So an AgentIpAddress counts only for an instance without CustomerIpAddress, and only if no other instance matches.
    """
    try:
        instances = _instances_with(addresses, resource_config)
    except (KeyError, TypeError, AttributeError) as error:
        raise _unknown_form(error) from error
    by_customer_address = {instance for instance in instances if instance.customer_address in addresses}
    found = by_customer_address or instances
    own = ", ".join(sorted(addresses)) or "none"
    if not found:
        raise ProvisionError(
            f"no instance in resource_config.json has an address of this node ({own}); "
            "compare them with CustomerIpAddress there, and AgentIpAddress of instances without one"
        )
    if len(found) > 1:
        names = ", ".join(sorted(f"{instance.name} in {instance.group}" for instance in found))
        raise ProvisionError(
            f"more than one instance in resource_config.json has an address of this node ({own}): {names}"
        )
    return found.pop()


def _instances_with(addresses: frozenset[str], resource_config: Any) -> set[Instance]:
    found = set()
    for group in resource_config["InstanceGroups"]:
        for instance in group.get("Instances") or ():
            if addresses & _telling_addresses(instance):
                found.add(_parse_instance(group, instance))
    return found


def _parse_instance(group: Mapping[str, Any], instance: Mapping[str, Any]) -> Instance:
    return Instance(
        group=group["Name"],
        name=instance.get("InstanceId") or instance["InstanceName"],
        addresses=_known_addresses(instance),
        customer_address=instance.get("CustomerIpAddress"),
        type=group.get("InstanceType") or "",
    )


def controllers_in(resource_config: Mapping[str, Any]) -> tuple[str, ...]:
    """The controllers' addresses, the primary one first. Empty: HyperPod's file does not have them.

    A cluster with several controllers has SecondaryControllerIps.
    """
    try:
        slurm = resource_config.get("SlurmConfig") or {}
        if not slurm.get("PrimaryControllerIp"):
            return ()
        found = (slurm["PrimaryControllerIp"], *(slurm.get("SecondaryControllerIps") or ()))
    except (TypeError, AttributeError) as error:
        raise _unknown_form(error) from error
    if not all(isinstance(address, str) for address in found):
        raise _unknown_form(TypeError("an address that is no text"))
    return found


def check_node_type(
    node_type: str, instance: Instance, resource_config: Mapping[str, Any], addresses: frozenset[str]
) -> None:
    """Raise ProvisionError if NODE_TYPE is controller and HyperPod has the controller on another node, or the reverse."""
    controllers = controllers_in(resource_config)
    if not controllers:
        return
    own = addresses | instance.addresses
    if _is_controller(instance, controllers, own, resource_config) != (node_type == "controller"):
        raise ProvisionError(
            f"LifeCycleConfig of the instance group {instance.group!r} says {node_type}, but HyperPod says the "
            f"controller is {', '.join(controllers)} (SlurmConfig in resource_config.json), and this node has the "
            f"addresses {', '.join(sorted(own))}; correct LifeCycleConfig of the group"
        )


def _is_controller(
    instance: Instance, controllers: Iterable[str], own: frozenset[str], resource_config: Mapping[str, Any]
) -> bool:
    customers = _customer_addresses(resource_config)
    for address in controllers:
        if address == instance.customer_address:
            return True
        # An address of the cluster's own network is that of one node, even if an agent of another has the same.
        if address not in customers and address in own:
            return True
    return False


def check_cluster(resource_config: Mapping[str, Any], cluster: Cluster) -> None:
    """Raise ProvisionError for the scripts of another cluster."""
    named = resource_config.get("ClusterConfig")
    if not isinstance(named, dict):
        return
    name = named.get("ClusterName", cluster.name)
    if name != cluster.name:
        raise ProvisionError(
            f"these scripts belong to the cluster {cluster.name!r}, and this node is in {name!r}; "
            "correct SourceS3Uri of its instance group"
        )


def addresses_in(interfaces: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The addresses in the output of `ip -json address show` that other machines can reach: no loopback, no link-local."""
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


def _telling_addresses(instance: Mapping[str, Any]) -> frozenset[str]:
    """The addresses that identify the instance: CustomerIpAddress, and AgentIpAddress only without it."""
    customer = instance.get("CustomerIpAddress")
    return frozenset({customer}) if customer else _known_addresses(instance)


def _customer_addresses(resource_config: Mapping[str, Any]) -> frozenset[str]:
    groups = resource_config.get("InstanceGroups") or ()
    instances = (instance for group in groups for instance in group.get("Instances") or ())
    return frozenset(instance["CustomerIpAddress"] for instance in instances if instance.get("CustomerIpAddress"))


def _unknown_form(error: Exception) -> ProvisionError:
    return ProvisionError(f"resource_config.json does not have HyperPod's form: {error!r}")


def _parse_mount(path: str, value: Any) -> Mount:
    content = _mapping(path, value)
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


def _list(path: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ProvisionError(f"cluster.json: {path}: must be a list, got {json.dumps(value)}")
    return value


def _text(path: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ProvisionError(f"cluster.json: {path}: must be text, got {json.dumps(value)}")
    return value


def log(level: str, message: str) -> None:
    """One line of the log."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {level} provision.py: {message}", file=sys.stderr)


def read_cluster(path: str) -> Cluster:
    """cluster.json. Raises ProvisionError."""
    return dataclasses.replace(parse_cluster(read_json(path)), file=os.path.abspath(path))


def read_json(path: str) -> Any:
    """The content of a JSON file. Raises ProvisionError."""
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


def wait_for_self(path: str, node_type: str) -> tuple[Instance, Any]:
    """Find this node in resource_config.json, check its type, and return it with the file's content.

    It is read again for a minute. Under continuous provisioning HyperPod may write the file while nodes still join, and after a
    controller was replaced, the file may have the old address at first.
    """
    attempts = int(os.environ.get("PROVISION_ATTEMPTS", "12"))
    for attempt in range(1, attempts + 1):
        try:
            resource_config = read_json(path)
            addresses = _own_addresses()
            instance = find_self(resource_config, addresses)
            check_node_type(node_type, instance, resource_config, addresses)
            return instance, resource_config
        except ProvisionError as error:
            if attempt == attempts:
                raise
            if attempt == 1:
                log("INFO", f"waiting: {error}")
            time.sleep(float(os.environ.get("PROVISION_DELAY_S", "5")))
    raise ProvisionError("PROVISION_ATTEMPTS: must be 1 or more")


def _run(step: Step, *, alone: bool) -> tuple[int, str]:
    """Run a step, and pass on its output. Returns its exit code and its last error message.

    `alone`: somebody asked for this step, and reads what it says. Then a step may fail at what is a warning on a new node.
    """
    script = os.path.join(HERE, "steps", step.script)
    # By the interpreter and not by the file's mode: S3 does not keep modes.
    interpreter = [sys.executable, "-B"] if step.script.endswith(".py") else ["bash"]
    environment = {**os.environ, "PYTHONPATH": HERE, **({"PROVISION_ALONE": "1"} if alone else {})}
    told = ""
    with subprocess.Popen(
        [*interpreter, script, *step.arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            if " ERROR " in line:
                told = line.split(": ", 1)[-1].strip()
    return process.returncode, told


def run_all(steps: Iterable[Step], node_type: str, *, alone: bool = False) -> int:
    """Run the steps up to the first that fails. Log which step failed, why, and what to do. Returns the exit code."""
    for step in steps:
        log("INFO", f"step {step.name}: {' '.join((step.script, *step.arguments))}")
        code, told = _run(step, alone=alone)
        if code != 0:
            how = f"failed with exit code {code}" if code > 0 else f"was ended by signal {-code}"
            again = f"bash {os.path.join(HERE, node_type)}.sh"
            log("ERROR", f"step {step.name} {how}: {told or 'see above'}; then run `{again}` again on this node")
            return code if code > 0 else 128 - code
    return 0


def main(cluster_file: str, node_type: str, only: str | None = None) -> int:
    """Run the steps of this node, or one of them with the one that it needs. The exit code."""
    if not _is_allowed("NODE_TYPE", node_type, NODE_TYPES):
        return 2
    if only is not None and not _is_allowed("STEP", only, (*STEPS, *OWN_SCRIPTS)):
        return 2
    try:
        steps = _steps_of_this_node(cluster_file, node_type)
    except ProvisionError as error:
        log("ERROR", str(error))
        return 1
    if only is not None and steps is not None:
        steps = _only_step(only, steps, node_type)
    return run_all(steps or (), node_type, alone=only is not None)


def _is_allowed(name: str, value: str, allowed: Sequence[str]) -> bool:
    if value in allowed:
        return True
    words = ", ".join(allowed)
    log("ERROR", f"{name}: must be one of {words}, got {json.dumps(value)}; correct the script that gave it")
    return False


def _steps_of_this_node(cluster_file: str, node_type: str) -> tuple[Step, ...] | None:
    """None: there is no cluster file. Raises ProvisionError."""
    cluster = None
    if os.path.exists(cluster_file):
        cluster = read_cluster(cluster_file)
    path = os.environ.get("SAGEMAKER_RESOURCE_CONFIG_PATH") or RESOURCE_CONFIG
    instance, resource_config = wait_for_self(path, node_type)
    log("INFO", f"this node is {instance.name} in the instance group {instance.group}, node type {node_type}")
    if cluster is None:
        log("INFO", f"there is no {cluster_file}: no step to run")
        return None
    check_cluster(resource_config, cluster)
    return steps_for(cluster, Node(node_type, instance, controllers_in(resource_config)))


def _only_step(only: str, steps: tuple[Step, ...], node_type: str) -> tuple[Step, ...]:
    """The step, with the step that it needs. Empty: this node does not have the step."""
    if only not in {step.name for step in steps}:
        why = "switched off, or of no use" if only in STEPS else "without scripts of yours"
        log("INFO", f"this node has no step {only}: it is {why} on a {node_type} node")
        return ()
    # What happens around other steps belongs to a whole run.
    whole = {step for step in steps if step.script == CLOSED or step.arguments[-1:] == (REFUSED,)}
    return tuple(_alone(step) for step in steps if step.name in (only, NEEDS.get(only)) and step not in whole)


def _alone(step: Step) -> Step:
    """A step that is run alone, perhaps on a node with jobs."""
    if step.name == "efa":
        return dataclasses.replace(step, arguments=("verify", *step.arguments[1:]))
    return step


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
