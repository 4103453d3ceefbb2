"""Log lines of the health agent, from a subscription filter, as entries for the queue. Pure."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..kernel.text import one_line

BATCH = 10
"""Entries of one SendMessageBatch (SQS API reference)."""
MOST = 100
"""Lines of one event of CloudWatch Logs, which has those of one stream. A user who floods the log must not delay HyperPod's events."""
LINE = 4000
"""Maximum characters of a line. Ten lines of four bytes a character are below SQS's 256 KB."""

Entry = dict[str, str]


def batches(event: Mapping[str, Any]) -> Iterator[Sequence[Entry]]:
    """Entries of SendMessageBatch for the lines of one event of CloudWatch Logs. Its control messages have none."""
    payload = json.loads(gzip.decompress(base64.b64decode(event["awslogs"]["data"])))
    lines = payload["logEvents"] if payload.get("messageType") == "DATA_MESSAGE" else []
    entries = [_entry(number, payload["logStream"], line) for number, line in enumerate(lines[:MOST])]
    yield from (entries[start : start + BATCH] for start in range(0, len(entries), BATCH))


def _entry(number: int, stream: str, line: Mapping[str, Any]) -> Entry:
    record = {
        "logStream": one_line(stream)[:512],
        "timestamp": line["timestamp"],
        "message": one_line(line["message"])[:LINE],
    }
    return {"Id": str(number), "MessageBody": json.dumps({"healthRecord": record}, ensure_ascii=False)}
