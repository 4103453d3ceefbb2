"""IAM's answers outside of a request: for a role that a service assumes, and for a service that a resource's policy
names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ministack.core import iam_evaluator, responses  # type: ignore[import-not-found]
from ministack.services import iam, kms, lambda_svc, sns, sqs  # type: ignore[import-not-found]

Json = Any

_observers: list[Callable[[str, str, str, bool], None]] = []


def observe(observer: Callable[[str, str, str, bool], None]) -> None:
    """Call observer(who, action, resource, allowed) for every check of a role."""
    _observers.append(observer)


def decision(role: str, session: str, action: str, resource: str, keys: Json = None) -> str:
    """What IAM decides for a role's session: Allow, Deny or ImplicitDeny. `keys`: the request's condition keys."""
    account, name = responses.get_account_id(), role.rpartition("/")[2]
    policies = iam_evaluator._gather_role_policies(name, account)
    limits = iam_evaluator._permissions_boundary(iam._roles, name, account)
    context = _context(f"arn:aws:sts::{account}:assumed-role/{name}/{session}", "AssumedRole", action, resource, keys)
    return str(iam_evaluator.evaluate(context, policies, *limits).decision)


def role_may(role: str, session: str, action: str, resource: str) -> bool:
    """Whether a role that a service has assumed may do this."""
    allowed = decision(role, session, action, resource) == "Allow"
    who = f"arn:aws:sts::{responses.get_account_id()}:assumed-role/{role.rpartition('/')[2]}/{session}"
    for observer in _observers:
        observer(who, action, resource, allowed)
    return allowed


def service_may_publish(topic: str, service: str, source: str) -> bool:
    """Whether the policies of a topic and of its key let a service publish for its resource `source`."""
    account = responses.get_account_id()
    _over_tls()
    if not sns.topic_policy_allows(topic, service, source, account):
        return False
    key = topic_key(topic)
    return key is None or all(
        _service_may(key_policy(key), service, action, key, source) for action in ("kms:GenerateDataKey", "kms:Decrypt")
    )


def service_may_send(queue: str, service: str, source: str) -> bool:
    """Whether the policy of a queue, and of its KMS key, lets a service send for its resource `source`.

    EventBridge names no source to KMS.
    """
    _over_tls()
    found = sqs._queue_by_arn(queue)
    if found is None or not sqs.queue_policy_allows(queue, service, source, responses.get_account_id()):
        return False
    key = found["attributes"].get("KmsMasterKeyId")
    return key is None or all(
        _service_may(key_policy(key), service, action, key, None) for action in ("kms:GenerateDataKey", "kms:Decrypt")
    )


def service_may_invoke(function: str, service: str, source: str) -> bool:
    """Whether the policy of a function lets a service invoke it for its resource `source`."""
    _over_tls()
    found = lambda_svc.function_policy_for_arn(function)
    return found is not None and _service_may(found[0], service, "lambda:InvokeFunction", function, source)


def _over_tls() -> None:
    """AWS's services call each other over TLS. Outside of a request, ministack assumes that nobody does."""
    iam_evaluator.pin_request_origin("127.0.0.1", True)


def topic_key(topic: str) -> str | None:
    """The KMS key of a topic; None if it has none."""
    found = sns._topics.get(topic) or {}
    key: str | None = found.get("attributes", {}).get("KmsMasterKeyId") or None
    return key


def key_policy(key: str) -> str:
    """Empty if the key does not exist, or is one of AWS's own (alias/aws/…), whose policy names no such service."""
    found = None if key.rpartition(":")[2].startswith("alias/aws/") else kms.key_policy_for_arn(key)
    return "" if found is None else str(found[0])


def _service_may(policy: Json, service: str, action: str, resource: str, source: str | None) -> bool:
    account = responses.get_account_id()
    keys = {"aws:sourcearn": source, "aws:sourceaccount": account} if source else {}
    context = _context("*", "Service", action, resource, keys)
    return bool(iam_evaluator.evaluate_resource_policy(policy, context, service=service).decision == "Allow")


def _context(who: str, kind: str, action: str, resource: str, keys: Json) -> Any:
    return iam_evaluator.EvalContext(
        principal_arn=who,
        principal_type=kind,
        principal_account="" if kind == "Service" else responses.get_account_id(),
        action=action,
        resource_arn=resource,
        region=responses.get_region(),
        service_context=keys or {},
    )
