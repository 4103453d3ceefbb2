"""The guard: it deletes nodes by name and deletes instance groups, which CloudFormation cannot do.

Two custom resources surround the cluster. Whenever a property of the cluster changes, `prepare` runs before CloudFormation
updates the cluster. It refuses changes that would delete nodes by accident, and it deletes the chosen nodes. So the cluster's own
update has nothing left to remove; otherwise HyperPod would terminate nodes at random. `finalize` runs after the update, and deletes
the groups that should be deleted and still exist. docs/delete-nodes.md and docs/delete-group.md explain it for users.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Annotations, CfnOutput, CfnResource, CustomResource, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from .._cdk_private import properties_of
from .._common.acknowledge import without_traces
from .._common.removal import check_removal
from .._lambda.hyperpod.kernel.owner import STACK_ID_TAG
from ..config.cluster import InstanceGroup
from ..config.rendering import guard_properties, patching_off
from ..config.scale_down import ScaleDownConfig, ScaleDownDrain
from ..errors import Finding, raise_errors
from ..interface import IHyperPodCluster
from ..loader import LoadedConfig
from ..rules import check_scale_down
from ..rules.guard import check_guarded, check_size
from ..typed.annotations import arguments_of, field_types
from ..typed.validation import as_tuple, check_call, check_config, require_arguments
from .cluster_template import ClusterTemplate, without_tags
from .deployed_stack import function_name_prefix, register_guard
from .drain_channel import DrainChannel, IEksDrainer, drain_properties
from .drain_checks import check_drain_arguments
from .permissions import allow_reading, allow_writing
from .provider import GuardLogs, guard_function, guard_provider
from .template_validation import GuardedCluster, TemplateValidation

UNGUARDED = "cdk-hyperpod:unguarded"
"""The id of the warning about a cluster without a guard. A guard acknowledges it."""


class ScaleDown(Construct):
    """The guard of one cluster: it deletes only the nodes and groups that you name, and refuses accidents.

    Running nodes: a deployment deletes the nodes and groups that the arguments name. If you lower a count, it deletes as many more
    nodes as needed, in a fixed order. With `drain`, nodes are drained first. No other node is deleted: a deployment that cannot
    keep this promise is refused. docs/not-guaranteed.md lists what cannot be promised.
    Cost: two small functions that run during deployments.

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
    """Runs before the cluster's update: it deletes nodes, or refuses the change."""
    finalize: CustomResource
    """Runs after the cluster's update: it deletes groups."""
    nodes_taken: CfnOutput
    """Output: the nodes that the last deployment deleted."""
    still_standing: CfnOutput
    """Output: the groups that should be deleted and still exist. `nothing`: all are deleted."""
    drain_channel: DrainChannel | IEksDrainer | None
    """How a drain is requested: the channel of the agent, or the drainer of an EKS cluster. None: nodes are not drained."""

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
        """Guard a cluster, a `HyperPodCluster` or any `CfnCluster`.

        The guard's properties are rendered at synthesis, so later changes of the cluster count. These are errors at synthesis:
        `add_property_override` of a property that the guard uses, and an override of `DependsOn` that removes the cluster from the
        guard's order.

        The guard deletes nodes after every other resource of the stack, and of the stacks around it, has changed. It deletes groups after
        the resources that need the cluster too. So a failure of another resource costs no node. A warning names the resources that
        cannot be ordered this way.

        :param cluster: in the same stack, with a name and instance groups, and without restricted groups. A `HyperPodCluster` has
            a guard already, unless it was made with `unguarded=True`.
        :param nodes_to_delete: ids of nodes that the next deployment deletes. Ids of deleted nodes may stay, up to a few thousand.
            Default: - none by name.
        :param instance_groups_to_delete: groups that the next deployment deletes, with all their nodes. Remove them from the
            cluster in the same deployment. Default: - none.
        :param max_nodes: a deployment that would delete more nodes than this is refused, and deletes none.
        :param drain: how nodes are drained before they are deleted: by an agent on the controller, or under EKS by an `EksDrainer`.
            Default: - nodes are not drained.
        :param drain_channel: the channel of that agent, or the `EksDrainer`. Default: - that of a `HyperPodCluster`, or of its
            lifecycle scripts. For another Slurm cluster a channel is made, which needs `encryption_key`. You start the agent there
            (docs/not-guaranteed.md), so `drain.on_silent` is required.
        :param retry: any text. A new text makes the next deployment continue if a group still exists. Default: - none.
        :param autoscaled_groups: groups whose counts an autoscaler sets. The guard deletes only named nodes there. A
            `HyperPodCluster` adds its own. Default: - none.
        :param encryption_key: encrypts the logs, and the drain channel if one is made. Default: - the key of a `HyperPodCluster`;
            for another cluster, CloudWatch's own key.
        :param log_group: the log group of the functions. Default: - three are made, which keep events for a year.
        :param removal_policy: of the log groups that are made, when they leave the stack: RETAIN or DESTROY.
            Default: - RemovalPolicy.DESTROY.
        :raises ConfigError: for invalid or contradictory arguments, and for a cluster that cannot be guarded.
        """
        super().__init__(scope, construct_id)
        config = ScaleDownConfig(
            nodes_to_delete=as_tuple(nodes_to_delete),
            instance_groups_to_delete=as_tuple(instance_groups_to_delete),
            max_nodes=max_nodes,
            drain=drain,
            retry=retry,
        )
        argument_findings = [
            *check_call(ScaleDown.__init__, locals(), apart=field_types(ScaleDownConfig)),
            *check_removal(removal_policy),
            *check_config(config, "scale_down", lambda known: check_scale_down(known, ())),
        ]
        without_traces(self)
        resource = _resource_of(cluster)
        properties = {} if resource is None else without_tags(properties_of(resource))
        self._validate_cluster(cluster, resource, properties, argument_findings)
        assert resource is not None  # the validation requires it
        defaults = _defaults_from(cluster)
        key = encryption_key or defaults.encryption_key
        channel = drain_channel or defaults.drain_channel
        self._validate_settings(config, cluster, properties, channel, key)
        self._cluster = resource
        self._name = typing.cast(str, resource.cluster_name)
        self._stack = Stack.of(self)
        self._prefix = function_name_prefix(self)
        self._logs = GuardLogs(log_group=log_group, encryption_key=key, removal_policy=removal_policy)
        self._cluster_template = ClusterTemplate(resource, self._stack, properties)
        self._mark_as_guarded()
        register_guard(self)
        self.drain_channel = None if config.drain is None else channel or self._add_drain_channel(key)
        self._add_resources(config, list(dict.fromkeys([*defaults.autoscaled_groups, *autoscaled_groups])))
        if isinstance(cluster, IHyperPodCluster):
            name_patching_off(self, cluster.instance_groups)
        self._add_outputs()
        self._add_validation(config)

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        cluster: IHyperPodCluster,
    ) -> ScaleDown:
        """The guard of a cluster file's cluster, with the settings of its `scale_down`.

        :param loaded: the file.
        :param cluster: made by `HyperPodCluster.from_config` with `unguarded=True`.
        :raises ConfigError: for a cluster that cannot be guarded.
        """
        require_arguments(ScaleDown.from_config, construct_id, loaded=loaded, cluster=cluster)
        return cls(scope, construct_id, cluster=cluster, **arguments_of(loaded.config.scale_down or ScaleDownConfig()))

    def _validate_cluster(
        self,
        cluster: object,
        resource: sagemaker.CfnCluster | None,
        properties: Mapping[str, Any],
        argument_findings: Sequence[Finding],
    ) -> None:
        """Raise ConfigError with everything that is wrong with the arguments and with the cluster."""
        findings = [*argument_findings, *_check_made_here(cluster)]
        if resource is not None:
            findings += _check_stack(self, resource)
            findings += check_guarded(properties)
            findings += _check_alone(resource)
        raise_errors(findings, lambda: self.node.path)

    def _validate_settings(
        self,
        config: ScaleDownConfig,
        cluster: object,
        properties: Mapping[str, Any],
        channel: DrainChannel | IEksDrainer | None,
        encryption_key: kms.IKey | None,
    ) -> None:
        """Raise ConfigError if the settings do not match the cluster, and warn about nodes that are not drained."""
        drain_findings = check_drain_arguments(config.drain, channel, cluster, properties, encryption_key)
        raise_errors(drain_findings, lambda: self.node.path)
        size_findings = check_size(properties, config.nodes_to_delete, config.instance_groups_to_delete)
        raise_errors(size_findings, lambda: self.node.path)
        names_something = bool(config.nodes_to_delete or config.instance_groups_to_delete)
        if names_something and config.drain is None:
            Annotations.of(self).add_warning_v2(
                "cdk-hyperpod:undrained",
                "a deployment does not drain the nodes and groups that scale_down names; drain them before you deploy, or set scale_down.drain",
            )

    def _mark_as_guarded(self) -> None:
        """Tag the cluster as this stack's, which the guard's functions check, and drop the warning of an unguarded cluster."""
        self._cluster.cdk_tag_manager.set_tag(STACK_ID_TAG, self._stack.stack_id)
        Annotations.of(self._cluster).acknowledge_warning(UNGUARDED, "ScaleDown guards it.")

    def _add_drain_channel(self, encryption_key: kms.IKey | None) -> DrainChannel:
        assert encryption_key is not None  # check_drain_arguments requires it
        return DrainChannel(self, "DrainChannel", cluster_name=self._name, encryption_key=encryption_key)

    def _add_resources(self, config: ScaleDownConfig, autoscaled_groups: Sequence[str]) -> None:
        role = self._add_role()
        on_event = self._add_function("OnEvent", "on_event", role)
        is_complete = self._add_function("IsComplete", "is_complete", role)
        reading = allow_reading(
            self,
            role,
            cluster_name=self._name,
            region=self._stack.region,
            functions=[on_event, is_complete],
            channel=self.drain_channel,
        )
        provider = guard_provider(self, on_event, is_complete, prefix=self._prefix, logs=self._logs)
        properties = self._resource_properties(config, autoscaled_groups)
        self.prepare = self._add_prepare(provider.service_token, properties, reading)
        writing = allow_writing(
            self,
            role,
            self._cluster,
            cluster_name=self._name,
            region=self._stack.region,
            template=self._cluster_template,
        )
        self.finalize = self._add_finalize(provider.service_token, properties, writing)

    def _resource_properties(self, config: ScaleDownConfig, autoscaled_groups: Sequence[str]) -> dict[str, Any]:
        """The properties that both custom resources have."""
        properties = guard_properties(
            self._name,
            self._cluster_template.token(lambda cluster: cluster.group_texts),
            config,
            autoscaled_groups=autoscaled_groups,
            digest=self._cluster_template.token(lambda cluster: cluster.digest),
        )
        if config.drain is not None and self.drain_channel is not None:
            drain = drain_properties(config.drain, self.drain_channel)
            properties["Drain"] = self._stack.to_json_string(drain)
        return properties

    def _add_prepare(
        self, service_token: str, properties: Mapping[str, Any], reading: iam.CfnManagedPolicy
    ) -> CustomResource:
        """Add what runs before the cluster, after its own permissions and its own drain channel."""
        prepare = CustomResource(
            self,
            "Prepare",
            resource_type="Custom::HyperPodScaleDown",
            service_token=service_token,
            properties={
                **properties,
                "CreateOnly": self._cluster_template.token(lambda cluster: cluster.create_only),
            },
        )
        prepare.node.add_dependency(reading)
        if self.drain_channel is not None and Stack.of(self.drain_channel) is self._stack:
            prepare.node.add_dependency(self.drain_channel)
        self._cluster.node.add_dependency(prepare)
        return prepare

    def _add_finalize(
        self, service_token: str, properties: Mapping[str, Any], writing: iam.CfnManagedPolicy
    ) -> CustomResource:
        """Add what runs after the cluster."""
        finalize = CustomResource(
            self,
            "Finalize",
            resource_type="Custom::HyperPodGroupRemoval",
            service_token=service_token,
            properties=properties,
        )
        finalize.node.add_dependency(self._cluster, writing)
        return finalize

    def _add_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Deletes nodes and instance groups of HyperPod cluster {self._name}",
        )
        if isinstance(self.drain_channel, DrainChannel):
            self.drain_channel.add_guard_role(role)
        return role

    def _add_function(self, construct_id: str, handler: str, role: iam.Role) -> lambda_.Function:
        return guard_function(
            self, construct_id, handler, prefix=self._prefix, cluster_name=self._name, role=role, logs=self._logs
        )

    def _add_outputs(self) -> None:
        self.nodes_taken = CfnOutput(
            self,
            "NodesTaken",
            value=self.prepare.get_att_string("NodesTaken"),
            description="Nodes that the last deployment which changed the cluster deleted, and why",
        )
        self.still_standing = CfnOutput(
            self,
            "StillStanding",
            value=self.finalize.get_att_string("StillStanding"),
            description="Groups that should be deleted and still exist. Change scale_down.retry to continue",
        )

    def _add_validation(self, config: ScaleDownConfig) -> None:
        guarded = GuardedCluster(
            name=self._name,
            cluster=self._cluster,
            template=self._cluster_template,
            prepare=self.prepare,
            finalize=self.finalize,
            names_to_delete=[*config.nodes_to_delete, *config.instance_groups_to_delete],
        )
        self.node.add_validation(TemplateValidation(self, guarded))


def name_patching_off(guard: ScaleDown, groups: Sequence[InstanceGroup]) -> None:
    """Name the groups that set `auto_patch` or `scheduled_update` to none: a deployment may turn off what is live there."""
    off = patching_off(groups)
    for resource in (guard.prepare, guard.finalize) if off else ():
        properties = typing.cast(CfnResource, resource.node.default_child)
        properties.add_property_override("PatchingOff", Stack.of(guard).to_json_string(off))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterDefaults:
    """What a `HyperPodCluster` provides for arguments that are absent. Any other cluster provides nothing."""

    encryption_key: kms.IKey | None = None
    drain_channel: DrainChannel | IEksDrainer | None = None
    autoscaled_groups: Sequence[str] = ()


def _defaults_from(cluster: object) -> _ClusterDefaults:
    if not isinstance(cluster, IHyperPodCluster):
        return _ClusterDefaults()
    return _ClusterDefaults(
        encryption_key=cluster.encryption_key,
        drain_channel=cluster.drain_channel or cluster.drainer,
        autoscaled_groups=cluster.autoscaled_groups,
    )


def _resource_of(cluster: object) -> sagemaker.CfnCluster | None:
    """CloudFormation's resource. None: another app's cluster, or not a cluster."""
    resource = cluster.resource if isinstance(cluster, IHyperPodCluster) else cluster
    return resource if isinstance(resource, sagemaker.CfnCluster) else None


def _check_made_here(cluster: object) -> Iterator[Finding]:
    if isinstance(cluster, IHyperPodCluster) and cluster.resource is None:
        yield Finding(
            code="guard-in-another-app",
            path="cluster",
            problem="is not made by this app",
            remedy="guard it in the stack that makes it",
        )


def _check_stack(guard: Construct, resource: sagemaker.CfnCluster) -> Iterator[Finding]:
    if Stack.of(resource) != Stack.of(guard):
        yield Finding(
            code="guard-in-another-stack",
            path="cluster",
            problem="is in another stack",
            remedy="make ScaleDown in the stack of the cluster",
        )


def _check_alone(cluster: sagemaker.CfnCluster) -> Iterator[Finding]:
    if any(isinstance(needed.node.scope, ScaleDown) for needed in cluster.node.dependencies):
        yield Finding(
            code="guard-duplicated",
            path="cluster",
            problem="has a guard already, and each of the two would wait for the other",
            remedy="remove this one, or make the cluster with unguarded=True, which keeps the names of deployed resources",
        )
