"""The stack that has the live cluster: which one it is, its template, and what its last deployment left."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...config.cluster import ClusterConfig
from ...errors import HyperPodError
from .. import aws
from ..aws import Clients

if TYPE_CHECKING:
    from ..._lambda.hyperpod.scale_down.actions import Plan
    from ..._lambda.hyperpod.scale_down.cluster import Cluster


class PlanError(HyperPodError):
    """The live cluster could not be read, or is not the file's."""


def refuse_another_account(config: ClusterConfig | None, client: Clients, account: str | None = None) -> None:
    """Raises PlanError where the file names another account than that of the credentials. `account`: theirs; None: not known."""
    if config is None or config.account is None:
        return
    if (why := aws.another_account(config.account, account or _callers_account(client))) is not None:
        raise PlanError(why)


def _callers_account(client: Clients) -> str:
    """The account of the user's credentials: STS lets everybody ask who they are."""
    from ..._lambda.hyperpod.common import api

    try:
        return str(client("sts").get_caller_identity()["Account"])
    except api.CALL_ERRORS as error:
        raise PlanError(f"cannot read the account of your credentials: {aws.sentence(error)}") from None


def live_stack(cluster: str, client: Clients) -> str | None:
    """The stack that has the cluster of this name; None: there is no such cluster, or none made it. Raises api.CALL_ERRORS."""
    from ..._lambda.hyperpod.common import api

    sagemaker = client("sagemaker")
    try:
        return tagged_stack(api.read_tags(sagemaker, sagemaker.describe_cluster(ClusterName=cluster)["ClusterArn"]))
    except api.CALL_ERRORS as error:
        if aws.is_gone(error):
            return None
        raise


def tagged_stack(tags: Mapping[str, str] | None) -> str | None:
    """The stack that a live cluster's tags name, in whatever app; None: no stack made it."""
    return next((stack_id.split("/")[1] for stack_id in _stack_ids(tags)), None)


def stack_id_of(stack: str, live: Cluster | None) -> str:
    """The id of the stack, where the live cluster's tags hold it; otherwise the stack's name, which is no id."""
    return next(
        (found for found in _stack_ids(tags_of(live)) if f":stack/{stack}/" in found), f"the id of stack {stack}"
    )


def tags_of(live: Cluster | None) -> Mapping[str, str] | None:
    """The live cluster's tags. None: there is no cluster, or they were not read."""
    return None if live is None else live.tags


def _stack_ids(tags: Mapping[str, str] | None) -> Iterator[str]:
    from ..._lambda.hyperpod.common.owner import OWNER_TAGS

    return (tags[tag] for tag in OWNER_TAGS if ":stack/" in tags.get(tag, "")) if tags else iter(())


def deployed_template(
    live: Cluster | None, stack: str, client: Clients
) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """The resources of the deployed template; None: nobody knows, with a note where there is a cluster."""
    from ..._lambda.hyperpod.common import api

    if live is None:
        return None, ()
    unread = "What was deployed before was not read"
    try:
        reply = client("cloudformation").get_template(StackName=stack)
        body = reply.get("TemplateBody", "")
        # botocore reads the text of a JSON template by itself (botocore.handlers.json_decode_template_body).
        resources: Mapping[str, Any] = (json.loads(body) if isinstance(body, str) else body)["Resources"]
    except api.CALL_ERRORS as error:
        if "does not exist" in api.reason(error):
            return {}, ()
        return None, (f"{unread}: {aws.sentence(error)}",)
    except (ValueError, KeyError, TypeError):
        return None, (f"{unread}: the stack's template is not JSON.",)
    return resources, ()


def deployed_ids(resources: Mapping[str, Any]) -> frozenset[str]:
    """Ids that the deployed template names: tombstones, which a deployment refuses for nothing."""
    return frozenset(deployed_guard(resources).get("NodesToDelete", ()))


def deployed_guard(resources: Mapping[str, Any]) -> Mapping[str, Any]:
    """The properties of the deployed guard; empty: there is none."""
    from ..._lambda.hyperpod.scale_down.properties import PREPARE

    (guard,) = [each for each in resources.values() if each["Type"] == PREPARE] or [{}]
    found: Mapping[str, Any] = guard.get("Properties", {})
    return found


def still_standing(stack_name: str, found: Plan, client: Clients) -> Iterator[str]:
    """What an earlier deployment left, where it is still there and still to go."""
    from ..._lambda.hyperpod.common import api

    if not found.deletions:
        return
    try:
        (stack,) = client("cloudformation").describe_stacks(StackName=stack_name)["Stacks"]
    except api.CALL_ERRORS as error:
        if "does not exist" not in api.reason(error):
            yield f"What the last deployment left standing was not read: {aws.sentence(error)}"
        return
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}
    if outputs.get("StillStanding", "nothing") != "nothing":
        yield (
            f"The last deployment left standing: {outputs['StillStanding']}. The same file again would change nothing: write "
            "another scale_down.retry (any text), and the deployment goes on."
        )
