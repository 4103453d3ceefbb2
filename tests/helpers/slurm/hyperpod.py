"""The files that HyperPod lays on a Slurm cluster's nodes, in its own forms. Pure functions of what the cluster is.

resource_config.json and provisioning_parameters.json as awslabs/awsome-distributed-ai reads them (base-config,
detect-node); slurm.conf as HyperPod owns it with SlurmConfig: nodes, partitions, controller, cluster name, TaskPlugin
and SchedulerParameters. What is the tests' own, and not HyperPod's, is marked so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

SlurmVersion = Literal["22.05", "24.11"]
Mode = Literal["extended", "customer_managed"]
"""`lifecycle.mode`: extended runs scripts after HyperPod has set the node up (OnInitComplete), customer_managed runs
them instead (OnCreate)."""
NodeType = Literal["controller", "login", "compute"]

CLUSTER_NAME = "llm-train"
NETWORK = "10.77.0"
SLURM_ETC = "/opt/slurm/etc"
"""Where HyperPod has Slurm's configuration, on the controller alone."""
RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
PROVISIONING_PARAMETERS = "/opt/ml/config/provisioning_parameters.json"


@dataclass(frozen=True)
class Instance:
    """One node, as DescribeClusterNode has it."""

    group: str
    instance_type: str
    node_type: NodeType
    number: int
    """The last part of its address, so of its name too."""
    generation: int = 0
    """How often HyperPod has replaced it."""
    known_as: str = ""
    """Its instance id, where an AWS gave it one; empty: it follows from number and generation."""

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    @property
    def name(self) -> str:
        """Its host name and its name in Slurm."""
        return f"ip-{self.address.replace('.', '-')}"

    @property
    def instance_id(self) -> str:
        return self.known_as or f"i-{self.number * 0x1000 + self.generation:017x}"

    @property
    def agent_address(self) -> str:
        """In the network of HyperPod's agents, which overlaps the VPC: each is the address of another node there."""
        return f"{NETWORK}.{self.number + 1}"

    @property
    def gpus(self) -> int:
        return 8 if self.instance_type == "ml.p5.48xlarge" else 0

    @property
    def neuron_devices(self) -> int:
        return 16 if self.instance_type == "ml.trn1.32xlarge" else 0

    def replaced(self) -> Instance:
        """What HyperPod puts in its place: name and address stay, the id changes."""
        return replace(self, generation=self.generation + 1)


CONTROLLER = Instance("controller", "ml.m5.4xlarge", "controller", 10)
LOGIN = Instance("login", "ml.m5.2xlarge", "login", 11)


def instances(compute: int = 4) -> tuple[Instance, ...]:
    """A controller, a login node and this many compute nodes, the first half P5, the second Trn1."""
    p5 = [Instance("p5", "ml.p5.48xlarge", "compute", 21 + i) for i in range(compute - compute // 2)]
    trn1 = [Instance("trn1", "ml.trn1.32xlarge", "compute", 31 + i) for i in range(compute // 2)]
    return (CONTROLLER, LOGIN, *p5, *trn1)


def resource_config(nodes: Iterable[Instance], cluster_name: str = CLUSTER_NAME) -> dict[str, Any]:
    """resource_config.json."""
    groups: dict[str, dict[str, Any]] = {}
    for node in nodes:
        group = groups.setdefault(node.group, {"Name": node.group, "InstanceType": node.instance_type, "Instances": []})
        group["Instances"].append(
            {
                "InstanceName": f"{node.group}-{len(group['Instances']) + 1}",
                "AgentIpAddress": node.agent_address,
                "CustomerIpAddress": node.address,
                "InstanceId": node.instance_id,
            }
        )
    return {
        "ClusterConfig": {
            "ClusterName": cluster_name,
            "ClusterArn": "arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghijkl",
        },
        "ClusterType": "Slurm",
        "SlurmConfig": {"PrimaryControllerIp": CONTROLLER.address, "SecondaryControllerIps": []},
        "InstanceGroups": list(groups.values()),
    }


def provisioning_parameters(nodes: Sequence[Instance]) -> dict[str, Any]:
    """provisioning_parameters.json."""
    workers = dict.fromkeys(node.group for node in nodes if node.node_type == "compute")
    return {
        "version": "1.0.0",
        "workload_manager": "slurm",
        "controller_group": CONTROLLER.group,
        "login_group": LOGIN.group,
        "worker_groups": [{"instance_group_name": group, "partition_name": group} for group in workers],
    }


def slurm_conf(nodes: Sequence[Instance], *, accounting: bool, extra: str = "") -> str:
    """slurm.conf. `accounting`: with HyperPod's lines for the accounting database of the controller.

    `extra`: lines at its end, such as what a person added under SlurmConfigStrategy Merge.
    """
    workers = [node for node in nodes if node.node_type != "controller"]
    partitions = dict.fromkeys(node.group for node in workers if node.node_type == "compute")
    lines = [
        f"ClusterName={CLUSTER_NAME}",
        f"SlurmctldHost={CONTROLLER.name}({CONTROLLER.address})",
        "SlurmUser=slurm",
        "SlurmctldParameters=enable_configless",
        "StateSaveLocation=/var/spool/slurmctld",
        "SlurmdSpoolDir=/var/spool/slurmd",
        "SlurmctldPidFile=/var/run/slurmctld.pid",
        "SlurmdPidFile=/var/run/slurmd.pid",
        "SlurmctldLogFile=/var/log/slurm/slurmctld.log",
        "SlurmdLogFile=/var/log/slurm/slurmd.log",
        "TaskPlugin=task/none",
        "SchedulerParameters=permit_job_expansion,batch_sched_delay=0,sched_interval=2,bf_interval=2",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "GresTypes=gpu",
        "ReturnToService=2",
        "JobRequeue=1",
        "MpiDefault=none",
        "DefMemPerCPU=100",  # the tests' own: a job without --mem would take a whole node's memory
        # The tests' own: fake hardware, no control groups, and a dead node is noticed within seconds.
        "ProctrackType=proctrack/linuxproc",
        "SlurmdParameters=config_overrides",
        "SlurmdTimeout=10",
        "KillWait=2",
        *(
            [
                "AccountingStorageType=accounting_storage/slurmdbd",
                f"AccountingStorageHost={CONTROLLER.address}",
                "JobAcctGatherType=jobacct_gather/linux",
                "JobAcctGatherFrequency=1",
                "AccountingStorageTRES=gres/gpu",
            ]
            if accounting
            else []
        ),
        *(
            f"NodeName={node.name} NodeAddr={node.address} CPUs=96 RealMemory=200000 "
            f"{f'Gres=gpu:h100:{node.gpus} ' if node.gpus else ''}State=UNKNOWN"
            for node in workers
        ),
        *(
            f"PartitionName={group} Nodes={','.join(node.name for node in workers if node.group == group)} State=UP"
            for group in partitions
        ),
        # HyperPod puts every node there, the login node too.
        f"PartitionName=dev Nodes={','.join(node.name for node in workers)} Default=YES MaxTime=INFINITE State=UP",
    ]
    return "\n".join(lines) + f"\n{extra}"


def gres_conf(nodes: Iterable[Instance]) -> str:
    """gres.conf."""
    return "".join(
        f"NodeName={node.name} Name=gpu Type=h100 File=/dev/nvidia[0-{node.gpus - 1}]\n" for node in nodes if node.gpus
    )


def cgroup_conf(slurm: SlurmVersion) -> str:
    """cgroup.conf: the tests' own, since a test's nodes cannot have control groups of Slurm's."""
    return "CgroupPlugin=cgroup/v1\n" if slurm == "22.05" else "CgroupPlugin=disabled\n"
