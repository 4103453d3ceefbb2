"""The Lambda's entry points, as CDK's provider framework calls them, and the clients they work on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..common.clients import client
from .poll.provider import Answer, Provider

_provider = Provider(
    lambda: client("sagemaker"),
    lambda: client("cloudformation"),
    s3=lambda: client("s3"),
    functions=lambda: client("lambda"),
)


def on_event(event: Mapping[str, Any], _context: object) -> Answer:
    """Lambda entry point: `hyperpod.scale_down.handler.on_event`."""
    return _provider.on_event(event)


def is_complete(event: Mapping[str, Any], _context: object) -> Answer:
    """Lambda entry point: `hyperpod.scale_down.handler.is_complete`."""
    return _provider.is_complete(event)
