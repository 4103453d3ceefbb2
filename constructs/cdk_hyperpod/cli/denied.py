"""What VPC endpoints have refused, out of CloudTrail's files: for whoever tries `network.endpoint_policies`.

A trail writes it once it logs network activity events with the error VpceAccessDenied (CloudTrail user guide, "Logging
network activity events"); docs/deploying.md has the commands.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import rich_click as click

from ..errors import HyperPodError
from ..typed.words import shown_name
from .options import json_option
from .tables import say, say_json, table

MAX_BYTES = 268_435_456
"""Of one file, unpacked: CloudTrail begins another at 50 MB. A file of nothing but noughts packs a thousandfold."""


MAX_CELL = 200
"""Characters of a cell that are shown: an ARN's, and no page's."""


@click.command(epilog="Exit code 0: the files were read, also if nothing was refused; 1: the folder cannot be read.")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@json_option
def denied(folder: Path, *, as_json: bool) -> None:
    """Say what VPC endpoints refused. FOLDER is a copy of what a trail of CloudTrail has written."""
    found = refusals(folder)
    if as_json:
        members = ("endpoint", "call", "resource", "account")
        rows = [{"times": count, **dict(zip(members, row, strict=True))} for row, count in found]
        say_json("denied", 1, {"folder": str(folder), "refused": rows})
    elif found:
        say(*table(("times", "endpoint", "call", "on", "by account"), [(str(count), *row) for row, count in found]))
    else:
        say(f"{folder}: no endpoint refused anything in these files")


def refusals(folder: Path) -> list[tuple[tuple[str, str, str, str], int]]:
    """By which endpoint what was refused, on what and to whom, and how often, the most frequent first. Reads every file of a
    trail in the folder.

    JSON without events (the trail's digests, other services' logs in the same bucket) is passed over. Raises HyperPodError
    for a folder that is not there, for files none of which has events, and for one that CloudTrail cannot have written.
    """
    if not folder.is_dir():
        raise HyperPodError(f"{folder}: is not a folder; copy the trail's files there (docs/deploying.md)")
    files = [_rows(path) for path in _files(folder)]
    if files and all(rows is None for rows in files):
        raise HyperPodError(
            f"{folder}: no file there has events of CloudTrail, which stand under Records; copy the trail's files there "
            "(docs/deploying.md)"
        )
    counted = Counter(row for rows in files for row in rows or ())
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(
        path for path in folder.rglob("*") if path.name.endswith((".json", ".json.gz")) and path.is_file()
    )


def _rows(path: Path) -> list[tuple[str, str, str, str]] | None:
    """A row for each refusal; None: the file is JSON, but not of events."""
    try:
        found = json.loads(_content(path))
        if not isinstance(found, dict) or "Records" not in found:
            return None
        return [_row(event) for event in found["Records"] if event.get("errorCode") == "VpceAccessDenied"]
    except (OSError, EOFError, ValueError, TypeError, AttributeError, RecursionError, zlib.error):
        raise HyperPodError(f"{path}: is not a file of CloudTrail; keep such files alone in the folder") from None


def _content(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    return content


def _row(event: Mapping[str, Any]) -> tuple[str, str, str, str]:
    service = str(event.get("eventSource", "?")).removesuffix(".amazonaws.com")
    cells = (
        str(event.get("vpcEndpointId", "?")),
        f"{service}:{event.get('eventName', '?')}",
        _resource(event),
        str((event.get("userIdentity") or {}).get("accountId", "nobody's keys")),
    )
    # Who was refused has chosen some of these: none of it may write on the terminal as it likes.
    endpoint, call, resource, account = (shown_name(cell, MAX_CELL) for cell in cells)
    return endpoint, call, resource, account


def _resource(event: Mapping[str, Any]) -> str:
    """The bucket or the ARN; CloudTrail leaves it out where the caller is of another account."""
    bucket = (event.get("requestParameters") or {}).get("bucketName")
    arns = [str(resource.get("ARN")) for resource in event.get("resources") or [] if resource.get("ARN")]
    return str(bucket) if bucket else ", ".join(arns) or "not told"
