"""Everything that reaches into ministack: its private registries are a contract with version 1.5.33 and no other.

Nothing outside this folder imports ministack, so an upgrade is a change to this folder. ministack reads its environment
when it is imported: `launch.py` sets that first.
May import: engine.gate.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from ministack import app  # type: ignore[import-not-found]
from ministack.core import responses  # type: ignore[import-not-found]

SUPPORTED_VERSION = "1.5.33"


def check_version() -> None:
    """Refuse another version: it may have moved what we reach for."""
    installed = importlib.metadata.version("ministack")
    if installed != SUPPORTED_VERSION:
        raise SystemExit(f"ministack {SUPPORTED_VERSION} is needed, found {installed}: run `cdk-hyperpod local setup`")


def asgi() -> Any:
    """The application to serve."""
    return app.app


def account() -> str:
    """Of the request at hand."""
    return str(responses.get_account_id())


def region() -> str:
    """Of the request at hand."""
    return str(responses.get_region())
