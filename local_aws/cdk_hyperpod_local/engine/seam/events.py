"""EventBridge: events of AWS's own services, schedules on the functions' clock, and deliveries that policies allow.

ministack delivers without looking at the policy of the target, and has no dead-letter queues. As on AWS, a delivery that
is not allowed is not repeated: it goes to the target's dead-letter queue, or is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ministack.core import responses  # type: ignore[import-not-found]
from ministack.services import eventbridge  # type: ignore[import-not-found]

from cdk_hyperpod_local.engine.seam import policies

Json = Any
_SERVICE = "events.amazonaws.com"
_SWEEP = 10.0
_MAY: Mapping[str, Callable[[str, str, str], bool]] = {
    "lambda": policies.service_may_invoke,
    "sns": policies.service_may_publish,
    "sqs": policies.service_may_send,
}


def install(speed: float) -> None:
    """`speed`: of the clock of schedules."""
    seconds_of = eventbridge._parse_rate_seconds
    invoke = eventbridge._invoke_target

    def faster(expression: str) -> float | None:
        seconds: int | None = seconds_of(expression)
        return None if seconds is None else seconds / speed

    def invoked(target: Json, event: Json, rule: Json, view: Any = None) -> None:
        may = _MAY.get((str(target["Arn"]).split(":") + [""] * 3)[2])
        if may is None or may(target["Arn"], _SERVICE, rule["Arn"]):
            invoke(target, event, rule, view)
        else:
            _to_dead_letters(target, event, rule, view)

    eventbridge._parse_rate_seconds = faster
    eventbridge._invoke_target = invoked
    eventbridge._SCHEDULER_TICK_INTERVAL = min(_SWEEP, 60 / speed)


def _to_dead_letters(target: Json, event: Json, rule: Json, view: Any) -> None:
    queue = (target.get("DeadLetterConfig") or {}).get("Arn")
    if queue and policies.service_may_send(queue, _SERVICE, rule["Arn"]):
        whole = (view or eventbridge._pattern_event_view(event)).event_with_detail()
        eventbridge._dispatch_to_sqs(eventbridge.parse_arn(queue), json.dumps(whole))


def send(*, account: str, region: str, source: str, detail_type: str, resource: str, detail: Json) -> None:
    """Put an event of an AWS service on the default bus of an account and a Region."""
    entry = {"Source": source, "DetailType": detail_type, "Resources": [resource], "Detail": json.dumps(detail)}
    with responses.request_scope(account, region):
        eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)
