"""Whether alarms and the alerts function can publish to a topic, as far as its policy and its key's policy tell.

`preflight` shows the same before a deployment. A condition of a statement is not evaluated: a statement that allows under a
condition counts as one that allows.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .refuse import Failure

CLOUDWATCH = "cloudwatch.amazonaws.com"
_KEY_ACTIONS = ("kms:GenerateDataKey*", "kms:Decrypt")
_KEY_CALLS = ("kms:GenerateDataKey", "kms:Decrypt")
_STACKS = "hyperpod-"
"""How the names of our stacks and of their roles begin."""
_MANAGED_KEY = "alias/aws/sns"


def problems(topic_arn: str, attributes: Mapping[str, str], key_policy: str | None) -> list[Failure]:
    """Why messages may not arrive, each with the statement to add. Empty: no reason is known.

    `attributes`: as sns:GetTopicAttributes answers. `key_policy`: of the topic's key. None: it has none, or it could not be read.
    """
    _, partition, _, _, account, _ = topic_arn.split(":")
    key = attributes.get("KmsMasterKeyId", "")
    found = []
    if not _allows(attributes.get("Policy"), ["sns:Publish"], [CLOUDWATCH]):
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
    elif key_policy is not None:
        found += _problems_of_key(key, key_policy, topic_arn, f"arn:{partition}:iam::{account}")
    return found


def _problems_of_key(key: str, policy: str, topic_arn: str, iam: str) -> Iterator[Failure]:
    """`iam`: how the ARN of a principal of the account begins."""
    account = iam.rpartition(":")[2]
    statement = key_statement(account)
    if not _allows(policy, _KEY_CALLS, [CLOUDWATCH]):
        yield Failure(
            code="topic-key-no-alarms",
            problem=f"the policy of {key} does not let CloudWatch use this key of {topic_arn}, so no alarm arrives",
            remedy=f"add this statement to it: {statement}",
        )
    # A key's policy has to name the role, or leave the decision to the account's IAM policies.
    if not _allows(policy, _KEY_CALLS, [f"{iam}:root", account, f"{iam}:role/{_STACKS}*"]):
        by_iam = {"Effect": "Allow", "Principal": {"AWS": f"{iam}:root"}, "Action": [*_KEY_ACTIONS], "Resource": "*"}
        statement = json.dumps(by_iam)
        yield Failure(
            code="topic-key-no-messages",
            problem=f"the policy of {key} does not let roles of the account use this key of {topic_arn}, so no message arrives",
            remedy=f"add this statement to it: {statement}",
        )


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


def _allows(policy: str | None, actions: Sequence[str], who: Sequence[str]) -> bool:
    """Whether a principal may do all of this. `who`: patterns of its names, each of which is enough."""
    statements = _statements(policy)
    return all(
        any(_applies(each, action, who) for each in statements if each.get("Effect") == "Allow")
        and not any(
            _applies(each, action, who) and not each.get("Condition")
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


def _applies(statement: Mapping[str, Any], action: str, who: Sequence[str]) -> bool:
    """Whether the statement is about the principal and this action. SNS's default policy names everybody, under a condition."""
    principal = statement.get("Principal")
    kinds = principal if isinstance(principal, Mapping) else {"AWS": principal}
    named = [*map(str, _listed(kinds.get("Service"))), *map(str, _listed(kinds.get("AWS")))]
    is_about = any(fnmatch.fnmatchcase(name, pattern) for name in named for pattern in ("[*]", *who))
    patterns = (str(each).lower() for each in _listed(statement.get("Action")))
    return is_about and any(fnmatch.fnmatchcase(action.lower(), pattern) for pattern in patterns)


def _listed(value: object) -> Iterable[Any]:
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)
