"""The function's entry point and the only module that acts. Its input's shape tells what to do.

- SQS's records: events of HyperPod and lines of the health agent become messages. Records that fail are named in the answer.
- {"schedule": "metrics"}: write the metrics of the alarms.
- A subscription filter's lines: put them on the queue, so that its window collects them.
- CloudFormation's request: write the metrics once before their alarms are made, and report whether alarms can reach the topic. It fails
  no deployment.

Environment: CLUSTER_ARN, TOPIC_ARN, QUEUE_URL, LOG_GROUP (HyperPod's log group of the cluster; absent: unknown).
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..common.answer import answer, identify
from ..common.api import CALL_ERRORS, again, is_denied, is_not_found, is_passing, reason
from ..common.clients import client
from ..kernel.sentences import DENIED_HINT, cut, sentence
from ..kernel.topic_access import has_own_key, problems, read_key_policy
from . import decide, health_records, live, metrics
from .live import Live
from .memory import Memory
from .message import Answer, Look, Message
from .records import WORDS, reason_of, text

PHYSICAL_ID = "hyperpod-first-metrics"
_PLAN_AGE = timedelta(hours=1)
"""How long the end of a training plan is remembered."""
_PATIENCE = timedelta(seconds=25)
"""How long the first run waits for the function's own permissions, which IAM spreads with a delay."""
_VISIBLE = timedelta(seconds=40)
"""How long the first run waits until CloudWatch shows the heartbeat. The function has a minute."""
_OUTCOME = 1500
"""Maximum characters of an outcome: CloudFormation accepts 4,096 bytes of an answer."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run wrote."""

    cluster: str
    """Its name, as it is in the metrics."""
    unread: Sequence[str] = ()
    """What could not be measured, and why. Empty: there is a heartbeat."""


class HeartbeatNotVisible(Exception):
    """CloudWatch does not show the first heartbeat yet. Lambda invokes the function again, after a minute and after two."""


class Alerts:
    """One cluster's alerts, with clients from outside."""

    def __init__(
        self,
        environment: Mapping[str, str],
        clients: Callable[[str], Any] = client,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
        log: Callable[[str], None] = print,
    ) -> None:
        self._cluster_arn = environment["CLUSTER_ARN"]
        self._topic_arn = environment["TOPIC_ARN"]
        self._queue_url = environment["QUEUE_URL"]
        self._log_group = environment.get("LOG_GROUP", "")
        self._clients = clients
        self._now = now
        self._sleep = sleep
        self._log = log
        self._memory = Memory()
        self._plans: dict[str, tuple[datetime, datetime | None]] = {}
        self._waited: set[str] = set()
        """Requests of CloudFormation that a run has waited for in vain."""

    # -- messages ------------------------------------------------------------------------------------------------------

    def publish(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Publish the messages of a batch. Returns SQS's answer: the records that failed."""
        batch = decide.read(records)
        failed = list(batch.failed)
        if failed:
            self._log(f"records that are neither events nor health records: {len(failed)}")
        if batch.faults:
            failed += self._publish_faults(batch)
        return {"batchItemFailures": [{"itemIdentifier": each} for each in dict.fromkeys(failed)]}

    def _publish_faults(self, batch: decide.Batch) -> list[str]:
        look = self._look(next((fault.cluster for _, fault in batch.faults if fault.cluster), ""))
        found = decide.incidents(batch.faults, look.cluster)
        answers = dict(self._describe(list(decide.to_describe(found))))
        failed: list[str] = []
        for message in decide.messages(found, look, answers, self._memory, self._now()):
            if self._send(message):
                self._remember(message, look.cluster)
            else:
                failed += message.records
        return failed

    def _remember(self, message: Message, cluster: Live | None) -> None:
        for each in decide.reported(message, cluster):
            self._memory.note(each, self._now())
        if message.is_of_records:
            self._memory.note_record_message(self._now())

    def _look(self, named: str) -> Look:
        """The cluster. A message goes without it, too."""
        cluster, problem = None, ""
        try:
            cluster = self._read_cluster()
        except CALL_ERRORS as error:
            problem = "the cluster does not exist now" if is_not_found(error) else _failed("DescribeCluster", error)
            self._log(problem)
        name = named or self._name_without_cluster() if cluster is None else cluster.name
        return Look(cluster, problem, name, self._cluster_arn.split(":")[3])

    def _name_without_cluster(self) -> str:
        """The name in HyperPod's log group, /aws/sagemaker/Clusters/NAME/ID, or the cluster's id."""
        parts = self._log_group.split("/")
        return parts[-2] if len(parts) > 2 else self._cluster_arn.rpartition("/")[2]

    def _read_cluster(self) -> Live:
        return live.read(self._clients("sagemaker").describe_cluster(ClusterName=self._cluster_arn))

    def _describe(self, event_ids: Sequence[str]) -> Iterator[tuple[str, Answer]]:
        """Each event's reason. After a call that fails for another reason than the event, the others are not tried."""
        failure = ""
        for event_id in event_ids:
            if failure:
                yield event_id, Answer(problem=failure)
                continue
            try:
                reply = self._clients("sagemaker").describe_cluster_event(
                    ClusterName=self._cluster_arn, EventId=event_id
                )
                yield event_id, Answer(reason=reason_of(reply.get("EventDetails") or {}))
            except CALL_ERRORS as error:
                gone = is_not_found(error)
                problem = "HyperPod no longer has the event" if gone else _failed("DescribeClusterEvent", error)
                self._log(problem)
                failure = "" if gone else problem
                yield event_id, Answer(problem=problem)

    def _send(self, message: Message) -> bool:
        attributes = {name: _attribute(values) for name, values in message.attributes.items()}
        try:
            self._clients("sns").publish(
                TopicArn=self._topic_arn,
                Subject=message.subject,
                Message=message.body,
                MessageAttributes=attributes,
            )
        except CALL_ERRORS as error:
            self._log(f"not published: {message.subject}: {_failed('Publish', error)}")
            return False
        self._log(f"published: {message.subject}")
        return True

    # -- metrics -------------------------------------------------------------------------------------------------------

    def measure(self) -> Measured:
        """Write the metrics. The heartbeat is left out if anything could not be measured, so that its alarm reports it."""
        now = self._now()
        try:
            cluster = self._read_cluster()
        except CALL_ERRORS as error:
            if not is_not_found(error):
                raise
            name = self._name_without_cluster()
            self._put([metrics.heartbeat(name, now)])
            return Measured(name)
        ends, unread = self._plan_ends(cluster, now)
        beat = [] if unread else [metrics.heartbeat(cluster.name, now)]
        self._put([*beat, *metrics.of_cluster(cluster, ends, now)])
        return Measured(cluster.name, unread)

    def _put(self, measured: Sequence[metrics.Datum]) -> None:
        data = metrics.for_two_minutes(measured)
        for start in range(0, len(data), metrics.MOST):
            self._clients("cloudwatch").put_metric_data(
                Namespace=metrics.NAMESPACE, MetricData=data[start : start + metrics.MOST]
            )

    def _plan_ends(self, cluster: Live, now: datetime) -> tuple[dict[str, datetime], list[str]]:
        """The end of each training plan that has one, and why others could not be read."""
        unread = []
        for plan in sorted({group.plan for group in cluster.groups if group.plan}):
            read_at, _ = self._plans.get(plan, (None, None))
            if read_at is not None and now - read_at < _PLAN_AGE:
                continue
            try:
                self._plans[plan] = (now, self._read_plan_end(plan))
            except CALL_ERRORS as error:
                problem = _failed(f"DescribeTrainingPlan of {plan}", error)
                self._log(problem)
                unread.append(problem)
        return {plan: end for plan, (_, end) in self._plans.items() if end is not None}, unread

    def _read_plan_end(self, plan: str) -> datetime | None:
        """None: it has no end yet, or the plan does not exist."""
        try:
            reply = self._clients("sagemaker").describe_training_plan(TrainingPlanName=plan.rpartition("/")[2])
        except CALL_ERRORS as error:
            if is_not_found(error):
                return None
            raise
        end: datetime | None = reply.get("EndTime")
        return end

    # -- the health agent's lines --------------------------------------------------------------------------------------

    def forward(self, event: Mapping[str, Any]) -> None:
        """Put the lines on the queue. Raises if one is left: Lambda then invokes the function again with the same lines."""
        for entries in health_records.batches(event):
            left = self._put_on_queue(entries)
            if left and self._put_on_queue(left):
                raise RuntimeError(f"{len(left)} lines of the health agent are not on the queue")

    def _put_on_queue(self, entries: Sequence[health_records.Entry]) -> list[health_records.Entry]:
        """Returns the entries that SQS did not accept."""
        reply = self._clients("sqs").send_message_batch(QueueUrl=self._queue_url, Entries=list(entries))
        failed = {each["Id"] for each in reply.get("Failed") or ()}
        return [entry for entry in entries if entry["Id"] in failed]

    # -- the first run -------------------------------------------------------------------------------------------------

    def first_run(self, request_id: str) -> str:
        """Write the metrics before their alarms are made. Returns the outcome in one line.

        Raises HeartbeatNotVisible once for each request: an alarm that is made before CloudWatch shows the heartbeat would ring.
        """
        began = self._now()
        lines = [self._first_metrics(began, request_id), *self._topic_problems()]
        return cut(" ".join(map(sentence, lines)), _OUTCOME)

    def _first_metrics(self, began: datetime, request_id: str) -> str:
        def until(error: Exception) -> datetime:
            return began + _PATIENCE if is_passing(error, now=self._now(), began=began) else began

        try:
            measured = again(self.measure, until, now=self._now, sleep=self._sleep, log=self._log)
            if measured.unread:
                return f"Metrics are written without a heartbeat: {'; '.join(measured.unread)}"
            if self._is_heartbeat_visible(measured.cluster, began):
                return "Metrics are written"
        except CALL_ERRORS as error:
            hint = f"; {DENIED_HINT}" if is_denied(error) else ""
            return f"Metrics are NOT written: {reason(error)}{hint}"
        if request_id not in self._waited:
            self._waited.add(request_id)
            raise HeartbeatNotVisible
        return "Metrics are written, but CloudWatch does not show the heartbeat yet, so its alarm may ring once"

    def _is_heartbeat_visible(self, cluster: str, began: datetime) -> bool:
        """CloudWatch may show a new metric two minutes late. True, too, if it cannot be asked."""
        while True:
            try:
                found = self._clients("cloudwatch").get_metric_statistics(**metrics.look_for_heartbeat(cluster, began))
            except CALL_ERRORS as error:
                self._log(_failed("GetMetricStatistics", error))
                return True
            if found.get("Datapoints"):
                return True
            if self._now() - began >= _VISIBLE:
                return False
            self._sleep(5)

    def _topic_problems(self) -> Iterator[str]:
        """It cannot be tried, because a message would go to everybody."""
        try:
            attributes = self._clients("sns").get_topic_attributes(TopicArn=self._topic_arn)["Attributes"]
        except CALL_ERRORS as error:
            yield f"The topic's policy could not be read: {reason(error)}"
            return
        policy, problem = None, ""
        if has_own_key(attributes):
            try:
                policy = read_key_policy(self._clients("kms"), attributes["KmsMasterKeyId"])
            except CALL_ERRORS as error:
                problem = f"The policy of the topic's key could not be read: {reason(error)}"
        yield from map(str, problems(self._topic_arn, attributes, policy))
        if problem:
            yield problem


def _attribute(values: Sequence[str]) -> dict[str, str]:
    """As SNS takes it."""
    if len(values) == 1:
        return {"DataType": "String", "StringValue": values[0]}
    return {"DataType": "String.Array", "StringValue": json.dumps([*values], ensure_ascii=False)}


def _failed(operation: str, error: Exception) -> str:
    """Why a call failed, for a message."""
    return text(f"{operation} failed: {reason(error)}", WORDS)


_alerts: Alerts | None = None
"""The memory lasts as long as this copy of the function."""


def handle(event: Mapping[str, Any], _context: object) -> dict[str, Any] | None:
    """Lambda entry point: `hyperpod.alerts.handler.handle`."""
    global _alerts
    _alerts = _alerts or Alerts(os.environ)
    return route(event, _alerts)


def route(event: Mapping[str, Any], alerts: Alerts) -> dict[str, Any] | None:
    """Do what the event asks for."""
    if "Records" in event:
        return alerts.publish(event["Records"])
    if "awslogs" in event:
        alerts.forward(event)
    elif "RequestType" in event:
        answer(event, first_answer(event, alerts))
    elif event.get("schedule") == "metrics":
        alerts.measure()
    else:
        raise ValueError("the event is no input of this function")
    return None


def first_answer(event: Mapping[str, Any], alerts: Alerts, log: Callable[[str], None] = print) -> dict[str, Any]:
    """The answer to CloudFormation: always SUCCESS. Nothing of the event is logged (../common/answer.py).

    Raises HeartbeatNotVisible: there is no answer yet.
    """
    reply: dict[str, Any] = {**identify(event, PHYSICAL_ID), "Status": "SUCCESS"}
    if event["RequestType"] == "Delete":
        return reply
    try:
        outcome = alerts.first_run(event["RequestId"])
    except HeartbeatNotVisible:
        raise
    except Exception as error:  # noqa: BLE001 - alerts end no deployment, whatever it is
        log(traceback.format_exc())
        outcome = f"Metrics are NOT written: {type(error).__name__}; see the function's log."
    return {**reply, "Data": {"Outcome": outcome}}
