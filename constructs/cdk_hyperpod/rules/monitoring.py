"""Rules of `monitoring`: the topic, its subscribers, and what standard provisioning does not report.

Sources: the SNS and CloudWatch user guides (an alarm sends to topics of its own account and region), and the developer guide's page
"SageMaker HyperPod cluster events reference".
"""

from __future__ import annotations

from collections.abc import Iterator

from ..config.cluster import ClusterConfig
from ..errors import Finding
from ..typed.known import is_known
from ..typed.validation import check_repeated


def check_monitoring(config: ClusterConfig) -> Iterator[Finding]:
    """Everything that is wrong with the file's `monitoring`."""
    monitoring = config.monitoring
    if monitoring is None or not is_known(monitoring):
        return
    yield from check_topic(
        monitoring.topic_arn, region=config.region, account=config.account, path="monitoring.topic_arn"
    )
    yield from check_repeated(monitoring.emails, "monitoring.emails")
    if monitoring.topic_arn is not None and monitoring.emails:
        yield emails_of_another_topic("monitoring.emails", "monitoring.topic_arn")
    yield from check_events(config.node_provisioning_mode, "monitoring")


def check_topic(topic_arn: str | None, *, region: str | None, account: str | None, path: str) -> Iterator[Finding]:
    """A topic of another region or account. None, or a token: it is not known."""
    if topic_arn is None or not is_known(topic_arn):
        return
    _, _, _, topic_region, topic_account, *_ = topic_arn.split(":")
    yield from check_topic_place((topic_region, topic_account), region=region, account=account, path=path)


def check_topic_place(
    topic: tuple[str, str], *, region: str | None, account: str | None, path: str
) -> Iterator[Finding]:
    """Whether a topic is where the alarms are. `topic`: its region and its account. None, or a token: it is not known."""
    topic_region, topic_account = topic
    if region is not None and is_known((region, topic_region)) and region != topic_region:
        yield Finding(
            code="topic-in-another-region",
            path=path,
            problem=f"the topic is in {topic_region}, and the cluster's alarms are in {region}, which reach topics of {region} only",
            remedy=f"name a topic in {region}",
        )
    if account is not None and is_known((account, topic_account)) and account != topic_account:
        yield Finding(
            code="topic-in-another-account",
            path=path,
            problem=f"the topic is in account {topic_account}, and the cluster's alarms are in {account}",
            remedy=f"name a topic of {account}, and subscribe to it from {topic_account}",
        )


def check_events(node_provisioning_mode: str | None, path: str) -> Iterator[Finding]:
    """Standard provisioning sends no Cluster Event. None: it is not known."""
    if node_provisioning_mode == "standard":
        yield Finding(
            code="no-cluster-events",
            path=path,
            problem="HyperPod sends no cluster events under standard provisioning, so no message says why a node failed; "
            "changes of the cluster's status, node health and alarms are reported",
            remedy="use node_provisioning_mode: continuous for a new cluster",
            level="warning",
        )


def emails_of_another_topic(path: str, topic_path: str) -> Finding:
    """E-mail addresses beside a topic that this app does not create."""
    return Finding(
        code="emails-with-topic",
        path=path,
        problem=f"{topic_path} names an existing topic, and emails are subscribed to a created one only",
        remedy="subscribe them to that topic yourself, or remove the topic",
    )
