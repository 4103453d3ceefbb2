"""CloudWatch Logs' subscription filters: AWS's patterns of terms, two per log group, and only to functions that may be
invoked.

ministack looks for all words of any pattern, sets no limit, and asks nobody.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ministack.core import responses  # type: ignore[import-not-found]
from ministack.services import cloudwatch_logs as logs  # type: ignore[import-not-found]

from cdk_hyperpod_local.engine.seam import policies
from cdk_hyperpod_local.engine.seam import services as requests

Json = Any
MOST = 2
"""Subscription filters of a log group ("CloudWatch Logs quotas")."""
_TERM = re.compile(r'(?P<sign>[-?]?)(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>\w+))(?=\s|$)')
_REFUSED = "Could not execute the lambda function. Make sure you have given CloudWatch Logs permission to execute your function."


class PatternError(Exception):
    """A pattern that is invalid, or of a kind that is not evaluated here: JSON, delimited by spaces, or a regular
    expression."""


def install() -> None:
    put, fan_out = logs._put_subscription_filter, logs._fanout_to_subscription_filters

    def checked(request: Json) -> requests.Reply:
        refusal = _refusal(request)
        reply: requests.Reply = put(request) if refusal is None else _failure(*refusal)
        return reply

    def fanned_out(group: str, stream: str, events: Json) -> None:
        found = logs._log_groups.get(group) or {}
        kept = found.get("subscriptionFilters") or {}
        allowed = {name: each for name, each in kept.items() if _may_invoke(each["destinationArn"], group)}
        if allowed:
            found["subscriptionFilters"] = allowed
            try:
                fan_out(group, stream, events)
            finally:
                found["subscriptionFilters"] = kept

    logs._put_subscription_filter = checked
    logs._fanout_to_subscription_filters = fanned_out
    logs._subscription_pattern_matches = matches


def matches(pattern: str, message: str) -> bool:
    """Whether a log line matches a pattern of terms ("Filter pattern syntax", unstructured log events).

    All plain terms must be in it, at least one of those with `?`, and none of those with `-`. Without a term, every line
    matches.
    """
    terms = parsed(pattern)
    wanted = [term for sign, term in terms if sign == ""]
    if any(term in message for sign, term in terms if sign == "-") or not all(term in message for term in wanted):
        return False
    # `?` terms beside plain ones are ignored, as AWS documents.
    optional = [term for sign, term in terms if sign == "?"]
    return bool(wanted) or not optional or any(term in message for term in optional)


def parsed(pattern: str) -> list[tuple[str, str]]:
    """The terms with their signs: `-`, `?` or none. Raises PatternError."""
    terms, at = [], 0
    text = pattern.strip()
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise PatternError(f"Invalid filter pattern, or one that is not evaluated here: {pattern}")
        quoted = found["quoted"]
        terms.append((found["sign"], found["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)))
        at = found.end() + len(text[found.end() :]) - len(text[found.end() :].lstrip())
    return terms


def _refusal(request: Json) -> tuple[str, str] | None:
    group = logs._log_groups.get(request.get("logGroupName"))
    if group is None:
        return None  # ministack says that it does not exist
    try:
        parsed(str(request.get("filterPattern", "")))
    except PatternError as error:
        return "InvalidParameterException", str(error)
    filters = group.get("subscriptionFilters") or {}
    if request.get("filterName") not in filters and len(filters) >= MOST:
        return "LimitExceededException", "Resource limit exceeded."
    if not _may_invoke(str(request.get("destinationArn", "")), str(request.get("logGroupName"))):
        return "InvalidParameterException", _REFUSED
    return None


def _may_invoke(destination: str, group: str) -> bool:
    if ":function:" not in destination:
        return True
    source = f"arn:aws:logs:{responses.get_region()}:{responses.get_account_id()}:log-group:{group}:*"
    return policies.service_may_invoke(destination, "logs.amazonaws.com", source)


def _failure(code: str, message: str) -> requests.Reply:
    body = json.dumps({"__type": code, "message": message}).encode()
    return 400, {"Content-Type": "application/x-amz-json-1.1", "x-amzn-errortype": code}, body
