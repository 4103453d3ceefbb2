"""Rules of instance groups: each by itself, and all of a cluster together.

Sources: the CreateCluster and ClusterInstanceGroupSpecification pages of the SageMaker API reference; the developer
guide's pages on continuous provisioning for Slurm, on Slurm configuration through the API, on minimum capacity, and on
customer managed keys (smcluster-cmk).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..config.cluster import InstanceGroup, Orchestrator
from ..errors import Finding
from ..facts.instance_types import InstanceType, catalogue, suggestion
from ..typed.judge import check_repeated
from ..typed.known import is_known
from ..typed.words import item_paths, show


def check_groups(
    groups: Sequence[InstanceGroup],
    *,
    orchestrator: Orchestrator,
    node_provisioning_mode: str,
    region: str,
) -> Iterator[Finding]:
    """Everything that is wrong with the groups of one cluster."""
    path = "instance_groups"
    if not isinstance(groups, tuple):
        return
    if not 1 <= len(groups) <= 100:
        yield Finding(path=path, problem=f"there are {len(groups)} groups", remedy="a cluster has 1 to 100")
    paths = item_paths(path, groups)
    known = [(paths[index], group) for index, group in enumerate(groups) if is_known(group)]
    for group_path, group in known:
        yield from _check_types(group, group_path)
        yield from _check_threads(group, group_path)
        yield from _check_counts(group, group_path)
        yield from _check_ebs_volumes(group, group_path)
        yield from check_repeated(group.on_start_deep_health_checks, f"{group_path}.on_start_deep_health_checks")
        yield from _check_region(group, group_path, region)
        yield from _check_capacity(group, group_path)
        if node_provisioning_mode == "standard":
            yield from _check_needs_continuous(group, group_path)
        if orchestrator == "slurm":
            yield from _check_slurm_group(group, group_path)
    names: set[str] = set()
    for group_path, group in known:
        if is_known(group.name) and group.name in names:
            yield Finding(
                path=f"{group_path}.name",
                problem=f"an earlier group has the name {show(group.name)} too",
                remedy="give each group a name of its own",
            )
        names.add(group.name)
    if orchestrator == "slurm" and groups:
        yield from _check_slurm_cluster(groups, known, node_provisioning_mode)
    if orchestrator == "eks" and known and len(known) == len(groups):
        yield from _check_room_for_system_pods(known, node_provisioning_mode)


def _check_room_for_system_pods(
    known: list[tuple[str, InstanceGroup]], node_provisioning_mode: str
) -> Iterator[Finding]:
    """CoreDNS, the operators and Kueue run on the cluster's own nodes, and their add-ons fail where they find none.

    HyperPod gives pods the addresses of a node's first interface, one of which is the node's own: 14 are left on types
    of up to 8 vCPUs (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/AvailableIpPerENI.html), and HyperPod's own
    daemons take several.
    """
    groups = [group for _, group in known]
    known_taints = is_known(tuple(group.taints for group in groups))
    # Those of an autoscaler have a minimum of 0.
    open_to_all = [
        group for group in groups if not known_taints or all(t.effect == "prefer_no_schedule" for t in group.taints)
    ]
    minimums = [group.min_instance_count for group in open_to_all]
    if open_to_all and node_provisioning_mode == "continuous" and is_known(tuple(minimums)) and not any(minimums):
        yield Finding(
            path="instance_groups",
            problem="no group without a taint has a minimum, so the cluster is ready without a node for CoreDNS and the "
            "operators, which may time out before there is one",
            remedy="set min_instance_count on a group without a taint, best one without accelerators",
            level="warning",
            code="no-minimum",
        )
    counts = [group.instance_count for group in open_to_all]
    if open_to_all and node_provisioning_mode == "standard" and is_known(tuple(counts)) and not any(counts):
        yield Finding(
            path="instance_groups",
            problem="no group without a taint has a node, so CoreDNS and the operators find none that takes them",
            remedy="raise instance_count of a group without a taint, best one without accelerators",
            level="warning",
            code="no-open-node",
        )
    if not open_to_all:
        yield Finding(
            path="instance_groups",
            problem="every group has a taint, so CoreDNS and the operators find no node that takes them",
            remedy="leave one group without, best one with a minimum and without accelerators",
            level="warning",
            code="all-tainted",
        )
    for path, group in known:
        small = [kind.name for kind in known_types(group) if kind.vcpus <= _VCPUS_OF_FEW_ADDRESSES]
        if small:
            instance_type = small[0]
            yield Finding(
                path=path,
                problem=f"a node of {instance_type} has addresses for 14 pods at most, those of HyperPod's own daemons included",
                remedy="use a type of 16 vCPUs or more where add-ons or many pods are to run",
                level="warning",
                code="few-pod-addresses",
            )


_VCPUS_OF_FEW_ADDRESSES = 8


def known_types(group: InstanceGroup) -> list[InstanceType]:
    """Those of a group's types that the catalogue has."""
    names = group.all_instance_types
    return [catalogue()[name] for name in names if name in catalogue()] if isinstance(names, tuple) else []


def has_neuron(groups: Sequence[InstanceGroup]) -> bool:
    """Whether any group may have nodes with Neuron devices."""
    known = [group for group in groups if is_known(group)] if isinstance(groups, tuple) else []
    return any(kind.accelerator_kind == "neuron" for group in known for kind in known_types(group))


def _check_types(group: InstanceGroup, path: str) -> Iterator[Finding]:
    if (group.instance_type is None) == (not group.instance_types):
        both = "has both instance_type and instance_types" if group.instance_type else "has no instance_type"
        yield Finding(path=path, problem=both, remedy="give it one of instance_type and instance_types")
    if not isinstance(group.instance_types, tuple):
        return
    if len(group.instance_types) > 20:
        yield Finding(
            path=f"{path}.instance_types",
            problem=f"there are {len(group.instance_types)} types",
            remedy="use at most 20",
        )
    yield from check_repeated(group.instance_types, f"{path}.instance_types")
    for name in dict.fromkeys(group.all_instance_types):
        if is_known(name) and name not in catalogue():
            field = "instance_types" if group.instance_types else "instance_type"
            yield Finding(
                path=f"{path}.{field}",
                problem=f"HyperPod has no instance type {show(name)}",
                remedy=suggestion(name),
            )


def _check_threads(group: InstanceGroup, path: str) -> Iterator[Finding]:
    threads = group.threads_per_core
    if threads is None or not is_known(threads):
        return
    for kind in known_types(group):
        if kind.threads_per_core is not None and threads not in kind.threads_per_core:
            yield Finding(
                path=f"{path}.threads_per_core",
                problem=f"{kind.name} has {' or '.join(map(str, kind.threads_per_core))} thread per core, got {threads}",
                remedy="remove it",
            )


def _check_counts(group: InstanceGroup, path: str) -> Iterator[Finding]:
    if not is_known(group.min_instance_count) or not is_known(group.instance_count):
        return
    if group.min_instance_count > group.instance_count:
        yield Finding(
            path=f"{path}.min_instance_count",
            problem=f"{group.min_instance_count} is more than instance_count, which is {group.instance_count}",
            remedy="lower it, or raise instance_count",
        )


def _check_needs_continuous(group: InstanceGroup, path: str) -> Iterator[Finding]:
    """MinInstanceCount, Spot, InstanceRequirements and keys of yours exist under continuous provisioning only."""
    needs = {
        "min_instance_count": is_known(group.min_instance_count) and group.min_instance_count > 0,
        "spot": group.spot is True,
        "instance_types": bool(group.instance_types),
    }
    for index, volume in enumerate(group.ebs_volumes if isinstance(group.ebs_volumes, tuple) else ()):
        if is_known(volume):
            # An entry for the root volume names its key, and nothing else.
            needs[f"ebs_volumes[{index}].root_volume"] = volume.root_volume is True
            needs[f"ebs_volumes[{index}].volume_kms_key_arn"] = volume.volume_kms_key_arn is not None
    for field, used in needs.items():
        if used:
            yield Finding(
                path=f"{path}.{field}",
                problem="needs continuous provisioning",
                remedy="set node_provisioning_mode to continuous, or remove it",
            )


def _check_ebs_volumes(group: InstanceGroup, path: str) -> Iterator[Finding]:
    path = f"{path}.ebs_volumes"
    if not isinstance(group.ebs_volumes, tuple):
        return
    for kind, is_root in (("root", True), ("second", False)):
        volumes = [volume for volume in group.ebs_volumes if is_known(volume) and volume.root_volume is is_root]
        if len(volumes) > 1:
            yield Finding(path=path, problem=f"there are {len(volumes)} {kind} volumes", remedy="a node has one")
    for index, volume in enumerate(group.ebs_volumes):
        if not is_known(volume) or not is_known(volume.volume_size_gib):
            continue
        if volume.root_volume is True and volume.volume_size_gib is not None:
            yield Finding(
                path=f"{path}[{index}].volume_size_gib",
                problem="HyperPod decides the size of the root volume",
                remedy="remove it",
            )
        if volume.root_volume is False and volume.volume_size_gib is None:
            yield Finding(
                path=f"{path}[{index}].volume_size_gib",
                problem="a second volume needs a size",
                remedy="add volume_size_gib, 1 to 16384",
            )


def _check_region(group: InstanceGroup, path: str, region: str) -> Iterator[Finding]:
    """A training plan and a key serve the region that their ARN names."""
    arns = {f"{path}.training_plan_arn": group.training_plan_arn}
    for index, volume in enumerate(group.ebs_volumes if isinstance(group.ebs_volumes, tuple) else ()):
        if is_known(volume):
            arns[f"{path}.ebs_volumes[{index}].volume_kms_key_arn"] = volume.volume_kms_key_arn
    for arn_path, arn in arns.items():
        if arn is None or not is_known(arn) or not is_known(region):
            continue
        if arn.split(":")[3] != region:
            yield Finding(
                path=arn_path,
                problem=f"is in {show(arn.split(':')[3])}, the cluster in {region}",
                remedy="use one of the cluster's region",
            )


def _check_capacity(group: InstanceGroup, path: str) -> Iterator[Finding]:
    if group.spot is True and group.training_plan_arn is not None:
        yield Finding(
            path=f"{path}.spot",
            problem="a training plan's capacity is not spot",
            remedy="remove spot or training_plan_arn",
        )


def _check_slurm_group(group: InstanceGroup, path: str) -> Iterator[Finding]:
    for field in ("labels", "taints"):
        if getattr(group, field):
            yield Finding(path=f"{path}.{field}", problem="applies only under EKS", remedy="remove it")
    if group.node_type is None:
        yield Finding(
            path=f"{path}.node_type",
            problem="is missing, and Slurm needs it",
            remedy="set it to controller, login or compute",
        )
    if group.node_type == "compute" and group.partition is None:
        yield Finding(
            path=f"{path}.partition",
            problem="a compute group must name its partition",
            remedy="add partition: with a name such as the group's",
        )
    if group.partition is not None and is_known(group.partition) and group.partition.lower() in ("default", "dev"):
        owner = (
            "Slurm takes it for the settings of all partitions"
            if group.partition.lower() == "default"
            else "HyperPod makes it"
        )
        yield Finding(
            path=f"{path}.partition", problem=f"{group.partition} is taken: {owner}", remedy="use another name"
        )
    if group.node_type in ("controller", "login") and group.partition is not None:
        yield Finding(
            path=f"{path}.partition",
            problem=f"a {group.node_type} group has no partition",
            remedy="remove it; only compute groups run jobs",
        )
    if group.node_type == "controller" and group.spot is True:
        yield Finding(
            path=f"{path}.spot",
            problem="when AWS takes a spot controller back, Slurm is gone",
            remedy="remove it",
        )


def _check_slurm_cluster(
    groups: Sequence[InstanceGroup], known: Sequence[tuple[str, InstanceGroup]], node_provisioning_mode: str
) -> Iterator[Finding]:
    of_type = {
        node_type: [(path, group) for path, group in known if group.node_type == node_type]
        for node_type in ("controller", "login")
    }
    # A group whose node type is not known, or missing, may be the one that is missed, so nothing is said then.
    all_known = len(known) == len(groups) and all(group.node_type and is_known(group.node_type) for _, group in known)
    if not of_type["controller"] and all_known:
        yield Finding(
            path="instance_groups",
            problem="no group is the controller",
            remedy="give one group node_type: controller and instance_count: 1",
        )
    for node_type, found in of_type.items():
        if len(found) > 1:
            names = ", ".join(path.removeprefix("instance_groups") for path, _ in found[:5])
            names += ", …" if len(found) > 5 else ""
            yield Finding(
                path="instance_groups",
                problem=f"{len(found)} groups have node_type: {node_type} ({names})",
                remedy=f"keep one {node_type} group",
            )
    for path, group in of_type["controller"]:
        # Multi-head Slurm exists without continuous provisioning only.
        if not is_known(group.instance_count) or group.instance_count == 1:
            continue
        if node_provisioning_mode == "continuous" or group.instance_count < 1:
            yield Finding(
                path=f"{path}.instance_count",
                problem=f"Slurm has one controller node, got {group.instance_count}",
                remedy="set it to 1",
            )
