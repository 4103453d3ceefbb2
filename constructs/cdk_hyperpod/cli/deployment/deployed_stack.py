"""The stack that has the live cluster: its name, its template, and groups that its last deployment did not delete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...config.cluster import ClusterConfig
from ...errors import HyperPodError
from .. import aws
from ..aws import Clients

if TYPE_CHECKING:
    from ..._lambda.hyperpod.scale_down.model.actions import Plan
    from ..._lambda.hyperpod.scale_down.model.cluster import Cluster


class PlanError(HyperPodError):
    """The live cluster could not be read, or is not the file's."""


def refuse_another_account(config: ClusterConfig | None, client: Clients, account: str | None = None) -> None:
    """Raises PlanError if the file names another account than that of the credentials. `account`: theirs; None: unknown."""
    if config is None or config.account is None:
        return
    if (why := aws.another_account(config.account, account or _callers_account(client))) is not None:
        raise PlanError(why)


def _callers_account(client: Clients) -> str:
    """The account of the user's credentials. This call needs no permission."""
    from ..._lambda.hyperpod.common import api

    try:
        return str(client("sts").get_caller_identity()["Account"])
    except api.CALL_ERRORS as error:
        raise PlanError(f"cannot read the account of your credentials: {aws.sentence(error)}") from None


def live_stack(cluster: str, client: Clients) -> str | None:
    """The stack that has the cluster of this name; None: there is no such cluster, or no stack created it. Raises api.CALL_ERRORS."""
    from ..._lambda.hyperpod.common import api

    sagemaker = client("sagemaker")
    try:
        return tagged_stack(api.read_tags(sagemaker, sagemaker.describe_cluster(ClusterName=cluster)["ClusterArn"]))
    except api.CALL_ERRORS as error:
        if aws.is_gone(error):
            return None
        raise


def tagged_stack(tags: Mapping[str, str] | None) -> str | None:
    """The stack that a live cluster's tags name, of any app; None: no stack created it."""
    return next((stack_id.split("/")[1] for stack_id in _stack_ids(tags)), None)


def stack_id_of(stack: str, live: Cluster | None) -> str:
    """The id of the stack, if the live cluster's tags have it; otherwise text that is not an id."""
    return next(
        (found for found in _stack_ids(tags_of(live)) if f":stack/{stack}/" in found), f"the id of stack {stack}"
    )


def tags_of(live: Cluster | None) -> Mapping[str, str] | None:
    """The live cluster's tags. None: there is no cluster, or they were not read."""
    return None if live is None else live.tags


def _stack_ids(tags: Mapping[str, str] | None) -> Iterator[str]:
    from ..._lambda.hyperpod.kernel.owner import OWNER_TAGS

    return (tags[tag] for tag in OWNER_TAGS if ":stack/" in tags.get(tag, "")) if tags else iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedTemplate:
    """The template of the stack's last deployment."""

    resources: Mapping[str, Any] | None = None
    """None: unknown. Empty: there is no such stack."""
    unread: tuple[str, ...] = ()
    """Why the template could not be read."""

    @property
    def is_known(self) -> bool:
        """Whether it was read, or is known not to exist."""
        return self.resources is not None

    @property
    def node_ids(self) -> frozenset[str]:
        """Ids that it names in nodes_to_delete. They may name nodes that are deleted: a deployment does not refuse those."""
        return frozenset(self._guard.get("NodesToDelete", ()))

    @property
    def groups(self) -> tuple[Mapping[str, Any], ...]:
        """The instance groups as it sends them, with references in them."""
        clusters = [each for each in (self.resources or {}).values() if each["Type"] == "AWS::SageMaker::Cluster"]
        found = clusters[0].get("Properties", {}).get("InstanceGroups", ()) if len(clusters) == 1 else ()
        return tuple(group for group in found if isinstance(group, dict)) if isinstance(found, list) else ()

    @property
    def has_drainer(self) -> bool:
        """Whether its guard drains nodes."""
        return "Drain" in self._guard

    @property
    def _guard(self) -> Mapping[str, Any]:
        """The properties of the deployed guard; empty: there is none."""
        from ..._lambda.hyperpod.scale_down.model.properties import PREPARE

        (guard,) = [each for each in (self.resources or {}).values() if each["Type"] == PREPARE] or [{}]
        found: Mapping[str, Any] = guard.get("Properties", {})
        return found


def deployed_template(live: Cluster | None, stack: str, client: Clients) -> DeployedTemplate:
    """The template of the stack; unknown without a cluster, and with a note if it cannot be read."""
    from ..._lambda.hyperpod.common import api

    if live is None:
        return DeployedTemplate()
    try:
        reply = client("cloudformation").get_template(StackName=stack)
    except api.CALL_ERRORS as error:
        if "does not exist" in api.reason(error):
            return DeployedTemplate(resources={})
        return _unread_template(f"{aws.sentence(error)}")
    body = reply.get("TemplateBody", "")
    try:
        # botocore parses a JSON template by itself (botocore.handlers.json_decode_template_body).
        template = json.loads(body) if isinstance(body, str) else body
        return DeployedTemplate(resources=template["Resources"])
    except (ValueError, KeyError, TypeError):
        return _unread_template("the stack's template is not JSON.")


def _unread_template(why: str) -> DeployedTemplate:
    return DeployedTemplate(unread=(f"The deployed template was not read: {why}",))


def remaining_groups(stack_name: str, found: Plan, client: Clients) -> Iterator[str]:
    """A note about groups that the last deployment has not deleted yet, if this plan deletes groups."""
    from ..._lambda.hyperpod.common import api

    if not found.groups_to_delete:
        return
    try:
        (stack,) = client("cloudformation").describe_stacks(StackName=stack_name)["Stacks"]
    except api.CALL_ERRORS as error:
        if "does not exist" not in api.reason(error):
            yield f"Whether the last deployment left groups to delete was not read: {aws.sentence(error)}"
        return
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}
    remaining = outputs.get("StillStanding", "nothing")
    if remaining != "nothing":
        yield (
            f"The last deployment did not finish deleting: {remaining}. Deploying the same file again changes nothing. "
            "Write another scale_down.retry (any text), and deploy."
        )
