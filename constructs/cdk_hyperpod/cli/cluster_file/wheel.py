"""The wheel that the library was installed from, by the installer's own record (PEP 610).

The package is not on PyPI, where its name is free: a pin by name would install whatever somebody else puts there.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.parse
import urllib.request
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

_NAME = re.compile(r"cdk_hyperpod-[A-Za-z0-9_.+-]+\.whl")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file that pip installs."""

    name: str
    content: bytes

    @property
    def digest(self) -> str:
        """Its SHA-256."""
        return hashlib.sha256(self.content).hexdigest()


class WheelError(Exception):
    """Why there is no wheel: a sentence without its end."""


def installed_wheel() -> Wheel:
    """The wheel. Raises WheelError if the record names none, or one that was changed or deleted since."""
    record = distribution("cdk-hyperpod").read_text("direct_url.json")
    if record is None:
        raise WheelError("cdk-hyperpod was not installed from a file")
    return _read(json.loads(record))


def _read(record: dict[str, Any]) -> Wheel:
    url = urllib.parse.urlsplit(record["url"])
    path = Path(urllib.request.url2pathname(url.path))
    if "archive_info" not in record or url.scheme != "file" or not _NAME.fullmatch(path.name):
        raise WheelError("cdk-hyperpod was not installed from a wheel on this machine")
    try:
        wheel = Wheel(path.name, path.read_bytes())
    except OSError as error:
        raise WheelError(
            f"the wheel that cdk-hyperpod was installed from, {path}, cannot be read ({error.strerror})"
        ) from None
    # pip records the hash, and uv does not.
    known = record["archive_info"].get("hashes", {}).get("sha256", wheel.digest)
    if known != wheel.digest:
        raise WheelError(f"the wheel that cdk-hyperpod was installed from, {path}, was changed since")
    return wheel
