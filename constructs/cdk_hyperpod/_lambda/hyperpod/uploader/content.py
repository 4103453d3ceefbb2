"""The content of an upload: its hash, its limits, and the values in it that are known at deployment only."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

KIND = "Custom::HyperPodLifecycleScripts"
HASH = r"[0-9a-f]{64}"
MAX_BYTES = 250_000_000
"""Of all files of an upload. Every new node downloads them, and the function holds one file at a time in 512 MB."""
MAX_FILES = 2_000
"""The function writes them one after the other, and has five minutes."""
SETTINGS = "cluster.json"
"""The file with the cluster's settings, the only one with marks. It is written last: without it, an upload is incomplete."""
_MARK = re.compile(r"<<cdk-hyperpod:[0-9a-f]{16}>>")


def content_hash(files: Iterable[tuple[str, bytes | bytearray]]) -> str:
    """The hash of files that are sorted by name. It changes only if a name or a content does."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def mark(expression: object) -> str:
    """What stands in the settings for a value that is known at deployment only. `expression`: the template's for it."""
    digest = hashlib.sha256(json.dumps(expression, sort_keys=True).encode()).hexdigest()
    return f"<<cdk-hyperpod:{digest[:16]}>>"


def fill_in(settings: str, values: Mapping[str, str]) -> str:
    """The settings with each value in the place of its mark, as the inside of a JSON text. Raises KeyError for an unknown mark."""
    return _MARK.sub(lambda found: json.dumps(values[found[0]])[1:-1], settings)
