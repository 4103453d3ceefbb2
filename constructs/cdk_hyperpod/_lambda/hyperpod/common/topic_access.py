"""Whether alarms and the alerts function can publish to a topic, as far as its policy and its key's policy tell.

`preflight` shows the same before a deployment. A condition of a statement is not evaluated: a statement that allows under a
condition counts as one that allows.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .refuse import Failure

CLOUDWATCH = "cloudwatch.amazonaws.com"
_KEY_ACTIONS = ("kms:GenerateDataKey*", "kms:Decrypt")
_MANAGED_KEY = "alias/aws/sns"


def problems(topic_arn: str, attributes: Mapping[str, str], key_policy: str | None) -> list[Failure]:
    """Why messages may not arrive, each with the statement to add. Empty: no reason is known.

    `attributes`: as sns:GetTopicAttributes answers. `key_policy`: of the topic's key. None: it has none, or it could not be read.
    """
    account, key = topic_arn.split(":")[4], attributes.get("KmsMasterKeyId", "")
    found = []
    if not _allows(attributes.get("Policy"), ["sns:Publish"], account):
        statement = _statement(["sns:Publish"], topic_arn, account)
        found.append(
            Failure(
                code="topic-policy-no-alarms",
                problem=f"the policy of {topic_arn} does not let CloudWatch publish, so no alarm arrives",
                remedy=f"add this statement to it: {statement}",
            )
        )
    statement = key_statement(account)
    if key.endswith(_MANAGED_KEY):
        found.append(
            Failure(
                code="topic-key-managed",
                problem=f"{topic_arn} is encrypted with the AWS managed key alias/aws/sns, which no alarm can use",
                remedy=f"encrypt it with a key of your own, whose policy has this statement: {statement}",
            )
        )
    elif key_policy is not None and not _allows(key_policy, ["kms:GenerateDataKey", "kms:Decrypt"], account):
        found.append(
            Failure(
                code="topic-key-no-alarms",
                problem=f"the policy of {key} does not let CloudWatch use this key of {topic_arn}, so no alarm arrives",
                remedy=f"add this statement to it: {statement}",
            )
        )
    return found


def has_own_key(attributes: Mapping[str, str]) -> bool:
    """Whether the topic has a key whose policy says who may use it."""
    key = attributes.get("KmsMasterKeyId", "")
    return bool(key) and not key.endswith(_MANAGED_KEY)


def read_key_policy(kms: Any, key: str) -> str:
    """The policy of a topic's key. A topic may name it by an alias, and GetKeyPolicy accepts the key's id or ARN only."""
    arn = kms.describe_key(KeyId=key)["KeyMetadata"]["Arn"]
    return str(kms.get_key_policy(KeyId=arn, PolicyName="default")["Policy"])


def key_statement(account: str) -> str:
    """The statement of a key's policy that lets the account's alarms publish to topics under the key, in one line."""
    return _statement(_KEY_ACTIONS, "*", account)


def _statement(actions: Sequence[str], resource: str, account: str) -> str:
    """A statement for a policy, in one line."""
    return json.dumps(
        {
            "Effect": "Allow",
            "Principal": {"Service": CLOUDWATCH},
            "Action": list(actions),
            "Resource": resource,
            "Condition": {"StringEquals": {"aws:SourceAccount": account}},
        }
    )


def _allows(policy: str | None, actions: Sequence[str], account: str) -> bool:
    """Whether CloudWatch's alarms of the account may do all of this."""
    statements = _statements(policy)
    return all(
        any(_applies(each, action, account) for each in statements if each.get("Effect") == "Allow")
        and not any(
            _applies(each, action, account) and not each.get("Condition")
            for each in statements
            if each.get("Effect") == "Deny"
        )
        for action in actions
    )


def _statements(policy: str | None) -> list[Mapping[str, Any]]:
    try:
        document = json.loads(policy or "{}")
    except ValueError:
        return []
    return [each for each in _listed(document.get("Statement")) if isinstance(each, Mapping)]


def _applies(statement: Mapping[str, Any], action: str, account: str) -> bool:
    """Whether the statement is about CloudWatch and this action. SNS's default policy names everybody, under a condition."""
    principal = statement.get("Principal")
    kinds = principal if isinstance(principal, Mapping) else {"AWS": principal}
    principals = {*map(str, _listed(kinds.get("Service"))), *map(str, _listed(kinds.get("AWS")))}
    is_about = bool(principals & {"*", CLOUDWATCH})
    patterns = (str(each).lower() for each in _listed(statement.get("Action")))
    return is_about and any(fnmatch.fnmatchcase(action.lower(), pattern) for pattern in patterns)


def _listed(value: object) -> Iterable[Any]:
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)
