"""The topic that messages and alarms go to: a new one under a key, or one that the app gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from .._common.encryption import allow_alarms
from .._lambda.hyperpod.kernel.topic_access import key_statement
from ..errors import Finding
from ..typed.known import is_known


def new_topic(scope: Construct, key: kms.IKey, emails: Sequence[str]) -> sns.Topic:
    """A topic under a key, which accepts encrypted connections only."""
    topic = sns.Topic(scope, "Topic", master_key=key, enforce_ssl=True)
    for email in emails:
        topic.add_subscription(subscriptions.EmailSubscription(email))
    return topic


def let_alarms_in(topic: sns.ITopic) -> None:
    """Let the account's alarms publish to a topic of this app. The policy of an imported topic stays.

    Without a policy, SNS's default lets them in. Any policy replaces that one.
    """
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            sid="Alarms",
            actions=["sns:Publish"],
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            resources=[topic.topic_arn],
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(topic).account}},
        )
    )


def let_alarms_use(key: kms.IKey | None, path: str, account: str) -> Iterator[Finding]:
    """Let the account's alarms use the topic's key. If it is imported, a warning names the statement. None: no key is known."""
    if key is None or allow_alarms(key):
        return
    statement = key_statement(account if is_known(account) else "ACCOUNT")
    yield Finding(
        code="key-may-refuse-alarms",
        path=path,
        problem="is imported, so its policy stays as it is, and no alarm reaches the topic unless it lets cloudwatch.amazonaws.com use it",
        remedy=f"check that the key's policy has this statement: {statement}",
        level="warning",
    )
