"""Rules of instance groups: of each group, and of all groups of a cluster.

Sources: the CreateCluster and ClusterInstanceGroupSpecification pages of the SageMaker API reference; the developer
guide's pages on continuous provisioning for Slurm, on Slurm configuration through the API, on minimum capacity, and on
customer managed keys (smcluster-cmk).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..config.cluster import InstanceGroup, Orchestrator
from ..errors import Finding
from ..facts.instance_types import InstanceType, catalogue, suggestion
from ..typed.known import is_known
from ..typed.validation import check_repeated
from ..typed.words import item_paths, show
from .patching import check_patching
from .wording import EKS_ONLY


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
        yield Finding(
            code="groups-wrong-number", path=path, problem=f"there are {len(groups)} groups", remedy="use 1 to 100"
        )
    paths = item_paths(path, groups)
    known = [(paths[index], group) for index, group in enumerate(groups) if is_known(group)]
    for group_path, group in known:
        yield from _check_group(group, group_path, region)
        yield from check_patching(group, group_path, orchestrator=orchestrator)
        if node_provisioning_mode == "standard":
            yield from _check_needs_continuous(group, group_path)
        if orchestrator == "slurm":
            yield from _check_slurm_group(group, group_path)
    yield from _check_names(known)
    if orchestrator == "slurm" and groups:
        yield from _check_slurm_cluster(groups, known, node_provisioning_mode)
    if orchestrator == "eks" and known and len(known) == len(groups):
        yield from _check_room_for_system_pods(known, node_provisioning_mode)


def _check_group(group: InstanceGroup, path: str, region: str) -> Iterator[Finding]:
    yield from _check_types(group, path)
    yield from _check_threads(group, path)
    yield from _check_counts(group, path)
    yield from _check_ebs_volumes(group, path)
    yield from check_repeated(group.on_start_deep_health_checks, f"{path}.on_start_deep_health_checks")
    yield from _check_region(group, path, region)
    yield from _check_capacity(group, path)


def _check_names(known: Sequence[tuple[str, InstanceGroup]]) -> Iterator[Finding]:
    names: set[str] = set()
    for path, group in known:
        if is_known(group.name) and group.name in names:
            yield Finding(
                code="group-name-duplicated",
                path=f"{path}.name",
                problem=f"the group name {show(group.name)} is duplicated",
                remedy="give each group a name of its own",
            )
        names.add(group.name)


def _check_room_for_system_pods(
    known: Sequence[tuple[str, InstanceGroup]], node_provisioning_mode: str
) -> Iterator[Finding]:
    """Warn if CoreDNS, the operators and Kueue may find no node: they run on the cluster's own nodes, and their add-ons fail
    without one."""
    groups = [group for _, group in known]
    open_groups = _open_groups(groups)
    if not open_groups:
        yield from _warn_of_taints()
    elif node_provisioning_mode == "continuous":
        yield from _check_a_minimum(open_groups)
    elif node_provisioning_mode == "standard":
        yield from _check_a_count(open_groups)
    yield from _check_pod_addresses(known)


def _open_groups(groups: Sequence[InstanceGroup]) -> Sequence[InstanceGroup]:
    """The groups whose nodes take every pod; all groups if some taints are not known."""
    if not is_known(tuple(group.taints for group in groups)):
        return groups
    return [group for group in groups if all(taint.effect == "prefer_no_schedule" for taint in group.taints)]


def _warn_of_taints() -> Iterator[Finding]:
    yield Finding(
        code="groups-all-tainted",
        path="instance_groups",
        problem="every group has a taint, so no node accepts CoreDNS and the operators",
        remedy="leave one group without a taint, best one with a minimum and without accelerators",
        level="warning",
    )


def _check_a_minimum(open_groups: Sequence[InstanceGroup]) -> Iterator[Finding]:
    # A group with an autoscaler has a minimum of 0.
    minimums = tuple(group.min_instance_count for group in open_groups)
    if is_known(minimums) and not any(minimums):
        yield Finding(
            code="groups-without-minimum",
            path="instance_groups",
            problem="no group without a taint has a minimum, so the cluster is ready before it has a node for CoreDNS and "
            "the operators, which may time out",
            remedy="set min_instance_count on a group without a taint, best one without accelerators",
            level="warning",
        )


def _check_a_count(open_groups: Sequence[InstanceGroup]) -> Iterator[Finding]:
    counts = tuple(group.instance_count for group in open_groups)
    if is_known(counts) and not any(counts):
        yield Finding(
            code="groups-without-open-node",
            path="instance_groups",
            problem="no group without a taint has a node, so no node accepts CoreDNS and the operators",
            remedy="raise instance_count of a group without a taint, best one without accelerators",
            level="warning",
        )


def _check_pod_addresses(known: Sequence[tuple[str, InstanceGroup]]) -> Iterator[Finding]:
    """HyperPod gives pods the addresses of a node's first interface, one of which is the node's own: types of up to 8 vCPUs
    have 14 left (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/AvailableIpPerENI.html), and HyperPod's own daemons use
    several of them.
    """
    for path, group in known:
        small = [kind.name for kind in known_types(group) if kind.vcpus <= _VCPUS_OF_FEW_ADDRESSES]
        if small:
            instance_type = small[0]
            yield Finding(
                code="group-few-pod-addresses",
                path=path,
                problem=f"a node of {instance_type} has addresses for at most 14 pods, including HyperPod's own daemons",
                remedy="use a type with 16 vCPUs or more for add-ons or many pods",
                level="warning",
            )


_VCPUS_OF_FEW_ADDRESSES = 8


def known_types(group: InstanceGroup) -> list[InstanceType]:
    """The types of a group that are in the catalogue."""
    names = group.all_instance_types
    return [catalogue()[name] for name in names if name in catalogue()] if isinstance(names, tuple) else []


def has_neuron(groups: Sequence[InstanceGroup]) -> bool:
    """Whether any group may have nodes with Neuron devices."""
    known = [group for group in groups if is_known(group)] if isinstance(groups, tuple) else []
    return any(kind.accelerator_kind == "neuron" for group in known for kind in known_types(group))


def _check_types(group: InstanceGroup, path: str) -> Iterator[Finding]:
    if group.instance_type is None and not group.instance_types:
        yield Finding(
            code="instance-type-missing",
            path=path,
            problem="has no instance_type",
            remedy="add instance_type or instance_types",
        )
    if group.instance_type is not None and group.instance_types:
        yield Finding(
            code="instance-type-and-types",
            path=path,
            problem="instance_type cannot be combined with instance_types",
            remedy="use one of them",
        )
    if not isinstance(group.instance_types, tuple):
        return
    if len(group.instance_types) > 20:
        yield Finding(
            code="instance-types-too-many",
            path=f"{path}.instance_types",
            problem=f"there are {len(group.instance_types)} types",
            remedy="use at most 20",
        )
    yield from check_repeated(group.instance_types, f"{path}.instance_types")
    field = "instance_types" if group.instance_types else "instance_type"
    for name in dict.fromkeys(group.all_instance_types):
        if is_known(name) and name not in catalogue():
            yield Finding(
                code="instance-type-unknown",
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
            possible = " or ".join(map(str, kind.threads_per_core))
            instance_type = kind.name
            yield Finding(
                code="threads-not-supported",
                path=f"{path}.threads_per_core",
                problem=f"{instance_type} supports {possible} thread per core, got {threads}",
                remedy="remove it",
            )


def _check_counts(group: InstanceGroup, path: str) -> Iterator[Finding]:
    if not is_known(group.min_instance_count) or not is_known(group.instance_count):
        return
    if group.min_instance_count > group.instance_count:
        yield Finding(
            code="minimum-above-count",
            path=f"{path}.min_instance_count",
            problem=f"{group.min_instance_count} is more than instance_count, which is {group.instance_count}",
            remedy="lower it, or raise instance_count",
        )


def _check_needs_continuous(group: InstanceGroup, path: str) -> Iterator[Finding]:
    """MinInstanceCount, Spot, InstanceRequirements and customer managed keys require continuous provisioning."""
    needs = {
        "min_instance_count": is_known(group.min_instance_count) and group.min_instance_count > 0,
        "spot": group.spot is True,
        "instance_types": bool(group.instance_types),
    }
    for index, volume in enumerate(group.ebs_volumes if isinstance(group.ebs_volumes, tuple) else ()):
        if is_known(volume):
            # An entry for the root volume sets its key and nothing else.
            needs[f"ebs_volumes[{index}].root_volume"] = volume.root_volume is True
            needs[f"ebs_volumes[{index}].volume_kms_key_arn"] = volume.volume_kms_key_arn is not None
    for field, used in needs.items():
        if used:
            yield Finding(
                code="continuous-provisioning-required",
                path=f"{path}.{field}",
                problem="requires continuous provisioning",
                remedy="set node_provisioning_mode to continuous, or remove it",
            )


def _check_ebs_volumes(group: InstanceGroup, path: str) -> Iterator[Finding]:
    path = f"{path}.ebs_volumes"
    if not isinstance(group.ebs_volumes, tuple):
        return
    for kind, is_root in (("root", True), ("second", False)):
        volumes = [volume for volume in group.ebs_volumes if is_known(volume) and volume.root_volume is is_root]
        if len(volumes) > 1:
            yield Finding(
                code="volumes-of-one-kind",
                path=path,
                problem=f"there are {len(volumes)} {kind} volumes",
                remedy="keep one: a node has one root volume and one second volume",
            )
    for index, volume in enumerate(group.ebs_volumes):
        if not is_known(volume) or not is_known(volume.volume_size_gib):
            continue
        if volume.root_volume is True and volume.volume_size_gib is not None:
            yield Finding(
                code="root-volume-with-size",
                path=f"{path}[{index}].volume_size_gib",
                problem="cannot be set on the root volume, whose size HyperPod decides",
                remedy="remove it",
            )
        if volume.root_volume is False and volume.volume_size_gib is None:
            yield Finding(
                code="volume-without-size",
                path=f"{path}[{index}].volume_size_gib",
                problem="is missing, but a second volume requires it",
                remedy="add volume_size_gib, 1 to 16384",
            )


def _check_region(group: InstanceGroup, path: str, region: str) -> Iterator[Finding]:
    """A training plan and a key can be used only in the region of their ARN."""
    if not is_known(region):
        return
    arns = {f"{path}.training_plan_arn": group.training_plan_arn}
    for index, volume in enumerate(group.ebs_volumes if isinstance(group.ebs_volumes, tuple) else ()):
        if is_known(volume):
            arns[f"{path}.ebs_volumes[{index}].volume_kms_key_arn"] = volume.volume_kms_key_arn
    for arn_path, arn in arns.items():
        if arn is None or not is_known(arn):
            continue
        region_of_arn = arn.split(":")[3]
        if region_of_arn != region:
            yield Finding(
                code="arn-in-another-region",
                path=arn_path,
                problem=f"is in {show(region_of_arn)}, but the cluster is in {region}",
                remedy="use one of the cluster's region",
            )


def _check_capacity(group: InstanceGroup, path: str) -> Iterator[Finding]:
    if group.spot is True and group.training_plan_arn is not None:
        yield Finding(
            code="spot-with-training-plan",
            path=f"{path}.spot",
            problem="cannot be combined with training_plan_arn: the capacity of a training plan is not spot",
            remedy="remove spot or training_plan_arn",
        )


def _check_slurm_group(group: InstanceGroup, path: str) -> Iterator[Finding]:
    for field in ("labels", "taints"):
        if getattr(group, field):
            yield Finding(code="setting-for-eks-only", path=f"{path}.{field}", problem=EKS_ONLY, remedy="remove it")
    if group.node_type is None:
        yield Finding(
            code="node-type-missing",
            path=f"{path}.node_type",
            problem="is missing, but Slurm requires it",
            remedy="set it to controller, login or compute",
        )
    yield from _check_partition(group, path)
    if group.node_type == "controller" and group.spot is True:
        yield Finding(
            code="controller-on-spot",
            path=f"{path}.spot",
            problem="cannot be set on the controller: if AWS reclaims the node, Slurm stops",
            remedy="remove it",
        )


def _check_partition(group: InstanceGroup, path: str) -> Iterator[Finding]:
    path = f"{path}.partition"
    partition = group.partition
    if group.node_type == "compute" and partition is None:
        yield Finding(
            code="partition-missing",
            path=path,
            problem="is missing, but a compute group requires it",
            remedy="add partition: with a name such as the group's",
        )
    if partition is None:
        return
    if is_known(partition) and partition.lower() == "default":
        yield Finding(
            code="partition-default",
            path=path,
            problem=f"{partition} is reserved: Slurm reads it as the settings of all partitions",
            remedy="use another name",
        )
    if is_known(partition) and partition.lower() == "dev":
        yield Finding(
            code="partition-dev",
            path=path,
            problem=f"{partition} is reserved: HyperPod creates it",
            remedy="use another name",
        )
    if group.node_type in ("controller", "login"):
        yield Finding(
            code="partition-without-jobs",
            path=path,
            problem=f"cannot be set on a {group.node_type} group, which runs no jobs",
            remedy="remove it",
        )


def _check_slurm_cluster(
    groups: Sequence[InstanceGroup], known: Sequence[tuple[str, InstanceGroup]], node_provisioning_mode: str
) -> Iterator[Finding]:
    controllers = [(path, group) for path, group in known if group.node_type == "controller"]
    logins = [(path, group) for path, group in known if group.node_type == "login"]
    if not controllers and _all_node_types_known(groups, known):
        yield Finding(
            code="controller-missing",
            path="instance_groups",
            problem="there is no controller group",
            remedy="add one with node_type: controller and instance_count: 1",
        )
    yield from _check_one_group("controller", controllers)
    yield from _check_one_group("login", logins)
    yield from _check_controller_count(controllers, node_provisioning_mode)


def _all_node_types_known(groups: Sequence[InstanceGroup], known: Sequence[tuple[str, InstanceGroup]]) -> bool:
    """A group without a known node type may be the missing controller."""
    return len(known) == len(groups) and all(group.node_type and is_known(group.node_type) for _, group in known)


def _check_one_group(node_type: str, found: Sequence[tuple[str, InstanceGroup]]) -> Iterator[Finding]:
    if len(found) < 2:
        return
    names = [path.removeprefix("instance_groups") for path, _ in found]
    shown_names = ", ".join(names if len(names) <= 5 else [*names[:5], "…"])
    yield Finding(
        code="node-type-duplicated",
        path="instance_groups",
        problem=f"{len(found)} groups have node_type: {node_type} ({shown_names})",
        remedy=f"keep one {node_type} group",
    )


def _check_controller_count(
    controllers: Sequence[tuple[str, InstanceGroup]], node_provisioning_mode: str
) -> Iterator[Finding]:
    for path, group in controllers:
        count = group.instance_count
        if not is_known(count) or count == 1:
            continue
        # Several Slurm controllers are possible without continuous provisioning.
        if node_provisioning_mode == "continuous" or count < 1:
            yield Finding(
                code="controller-count-not-one",
                path=f"{path}.instance_count",
                problem=f"must be 1 for the controller, got {count}",
                remedy="set it to 1",
            )
