"""Rules of EKS: the control plane, autoscaling and teams, and settings that apply only under Slurm.

Sources: the developer guide's pages "Getting started with Amazon EKS support" (versions, authentication, chart first),
"Autoscaling on HyperPod EKS" (what a node class may hold) and "Installing the training operator" (endpoints); "VPC and
subnet requirements" (two zones) and "Cluster API server endpoint" (no reserved addresses) in the EKS user guide;
ClusterKubernetesConfig in the SageMaker API reference, and "Labels and Selectors" in Kubernetes' documentation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ..config.cluster import ClusterConfig, InstanceGroup, NetworkConfig, Taint
from ..config.eks import INSTALLED, AutoscalingConfig, ChartComponents, EksConfig, is_on
from ..config.governance import TaskGovernance
from ..config.zones import ZONES_WITHOUT_EKS, control_plane_zone, control_plane_zones, two_zones
from ..errors import Finding
from ..facts import kubernetes_versions as versions
from ..facts.device_plugins import EFA as EFA_PLUGIN
from ..facts.device_plugins import NEURON as NEURON_PLUGIN
from ..facts.device_plugins import NVIDIA, PLUGINS, published_chart
from ..kubernetes.allocatable import EFA, GPU, NEURON, missing_plugins
from ..kubernetes.teams import claim_gib
from ..names import eks_stack_name
from ..typed.known import is_known
from ..typed.validation import check_repeated
from ..typed.words import item_paths, join, show, shown_name
from .add_ons import check_add_ons, check_workspace
from .eks_teams import check_eks_teams
from .governance import check_task_governance
from .groups import known_types
from .network import own_zones
from .public_access import check_public_access
from .quotas import check_limits
from .teams import check_priority_classes
from .wording import SLURM_ONLY


def check_eks(config: ClusterConfig) -> Iterator[Finding]:
    """Everything that is wrong with `eks` and `teams`, under EKS or Slurm."""
    if config.orchestrator == "slurm":
        for field in ("eks", "teams"):
            if getattr(config, field):
                yield Finding(
                    code="orchestrator-not-eks",
                    path=field,
                    problem="applies only under EKS",
                    remedy="remove it, or set orchestrator: eks",
                )
        return
    if config.orchestrator != "eks":
        return
    yield from _check_groups(config.instance_groups)
    if config.eks is None:
        yield Finding(
            code="eks-missing",
            path="eks",
            problem="is missing, but the orchestrator is eks",
            remedy="add eks: {dependencies_chart: …} with the path of HyperPod's Helm chart, or `installed`",
        )
        return
    if not isinstance(config.eks, EksConfig):
        return
    has_file_system = config.storage is not None
    second = control_plane_zone(config)
    yield from check_control_plane(
        config.eks,
        config.network,
        region=config.region,
        has_file_system=has_file_system,
        control_plane_zone=second,
    )
    yield from check_workspace(config.eks, region=config.region, account=config.account)
    yield from _check_components(config.instance_groups, config.eks)
    yield from _check_device_plugins(config.instance_groups, config.eks)
    yield from _check_elastic_training(config, config.eks)
    if isinstance(config.eks.autoscaling, AutoscalingConfig):
        yield from _check_autoscaling(config.eks.autoscaling, config)
    yield from check_eks_teams(
        config.teams,
        config.eks,
        groups=config.instance_groups,
        file_system_gib=claim_gib(getattr(config.storage, "capacity_gib", None)) if has_file_system else 0,
    )


def check_control_plane(
    eks: EksConfig,
    network: NetworkConfig,
    *,
    region: str,
    has_file_system: bool | None,
    control_plane_zone: str | None = None,
) -> Iterator[Finding]:
    """Everything that is wrong with the EKS cluster itself. `has_file_system`: None if that is not known. `control_plane_zone`: the
    zone in which its second subnet is created. None: no zone."""
    without = [] if eks.existing_cluster is not None else [*_check_zones_without_eks(network, control_plane_zone)]
    yield from without or _check_two_zones(network, region, control_plane_zone)
    yield from _check_cluster(eks, network)
    yield from _check_chart(eks, network)
    yield from check_add_ons(eks, has_file_system=has_file_system)
    yield from _check_task_governance(eks)
    if isinstance(eks.priority_classes, tuple):
        yield from check_priority_classes(eks.priority_classes, "eks.priority_classes")


def _check_device_plugins(groups: tuple[InstanceGroup, ...], eks: EksConfig) -> Iterator[Finding]:
    """Types on which AWS's chart, installed by hand, runs no device plug-in. (This library adds them to the lists.)"""
    if eks.dependencies_chart != INSTALLED:
        return
    kinds = {kind.name: kind for _, group in _known(groups) for kind in known_types(group)}
    for plugin in PLUGINS:
        missing = [name for name, kind in kinds.items() if plugin in missing_plugins(kind)]
        if not missing:
            continue
        names, device = ", ".join(missing), _DEVICE_OF[plugin]
        yield Finding(
            code="device-plugin-missing",
            path="eks.dependencies_chart",
            problem=f"is `installed`, but AWS's chart runs its {plugin} on no {names}, whose nodes then offer no {device}",
            remedy=(
                "name the chart, so that the library installs it with these types. Until then, quotas and rendered jobs "
                f"count no {device} there"
            ),
            level="warning",
        )


_DEVICE_OF = {NVIDIA: GPU, EFA_PLUGIN: EFA, NEURON_PLUGIN: NEURON}


def _check_elastic_training(config: ClusterConfig, eks: EksConfig) -> Iterator[Finding]:
    """What AWS excludes for elastic training. (Checkpointless training is a property of a job: docs/submit-a-job.md.)"""
    if not is_on(eks, "training_operator", has_file_system=False):
        return
    spot = [group.name for _, group in _known(config.instance_groups) if group.spot is True]
    if spot:
        spot_groups = ", ".join(map(shown_name, spot[:5]))
        yield Finding(
            code="elastic-training-on-spot-groups",
            path="eks.add_ons.training_operator",
            problem=f"runs elastic jobs, but AWS excludes elastic training on spot capacity ({spot_groups})",
            remedy="render jobs for these groups with one size (job render --nodes), or remove spot",
            level="warning",
        )
    if config.tiered_storage is not None:
        yield Finding(
            code="elastic-training-with-tiered-checkpointing",
            path="eks.add_ons.training_operator",
            problem=(
                "runs elastic jobs, but AWS excludes elastic training with managed tiered checkpointing "
                "(tiered_storage)"
            ),
            remedy="render jobs with one size (job render --nodes), or remove tiered_storage",
            level="warning",
        )


def is_closed(network: object) -> bool:
    """Whether the nodes have no internet access."""
    return isinstance(network, NetworkConfig) and network.internet_egress is False


def _check_components(groups: tuple[InstanceGroup, ...], eks: EksConfig) -> Iterator[Finding]:
    """Deep health checks need their part of the chart."""
    components = eks.chart_components
    checked = [group for _, group in _known(groups) if is_known(group.on_start_deep_health_checks)]
    names = [shown_name(group.name) for group in checked if group.on_start_deep_health_checks]
    if isinstance(components, ChartComponents) and components.deep_health_check is False and names:
        listed = ", ".join(names[:5])
        yield Finding(
            code="deep-health-check-off",
            path="eks.chart_components.deep_health_check",
            problem=f"cannot be false, since groups have on_start_deep_health_checks ({listed})",
            remedy="remove the line, or remove on_start_deep_health_checks",
        )


def check_installed_chart(config: ClusterConfig) -> Iterator[Finding]:
    """Warnings about a chart that is installed by hand: a new EKS cluster has none, and its images may be out of reach.

    For a file only, since the remedy names its stacks. An app of your own has other stacks.
    """
    eks = config.eks
    if isinstance(eks, EksConfig) and is_closed(config.network):
        from .charts import check_agent_image

        yield from check_agent_image(config.region, published_chart().health_agent_regions)
    if isinstance(eks, EksConfig) and eks.dependencies_chart == INSTALLED and eks.existing_cluster is None:
        stack = eks_stack_name(shown_name(config.name))
        yield Finding(
            code="chart-on-a-new-cluster",
            path="eks.dependencies_chart",
            problem="is `installed`, but this file creates the EKS cluster, and a new cluster has no chart",
            remedy=f"deploy {stack} first, install the chart, then deploy the rest (docs/eks.md)",
            level="warning",
        )


def _check_groups(groups: tuple[InstanceGroup, ...]) -> Iterator[Finding]:
    for path, group in _known(groups):
        for field in ("node_type", "partition"):
            if getattr(group, field) is not None:
                yield Finding(
                    code="setting-for-slurm-only",
                    path=f"{path}.{field}",
                    problem=SLURM_ONLY,
                    remedy="remove it",
                )
        for field in ("labels", "taints"):
            values = getattr(group, field)
            if is_known(values) and len(values) > 50:
                yield Finding(
                    code="labels-too-many",
                    path=f"{path}.{field}",
                    problem=f"there are {len(values)} {field}",
                    remedy="use at most 50",
                )
        if isinstance(group.labels, Mapping):
            for key, value in group.labels.items():
                yield from _check_label("label", key, value, join(f"{path}.labels", key))
        if isinstance(group.taints, tuple):
            yield from _check_taints(group.taints, f"{path}.taints")


def _check_taints(taints: tuple[Taint, ...], path: str) -> Iterator[Finding]:
    known = [(f"{path}[{index}]", taint) for index, taint in enumerate(taints) if is_known(taint)]
    for taint_path, taint in known:
        yield from _check_label("taint", taint.key, taint.value, taint_path)
    pairs = [(taint.key, taint.effect) for _, taint in known if is_known(taint.key) and is_known(taint.effect)]
    for (key, effect), count in Counter(pairs).items():
        if count > 1:
            yield Finding(
                code="taint-duplicated",
                path=path,
                problem=f"{count} taints have the key {show(key)} and the effect {effect}",
                remedy="keep one of them",
            )


def _check_label(kind: str, key: str, value: str | None, path: str) -> Iterator[Finding]:
    """What Kubernetes and SageMaker refuse in a label or a taint. Both have the same syntax."""
    if is_known(key) and not _is_label_key(key):
        yield Finding(
            code="label-key-invalid",
            path=path,
            problem=f"{show(key)} is not a valid key of a {kind}",
            remedy=f"use 1 to 63 {_LABEL_TEXT}, if you like after a domain and a slash, such as example.com/pool",
        )
    if value is not None and is_known(value) and not _LABEL_NAME.fullmatch(value):
        yield Finding(
            code="label-value-invalid",
            path=path,
            problem=f"{show(value)} is not a valid value of a {kind}",
            remedy=f"use 1 to 63 {_LABEL_TEXT}",
        )


def _is_label_key(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    good_domain = len(domain) <= 253 and _DNS_NAME.fullmatch(domain)
    return bool(_LABEL_NAME.fullmatch(name) and (good_domain or not slash))


_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_TEXT = "letters, digits and -_., a letter or digit at either end"
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _check_zones_without_eks(network: NetworkConfig, second: str | None) -> Iterator[Finding]:
    zones = (own_zones(network) if isinstance(network, NetworkConfig) else None) or []
    for zone in control_plane_zones(zones, second) if zones else ():
        if zone in ZONES_WITHOUT_EKS:
            yield Finding(
                code="zone-without-eks",
                path="network.subnets" if network.vpc_id is not None else "network.availability_zones",
                problem=f"EKS is not available in {zone}, and the control plane is in the first two zones",
                remedy="name two other zones first. Groups of nodes can be in this zone",
            )


def _check_two_zones(network: NetworkConfig, region: str, second: str | None) -> Iterator[Finding]:
    zones = own_zones(network) if isinstance(network, NetworkConfig) else None
    if zones is None or len(set(zones)) > 1:
        return
    if second is not None:
        zone = zones[0]
        yield Finding(
            code="second-zone",
            path="network.availability_zones",
            problem=(
                f"has one zone, but EKS needs subnets in two. The control plane gets one in {second}, which no "
                "node uses and which cannot change after creation"
            ),
            remedy=(
                f"name both zones, [{zone}, {second}], or before the first deployment another one that has EKS "
                "(use1-az3, usw1-az2 and cac1-az3 do not)"
            ),
            level="warning",
        )
        return
    if network.vpc_id is not None:
        yield Finding(
            code="subnets-in-one-zone",
            path="network.subnets",
            problem="EKS needs subnets in two zones",
            remedy="add a subnet of another zone after the cluster's own",
        )
        return
    example = two_zones(region)
    listed = ", ".join(example) if example else "FIRST, SECOND"
    yield Finding(
        code="zones-too-few",
        path="network.availability_zones",
        problem="EKS needs subnets in two zones",
        remedy=(
            f"name two zones, the one with the capacity first, such as [{listed}]. In a cluster file, the "
            "first one is enough"
        ),
    )


def _check_cluster(eks: EksConfig, network: NetworkConfig) -> Iterator[Finding]:
    yield from check_repeated(eks.admin_role_arns, "eks.admin_role_arns")
    if eks.existing_cluster is None:
        yield from _check_version(eks.kubernetes_version)
        yield from check_public_access(eks.public_access_cidrs)
        return
    if isinstance(network, NetworkConfig) and network.vpc_id is None:
        yield Finding(
            code="existing-cluster-without-vpc",
            path="eks.existing_cluster",
            problem="is in an existing VPC, but network describes a new one",
            remedy="add network.vpc_id and network.subnets of the EKS cluster's VPC",
        )
    for field in ("kubernetes_version", "public_access_cidrs"):
        if getattr(eks, field):
            yield Finding(
                code="existing-cluster-setting",
                path=f"eks.{field}",
                problem="cannot be combined with existing_cluster: it describes a new EKS cluster",
                remedy="remove one of the two",
            )


def _check_version(version: str | None) -> Iterator[Finding]:
    """A version of which this release does not know that EKS, HyperPod and kubectl take it. It may be right by now."""
    path = "eks.kubernetes_version"
    if version is None or not is_known(version) or not _VERSION.fullmatch(version):
        return
    oldest, newest = versions.NEW_CLUSTERS[0], versions.NEW_CLUSTERS[-1]
    if version not in versions.NEW_CLUSTERS:
        older_or_newer = "older" if versions.minor(version) < versions.minor(oldest) else "newer"
        date = versions.AS_OF
        yield Finding(
            code="kubernetes-version-outside",
            path=path,
            problem=(
                f"{version} is {older_or_newer} than the versions that both EKS and HyperPod took on {date} ({oldest} to "
                f"{newest})"
            ),
            remedy=f"use one of these, or make sure that both support {version} today",
            level="warning",
        )
    if version not in versions.KUBECTL:
        first, last = versions.KUBECTL[0], versions.KUBECTL[-1]
        yield Finding(
            code="kubernetes-version-and-kubectl",
            path=path,
            problem=f"{version} is outside of what this release's kubectl supports ({first} to {last})",
            remedy=f"use one of {first} to {last}",
            level="warning",
        )


_VERSION = re.compile(r"1\.[1-9][0-9]")


def _check_chart(eks: EksConfig, network: NetworkConfig) -> Iterator[Finding]:
    if not is_known(eks.dependencies_chart):
        return
    if eks.dependencies_chart == INSTALLED:
        for field in ("dependencies_chart_digest", "image_registry", "chart_components"):
            if getattr(eks, field) not in (None, ChartComponents()):
                yield Finding(
                    code="installed-chart-setting",
                    path=f"eks.{field}",
                    problem=(
                        "cannot be combined with dependencies_chart: installed, since it is about a chart that the "
                        "library installs"
                    ),
                    remedy="remove it, or set dependencies_chart to the chart's path",
                )
        return
    closed = is_closed(network)
    if eks.image_registry is None and closed:
        yield Finding(
            code="image-registry-missing",
            path="eks.image_registry",
            problem=("is missing: the chart's images are in public registries, and the network has no internet access"),
            remedy=(
                "copy them to a registry that the nodes can reach and name it, or set network.internet_egress: true"
            ),
        )


def _check_autoscaling(autoscaling: AutoscalingConfig, config: ClusterConfig) -> Iterator[Finding]:
    path = "eks.autoscaling.instance_groups"
    names = autoscaling.instance_groups
    if not isinstance(names, tuple):
        return
    if not 1 <= len(names) <= 10:
        yield Finding(
            code="autoscaled-groups-wrong-number",
            path=path,
            problem=f"there are {len(names)} groups",
            remedy="use 1 to 10",
        )
    yield from check_repeated(names, path)
    if isinstance(autoscaling.limits, Mapping):
        yield from check_limits(autoscaling.limits, "eks.autoscaling.limits")
    if config.node_provisioning_mode == "standard":
        yield Finding(
            code="continuous-provisioning-required",
            path="eks.autoscaling",
            problem="requires continuous provisioning",
            remedy="set node_provisioning_mode to continuous, or remove it",
        )
    groups = {group.name: (group_path, group) for group_path, group in _known(config.instance_groups)}
    for index, name in enumerate(names):
        if not is_known(name) or name in names[:index]:
            continue
        if name not in groups:
            yield Finding(
                code="autoscaled-group-unknown",
                path=f"{path}[{index}]",
                problem=f"the file has no instance group {show(name)}",
                remedy="name one of instance_groups",
            )
            continue
        yield from _check_autoscaled(*groups[name])


def _check_autoscaled(path: str, group: InstanceGroup) -> Iterator[Finding]:
    if is_known(group.min_instance_count) and group.min_instance_count != 0:
        yield Finding(
            code="autoscaled-minimum",
            path=f"{path}.min_instance_count",
            problem=f"must be 0, since the autoscaler owns the count, got {group.min_instance_count}",
            remedy="remove it, or remove the group from eks.autoscaling",
        )
    # A warning only: a change of a cluster with autoscaled nodes must name their count.
    if is_known(group.instance_count) and group.instance_count != 0:
        yield Finding(
            code="autoscaled-count-set",
            path=f"{path}.instance_count",
            problem=f"is {group.instance_count}, but the autoscaler terminates nodes that no pod needs",
            remedy="set it to 0 for a new group. For a change of a cluster, set it to the group's current count",
            level="warning",
        )
    for field in ("spot", "training_plan_arn", "on_start_deep_health_checks"):
        if getattr(group, field):
            yield Finding(
                code="autoscaled-setting",
                path=f"{path}.{field}",
                problem=(
                    "cannot be set on an autoscaled group: HyperPod's autoscaler uses on-demand nodes without "
                    "deep health checks"
                ),
                remedy="remove it, or remove the group from eks.autoscaling",
            )


def _check_task_governance(eks: EksConfig) -> Iterator[Finding]:
    policy = eks.task_governance
    if not isinstance(policy, TaskGovernance) or not isinstance(policy.priority_classes, tuple):
        return
    yield from check_task_governance(policy, "eks.task_governance")
    if policy != TaskGovernance() and not is_on(eks, "task_governance", has_file_system=False):
        yield Finding(
            code="task-governance-required",
            path="eks.task_governance",
            problem="needs task governance, which eks.add_ons.task_governance turns off",
            remedy="turn it on, or remove eks.task_governance",
        )


def _known(groups: tuple[InstanceGroup, ...]) -> list[tuple[str, InstanceGroup]]:
    if not isinstance(groups, tuple):
        return []
    paths = item_paths("instance_groups", groups)
    return [(paths[index], group) for index, group in enumerate(groups) if is_known(group)]
