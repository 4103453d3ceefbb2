"""What VPC endpoints have refused, out of CloudTrail's files: for whoever tries `network.endpoint_policies`.

A trail writes it once it logs network activity events with the error VpceAccessDenied (CloudTrail user guide, "Logging
network activity events"); docs/deploying.md has the commands.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import HyperPodError


def denied_table(folder: Path) -> str:
    """Who was refused what, by which endpoint and how often, the most frequent first. Reads every file of a trail in the folder.

    Raises HyperPodError for a folder that is not there, and for a file that CloudTrail has not written.
    """
    if not folder.is_dir():
        raise HyperPodError(f"{folder}: is no folder; copy the trail's files there (docs/deploying.md)")
    counted = Counter(row for path in _files(folder) for row in _rows(path))
    if not counted:
        return f"{folder}: no endpoint refused anything in these files"
    head = ("times", "endpoint", "call", "on", "by account")
    lines = [
        head,
        *((str(count), *row) for row, count in sorted(counted.items(), key=lambda item: (-item[1], item[0]))),
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*") if path.name.endswith((".json", ".json.gz")))


def _rows(path: Path) -> Iterator[tuple[str, str, str, str]]:
    try:
        content = path.read_bytes()
        records = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)["Records"]
        events = [event for event in records if event.get("errorCode") == "VpceAccessDenied"]
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError):
        raise HyperPodError(f"{path}: is no file of CloudTrail; keep such files alone in the folder") from None
    for event in events:
        service = str(event.get("eventSource", "?")).removesuffix(".amazonaws.com")
        yield (
            str(event.get("vpcEndpointId", "?")),
            f"{service}:{event.get('eventName', '?')}",
            _resource(event),
            str((event.get("userIdentity") or {}).get("accountId", "nobody's keys")),
        )


def _resource(event: Mapping[str, Any]) -> str:
    """The bucket or the ARN; CloudTrail leaves it out where the caller is of another account."""
    bucket = (event.get("requestParameters") or {}).get("bucketName")
    arns = [str(resource.get("ARN")) for resource in event.get("resources") or [] if resource.get("ARN")]
    return str(bucket) if bucket else ", ".join(arns) or "not told"
