"""Lambda reads a queue: with the function's role, in batches of a window, and with a visibility timeout on the functions'
clock.

ministack's mappings take at most ten messages, and do not wait for more.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ministack.core import iam_actions  # type: ignore[import-not-found]
from ministack.services import lambda_svc, sqs  # type: ignore[import-not-found]

from cdk_hyperpod_local.engine.seam import policies

Json = Any
ACTIONS = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
"""What the role needs ("Using Lambda with Amazon SQS", execution role permissions)."""
_SESSION = "awslambda"
_LARGEST = 6_000_000
"""Bytes of a batch: Lambda's limit for a request."""
_YEAR = 365 * 86_400.0

_opened: dict[str, float] = {}
"""Mapping -> when the first message of its window was there."""


def install(speed: float) -> None:
    """`speed`: of the functions' clock."""
    run, action_of = lambda_svc._run_sqs_batch, iam_actions.extract_iam_action

    def action(service: str, *request: Any) -> str | None:
        # A batch needs the permission of the single operation: "Amazon SQS API permissions".
        found: str | None = action_of(service, *request)
        return found.removesuffix("Batch") if found and service == "sqs" else found

    def received(queue_url: str, most: int) -> list[Json]:
        with sqs._queues_lock:
            return _batch(sqs._get_q(queue_url), speed)

    def run_batch(mapping: Json, function: Json, event: Json, batch: list[Json], *rest: Any) -> None:
        # The function runs in real time. Its messages must not come back while it works.
        for message in batch:
            message["visible_at"] += _YEAR
        try:
            run(mapping, function, event, batch, *rest)
        finally:
            for message in batch:
                message["visible_at"] -= _YEAR

    iam_actions.extract_iam_action = action
    sqs._receive_messages_for_esm = received
    lambda_svc._run_sqs_batch = run_batch


def missing_action(function: str, queue: str) -> str | None:
    """An action that the function's role needs to read the queue, and may not do."""
    record = lambda_svc._functions.get(function.partition(":function:")[2].partition(":")[0] or function)
    role = record["config"]["Role"] if record else ""
    return next((action for action in ACTIONS if not policies.role_may(role, _SESSION, action, queue)), None)


def queues() -> list[tuple[str, str, str, int]]:
    """Account, Region, name, and messages that are visible, of every queue."""
    now = time.time()
    return [
        (*scoped[:2], queue["name"], sum(message["visible_at"] <= now for message in queue["messages"]))
        for scoped, queue in list(sqs._queues._data.items())
    ]


def _batch(queue: Json, speed: float) -> list[Json]:
    arn = queue["attributes"]["QueueArn"]
    mapping = next(each for each in lambda_svc._esms.values() if each["EventSourceArn"] == arn)
    sqs._expire_retained(queue)
    sqs._dlq_sweep(queue)
    now = time.time()
    waiting = [message for message in queue["messages"] if message["visible_at"] <= now]
    if not waiting or missing_action(mapping["FunctionName"], arn):
        _opened.pop(mapping["UUID"], None)
        return []
    window = float(mapping["MaximumBatchingWindowInSeconds"]) / speed
    left = _opened.setdefault(mapping["UUID"], now) + window - now
    if len(waiting) < mapping["BatchSize"] and left > 0:
        threading.Timer(left, lambda_svc._esm_wake.set).start()
        return []
    del _opened[mapping["UUID"]]
    visibility = float(queue["attributes"].get("VisibilityTimeout", "30")) / speed
    batch: list[Json] = sqs._collect_msgs(queue, _fitting(waiting, mapping["BatchSize"]), visibility)
    return batch


def _fitting(waiting: list[Json], most: int) -> int:
    """How many of the messages are one batch."""
    size = 0
    for number, message in enumerate(waiting[:most]):
        size += len(message["body"])
        if size > _LARGEST and number:
            return number
    return min(most, len(waiting))
