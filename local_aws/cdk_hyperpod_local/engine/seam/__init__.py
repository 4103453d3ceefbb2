"""All code that uses ministack's internals. Its private registries are a contract with version 1.5.33 only.

Nothing outside this folder imports ministack, so an upgrade changes only this folder. ministack reads its environment
when it is imported; `launch.py` sets it before.
May import: alarms, engine.gate.
"""

from __future__ import annotations

import importlib.metadata
from contextlib import AbstractContextManager
from typing import Any

from ministack import app  # type: ignore[import-not-found]
from ministack.core import responses  # type: ignore[import-not-found]

SUPPORTED_VERSION = "1.5.33"


def check_version() -> None:
    """Refuse any other version, because its internals may differ."""
    installed = importlib.metadata.version("ministack")
    if installed != SUPPORTED_VERSION:
        raise SystemExit(
            f"ministack {SUPPORTED_VERSION} is required, but {installed} is installed. Run `cdk-hyperpod local setup`"
        )


def asgi() -> Any:
    """The ASGI application to serve."""
    return app.app


def scope(account: str, region: str) -> AbstractContextManager[None]:
    """What runs inside is a request of this account and Region."""
    made: AbstractContextManager[None] = responses.request_scope(account, region)
    return made


def account() -> str:
    """The account of the current request."""
    return str(responses.get_account_id())


def region() -> str:
    """The region of the current request."""
    return str(responses.get_region())
