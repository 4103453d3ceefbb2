"""Takes exactly these nodes and deletes exactly these groups: what CloudFormation cannot do by itself.

Two custom resources stand around the cluster. `prepare` runs before CloudFormation touches the cluster, whenever
anything of the cluster changes: it refuses what would be an accident, and takes the nodes that have to go, by name, so
that the cluster's own update, for which HyperPod would terminate nodes at random, finds nothing left to remove. `finalize` runs after, and
deletes the groups that should be gone and are still there. docs/scale-down.md explains it for users.
"""

from __future__ import annotations

import hashlib
import typing
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jsii
from aws_cdk import (
    Annotations,
    CfnOutput,
    CfnResource,
    CustomResource,
    Duration,
    RemovalPolicy,
    Stack,
    custom_resources,
)
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct, IValidation

from .._cdk_private import properties_as_set, properties_of
from .._common import reasons
from .._common.acknowledge import acknowledge, wildcards_of_cdk, without_traces
from .._common.functions import log_group as make_log_group
from .._common.functions import python_function
from .._common.order import order_around, order_before
from .._common.removal import check_removal
from .._lambda.hyperpod.common.owner import STACK_ID_TAG
from ..config.cluster import ScaleDownConfig, ScaleDownDrain
from ..config.rendering import guard_properties
from ..errors import Finding, raise_errors
from ..interface import IHyperPodCluster
from ..loader import LoadedConfig
from ..rules import check_scale_down
from ..rules.guard import check_groups, check_guarded, check_order, check_overrides, check_sent, check_size
from ..typed.annotations import arguments_of, field_types
from ..typed.judge import as_tuple, check_call, check_config, require_arguments
from .cluster_properties import ClusterProperties, without_tags
from .drain_channel import DrainChannel, IEksDrainer
from .drain_checks import check_drain_arguments
from .permissions import allow_reading, allow_writing
from .rendered_template import template_of

UNGUARDED = "cdk-hyperpod:unguarded"
"""The warning of a cluster that nothing guards, which a guard takes back."""
_POLL = Duration.seconds(30)
_TIMEOUT = Duration.hours(1)
"""The most that CloudFormation waits for a custom resource; the function itself ends earlier, with a reason."""
_FUNCTION_TIMEOUT = Duration.minutes(10)
"""The first look takes four minutes, a drainer is asked for three, and each of their last calls may take a minute more."""
_guards: MutableMapping[Stack, list[ScaleDown]] = WeakKeyDictionary()
"""The guards of each stack and of those nested in it, in the order in which they were made."""
_FRAMEWORK = ("framework-onEvent", "framework-isComplete", "framework-onTimeout")


class ScaleDown(Construct):
    """Guards one cluster: it takes nodes only by name, deletes groups only where you name them, and refuses accidents.

    Running nodes: the nodes and groups that the arguments name are deleted, drained first where `drain` says so; so are as
    many others as a lowered count asks for, in a fixed order. Nothing else ever does, and a deployment that cannot keep that promise is refused
    (docs/not-guaranteed.md says what can still go wrong). Cost: two small functions that run during deployments.

    Example::

        cluster = sagemaker.CfnCluster(
            self,
            "Cluster",
            cluster_name="adopted",
            instance_groups=[
                sagemaker.CfnCluster.ClusterInstanceGroupProperty(
                    instance_group_name="workers",
                    instance_type="ml.g6.12xlarge",
                    instance_count=2,
                    execution_role="arn:aws:iam::111122223333:role/adopted",
                )
            ],
        )
        ScaleDown(self, "ScaleDown", cluster=cluster, nodes_to_delete=["i-0123456789abcdef0"])
    """

    prepare: CustomResource
    """What runs before the cluster changes: it takes nodes, or refuses the change."""
    finalize: CustomResource
    """What runs after the cluster has changed: it deletes the groups that should be gone."""
    nodes_taken: CfnOutput
    """Which nodes went, for whoever reads a deployment's outputs."""
    still_standing: CfnOutput
    """Which groups the last deployment left; `nothing` where all is done."""
    drain_channel: DrainChannel | IEksDrainer | None
    """Who is asked to drain nodes: an agent, by its channel, or the drainer of an EKS cluster. None: they go as they are."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: sagemaker.CfnCluster | IHyperPodCluster,
        nodes_to_delete: Sequence[str] = (),
        instance_groups_to_delete: Sequence[str] = (),
        max_nodes: int = 16,
        drain: ScaleDownDrain | None = None,
        drain_channel: DrainChannel | IEksDrainer | None = None,
        retry: str | None = None,
        autoscaled_groups: Sequence[str] = (),
        encryption_key: kms.IKey | None = None,
        log_group: logs.ILogGroup | None = None,
        removal_policy: RemovalPolicy | None = None,
    ) -> None:
        """Guard a cluster, of this library or of any other app.

        What the guard sends is rendered at synthesis, so whatever is changed of the cluster until then counts;
        `add_property_override` of what the guard goes by is an error at synthesis, and so is an override of `DependsOn` that
        takes the cluster out of the guard's order. The guard deletes nodes after every other resource of the stack and of the stacks
        around it has changed, and groups after those that need the cluster too, so that another resource's failure costs no node. A warning
        names what cannot be ordered so.

        :param cluster: in the same stack, with a name, instance groups and no restricted ones. A `HyperPodCluster` has a guard
            already, unless it was made with `unguarded=True`.
        :param nodes_to_delete: nodes that end with the next deployment; ids of nodes that are gone may stay, up to a few
            thousand. Default: - none by name.
        :param instance_groups_to_delete: groups that end with the next deployment, with all their nodes; take them out of the
            cluster with it. Default: - none.
        :param max_nodes: a deployment that would take more nodes than this is refused, and takes none.
        :param drain: how nodes are drained before they go, by an agent on the controller, or under EKS by an `EksDrainer`.
            Default: - they go as they are.
        :param drain_channel: where that agent is asked, or the `EksDrainer`. Default: - that of a `HyperPodCluster`, or its
            lifecycle scripts; for another Slurm cluster one is made, which needs `encryption_key`. It is yours to start an agent
            there (docs/guard-your-cluster.md), so `drain.on_silent` must be said.
        :param retry: any text; another one makes the next deployment go on where a group still stands. Default: - none.
        :param autoscaled_groups: groups whose count an autoscaler owns, of which only named nodes are taken; a
            `HyperPodCluster` adds its own. Default: - none.
        :param encryption_key: encrypts the logs, and a drain channel that is made. Default: - the key of a `HyperPodCluster`, of another cluster CloudWatch's own.
        :param log_group: where its functions log. Default: - three are made, which keep a year.
        :param removal_policy: what becomes of those when they leave the stack: RETAIN or DESTROY. Default: - RemovalPolicy.DESTROY.
        :raises ConfigError: for arguments that contradict each other, and for a cluster that cannot be guarded.
        """
        super().__init__(scope, construct_id)
        config = ScaleDownConfig(
            nodes_to_delete=as_tuple(nodes_to_delete),
            instance_groups_to_delete=as_tuple(instance_groups_to_delete),
            max_nodes=max_nodes,
            drain=drain,
            retry=retry,
        )
        findings = [
            *check_call(ScaleDown.__init__, locals(), apart=field_types(ScaleDownConfig)),
            *check_removal(removal_policy),
            *check_config(config, "scale_down", lambda known: check_scale_down(known, ())),
        ]
        without_traces(self)
        if isinstance(cluster, IHyperPodCluster):
            encryption_key = encryption_key or cluster.encryption_key
            drain_channel = drain_channel or cluster.drain_channel or cluster.drainer
        resource, seen = self._guarded(cluster, findings)
        raise_errors(
            check_drain_arguments(config.drain, drain_channel, cluster, seen, encryption_key), lambda: self.node.path
        )
        raise_errors(check_size(seen, config.nodes_to_delete, config.instance_groups_to_delete), lambda: self.node.path)
        if config.drain is None and (config.nodes_to_delete or config.instance_groups_to_delete):
            Annotations.of(self).add_warning_v2(
                "cdk-hyperpod:undrained",
                "a deployment does not drain the nodes and groups that scale_down names; drain them before you deploy, or set scale_down.drain",
            )
        if isinstance(cluster, IHyperPodCluster):
            autoscaled_groups = [*dict.fromkeys([*cluster.autoscaled_groups, *autoscaled_groups])]
        Annotations.of(resource).acknowledge_warning(UNGUARDED, "ScaleDown guards it.")
        self._cluster = resource
        self._name = typing.cast(str, resource.cluster_name)
        self._key = encryption_key
        self._given_log_group = log_group
        self._removal_policy = removal_policy
        self._stack = stack = Stack.of(self)
        self._region = stack.region
        self._warn_of_another(stack)
        self._prefix = _prefix(self, stack)
        resource.cdk_tag_manager.set_tag(STACK_ID_TAG, stack.stack_id)
        self._properties = ClusterProperties(resource, stack, seen)
        names = [*config.nodes_to_delete, *config.instance_groups_to_delete]
        self.node.add_validation(_Guarded(self, names))
        self.drain_channel = None if config.drain is None else drain_channel or self._made_channel()
        self._add_resources(config, autoscaled_groups)
        self._add_outputs()

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        cluster: IHyperPodCluster,
    ) -> ScaleDown:
        """The guard of a cluster file's cluster, which takes what its `scale_down` says.

        :param loaded: the file.
        :param cluster: one that `HyperPodCluster.from_config` made with `unguarded=True`.
        :raises ConfigError: for a cluster that cannot be guarded.
        """
        require_arguments(ScaleDown.from_config, construct_id, loaded=loaded, cluster=cluster)
        return cls(scope, construct_id, cluster=cluster, **arguments_of(loaded.config.scale_down or ScaleDownConfig()))

    def _add_resources(self, config: ScaleDownConfig, autoscaled_groups: Sequence[str]) -> None:
        role = self._role()
        if isinstance(self.drain_channel, DrainChannel):
            self.drain_channel.add_guard_role(role)
        on_event = self._function("OnEvent", "on_event", role)
        is_complete = self._function("IsComplete", "is_complete", role)
        reading = allow_reading(
            self,
            role,
            cluster_name=self._name,
            region=self._region,
            functions=[on_event, is_complete],
            channel=self.drain_channel,
        )
        provider = self._provider(on_event, is_complete)
        common = guard_properties(
            self._name,
            self._properties.late(lambda seen: seen.group_texts),
            config,
            autoscaled_groups=autoscaled_groups,
            digest=self._properties.late(lambda seen: seen.digest),
        ) | _drain_properties(self._stack, config.drain, self.drain_channel)
        self.prepare = CustomResource(
            self,
            "Prepare",
            resource_type="Custom::HyperPodScaleDown",
            service_token=provider.service_token,
            properties={**common, "CreateOnly": self._properties.late(lambda seen: seen.create_only)},
        )
        self.prepare.node.add_dependency(reading)
        if self.drain_channel is not None and Stack.of(self.drain_channel) is self._stack:
            self.prepare.node.add_dependency(self.drain_channel)
        self._cluster.node.add_dependency(self.prepare)
        writing = allow_writing(
            self, role, self._cluster, cluster_name=self._name, region=self._region, properties=self._properties
        )
        self.finalize = CustomResource(
            self,
            "Finalize",
            resource_type="Custom::HyperPodGroupRemoval",
            service_token=provider.service_token,
            properties=common,
        )
        self.finalize.node.add_dependency(self._cluster, writing)

    def _add_outputs(self) -> None:
        self.nodes_taken = CfnOutput(
            self,
            "NodesTaken",
            value=self.prepare.get_att_string("NodesTaken"),
            description="Nodes that the last deployment which changed the cluster took, and why",
        )
        self.still_standing = CfnOutput(
            self,
            "StillStanding",
            value=self.finalize.get_att_string("StillStanding"),
            description="Groups that should be gone and still stand; change scale_down.retry to go on",
        )

    def _guarded(self, cluster: object, findings: Sequence[Finding]) -> tuple[sagemaker.CfnCluster, dict[str, Any]]:
        """The cluster's resource, and its properties. Raises ConfigError where it cannot be guarded, with all findings."""
        resource = cluster.resource if isinstance(cluster, IHyperPodCluster) else cluster
        is_cluster = isinstance(resource, sagemaker.CfnCluster)
        seen = without_tags(properties_of(typing.cast(sagemaker.CfnCluster, resource))) if is_cluster else {}
        raise_errors(
            [
                *findings,
                *_check_made_here(cluster),
                *(_check_stack(self, typing.cast(sagemaker.CfnCluster, resource)) if is_cluster else ()),
                *(check_guarded(seen) if is_cluster else ()),
                *(_check_alone(typing.cast(sagemaker.CfnCluster, resource)) if is_cluster else ()),
            ],
            lambda: self.node.path,
        )
        assert isinstance(resource, sagemaker.CfnCluster)
        return resource, seen

    def _judge(self, names_to_delete: Sequence[str]) -> Iterator[Finding]:
        """The template that CloudFormation will get, at synthesis, after every change."""
        stack = self._stack
        properties = self._properties.keep()
        resources = template_of(stack)["Resources"]
        ids, said = self._said(properties)
        yield from check_order(resources, **ids)
        for name in ("prepare", "finalize"):
            if ids[name] in resources:
                yield from check_sent(name, said[name], resources[ids[name]].get("Properties", {}))
        if resources.keys() >= {*ids.values()}:
            self._put_in_order(resources, ids)
        seen = self._properties.judge(said["cluster"], resources[ids["cluster"]])
        yield from check_overrides(seen.overridden)
        yield from check_guarded(seen.properties, name=self._name)
        yield from check_groups(seen.properties)
        yield from check_size(seen.properties, names_to_delete, ())

    def _put_in_order(self, resources: Mapping[str, Any], ids: Mapping[str, str]) -> None:
        """Let the guard wait for the rest of the stack, so that nothing else can fail once it has deleted nodes."""
        around = order_around(resources, **ids)
        for name, made, added in (
            ("prepare", self.prepare, around.prepare),
            ("finalize", self.finalize, around.finalize),
        ):
            _depend_on(typing.cast(CfnResource, made.node.default_child), resources[ids[name]], added)
        self._warn_of_loose(around.unordered, resources)
        stack = self._stack
        # The parent's resources come before the nested stack as a whole.
        while stack.nested_stack_resource is not None and stack.nested_stack_parent is not None:
            nested, stack = stack.nested_stack_resource, stack.nested_stack_parent
            resources = template_of(stack)["Resources"]
            own = stack.resolve(nested.logical_id)
            added, loose = order_before(resources, own)
            _depend_on(nested, resources[own], added)
            self._warn_of_loose(loose, resources)

    def _warn_of_loose(self, loose: Sequence[str], resources: Mapping[str, Any]) -> None:
        if loose:
            Annotations.of(self).add_warning_v2(
                "cdk-hyperpod:unordered",
                f"{', '.join(_path(name, resources[name]) for name in loose)} cannot come before ScaleDown; if one of them fails, the "
                "deployment has deleted nodes already; remove what makes it wait for ScaleDown, or move it to another stack",
            )

    def _said(self, properties: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
        """Logical id and properties, as they were set, of the cluster and of what the guard sends: one call to Node."""
        sending = {"prepare": self.prepare, "finalize": self.finalize}
        resources = {name: typing.cast(CfnResource, made.node.default_child) for name, made in sending.items()}
        ids = {name: resource.logical_id for name, resource in resources.items()} | {
            "cluster": self._cluster.logical_id
        }
        said = {name: properties_as_set(resource) for name, resource in resources.items()}
        resolved = self._stack.resolve([ids, said | {"cluster": properties}])
        return typing.cast(tuple[dict[str, str], dict[str, Any]], tuple(resolved))

    def _warn_of_another(self, stack: Stack) -> None:
        # A nested stack is a resource of its parent's, and is cancelled with it.
        guards = _guards.setdefault(_outermost(stack), [])
        if guards:
            Annotations.of(self).add_warning_v2(
                "cdk-hyperpod:two-guards",
                f"{guards[0].node.path} guards another cluster of this stack: where one of the two refuses, CloudFormation "
                "cancels the update of the other after its nodes went; give each cluster a stack of its own",
            )
        guards.append(self)

    def _made_channel(self) -> DrainChannel:
        assert self._key is not None
        return DrainChannel(self, "DrainChannel", cluster_name=self._name, encryption_key=self._key)

    def _role(self) -> iam.Role:
        return iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Takes nodes and instance groups of HyperPod cluster {self._name}",
        )

    def _provider(self, on_event: lambda_.Function, is_complete: lambda_.Function) -> custom_resources.Provider:
        provider = custom_resources.Provider(
            self,
            "Provider",
            on_event_handler=on_event,
            is_complete_handler=is_complete,
            query_interval=_POLL,
            total_timeout=_TIMEOUT,
            log_group=self._log_group("FrameworkLog"),
            provider_function_name=self._function_name("provider"),
        )
        for name in _FRAMEWORK:
            function = typing.cast(lambda_.Function, provider.node.find_child(name))
            # A refusal is read in CloudFormation's event, which has no room for the framework's stack trace.
            function.add_environment("NODE_OPTIONS", "--stack-trace-limit=0")
        self._acknowledge_provider(provider)
        return provider

    def _function(self, construct_id: str, handler: str, role: iam.Role) -> lambda_.Function:
        return python_function(
            self,
            construct_id,
            function_name=self._function_name(construct_id.lower()),
            description=f"Scaling down HyperPod cluster {self._name}",
            handler=f"hyperpod.scale_down.handler.{handler}",
            role=role,
            log_group=self._log_group(f"{construct_id}Log"),
            timeout=_FUNCTION_TIMEOUT,
        )

    def _log_group(self, construct_id: str) -> logs.ILogGroup:
        if self._given_log_group is not None:
            return self._given_log_group
        return make_log_group(self, construct_id, encryption_key=self._key, removal_policy=self._removal_policy)

    def _function_name(self, part: str) -> str:
        return f"{self._prefix}-{part}"

    def _acknowledge_provider(self, provider: custom_resources.Provider) -> None:
        """The provider framework is CDK's own: its roles, its runtime and its waiter."""
        acknowledge(
            provider, {**reasons.PROVIDER, **dict.fromkeys(wildcards_of_cdk(provider), reasons.PROVIDER_INVOKES)}
        )


def _check_made_here(cluster: object) -> Iterator[Finding]:
    if isinstance(cluster, IHyperPodCluster) and cluster.resource is None:
        yield Finding(
            path="cluster",
            problem="is not made by this app",
            remedy="guard it in the stack that makes it",
        )


def _check_stack(guard: Construct, resource: sagemaker.CfnCluster) -> Iterator[Finding]:
    if Stack.of(resource) != Stack.of(guard):
        yield Finding(
            path="cluster",
            problem="stands in another stack",
            remedy="make ScaleDown in the stack of the cluster",
        )


def _drain_properties(
    stack: Stack, drain: ScaleDownDrain | None, channel: DrainChannel | IEksDrainer | None
) -> dict[str, str]:
    if drain is None or channel is None:
        return {}
    if isinstance(channel, IEksDrainer):
        asked = {"Function": channel.function_arn, "UnmanagedPods": drain.unmanaged_pods}
        must = channel.backup_cron_job is not None
    else:
        backup = channel.drain.backup
        asked, must = {"Bucket": channel.bucket_name}, backup is not None and backup.on_failure == "fail"
    told = {
        **asked,
        "TimeoutMinutes": drain.timeout_minutes,
        "OnTimeout": drain.on_timeout,
        "OnSilent": drain.on_silent or "fail",
        "MustBeSaved": must,
    }
    return {"Drain": stack.to_json_string(told)}


def _check_alone(cluster: sagemaker.CfnCluster) -> Iterator[Finding]:
    if any(isinstance(needed.node.scope, ScaleDown) for needed in cluster.node.dependencies):
        yield Finding(
            path="cluster",
            problem="has a guard already, and each of the two would wait for the other",
            remedy="leave this one out; or make the cluster with unguarded=True, which keeps the names of what is deployed",
        )


def _depend_on(resource: CfnResource, rendered: Mapping[str, Any], added: Sequence[str]) -> None:
    """Add to what a resource waits for; it is rendered already."""
    if added:
        needed = rendered.get("DependsOn") or []
        resource.add_override("DependsOn", [*([needed] if isinstance(needed, str) else needed), *added])


def _path(logical_id: str, resource: Any) -> str:
    """A resource's path in the app, by which its author knows it."""
    metadata = resource.get("Metadata", {}) if isinstance(resource, Mapping) else {}
    return str(metadata.get("aws:cdk:path", logical_id)).removesuffix("/Resource")


def _outermost(stack: Stack) -> Stack:
    """The stack that is deployed: a nested one goes with it."""
    while stack.nested_stack_parent is not None:
        stack = stack.nested_stack_parent
    return stack


def _prefix(construct: Construct, stack: Stack) -> str:
    """What the functions' names begin with, at most 53 characters: unique for a construct in an account and region.

    Without the cluster's name: CloudFormation refuses a custom resource whose function changed, and whoever renames the
    cluster would read that, and not why a cluster keeps its name.
    """
    stack = _outermost(stack)
    name = stack.stack_name
    inside = construct.node.path.removeprefix(f"{stack.node.path}/")
    digest = hashlib.sha256(f"{name}/{inside}".encode()).hexdigest()[:8]
    return f"hyperpod-{name.removeprefix('hyperpod-')[:35]}-{digest}"


@jsii.implements(IValidation)
class _Guarded:
    """Says at synthesis why the cluster, as it is by then, cannot be guarded."""

    def __init__(self, guard: ScaleDown, names_to_delete: Sequence[str]) -> None:
        self._guard = guard
        self._names_to_delete = names_to_delete

    def validate(self) -> list[str]:
        """A message for each reason, or none."""
        return [str(finding) for finding in self._guard._judge(self._names_to_delete)]
