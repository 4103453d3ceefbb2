"""The Lambda's entry points, as CDK's provider framework calls them, and the clients they work on."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import Any

# Importing makes no garbage, and looking for some is a good part of a cold start: not in between, and not afterwards among
# what stays for good (gc.freeze).
gc.disable()

from .provider import Answer, Provider

_MODELS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models")
_clients: dict[str, Any] = {}


def client(service: str) -> Any:
    """A client on the pinned and trimmed API models beside this package, whatever the runtime's own botocore knows.

    Straight from botocore: boto3's resources are not used, and its import is a good part of a cold start.
    """
    if service not in _clients:
        gc.disable()
        try:
            _clients[service] = make_client(service)
        finally:
            gc.freeze()
            gc.enable()
    return _clients[service]


def make_client(service: str, *, profile: str | None = None, **more: Any) -> Any:
    """A new client. botocore's own handlers are left out: they amend calls that are not made here, and take their time. S3's
    addresses cannot be made without them.

    `more`: arguments of botocore's create_client; absent: the environment says them, as it does in a Lambda.
    """
    import botocore.session  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]
    from botocore.loaders import Loader  # type: ignore[import-untyped]

    session = botocore.session.Session(profile=profile, include_builtin_handlers=service == "s3")
    # Only the pinned models: looking through botocore's own 400 services is half of the time to a client.
    loader = Loader(extra_search_paths=[_MODELS], include_default_search_paths=False)
    session.register_component("data_loader", loader)
    # The drainer may take a minute, and is asked again by the caller: a look that is sent twice could act beside itself.
    seconds, attempts = (65, 1) if service == "lambda" else (20, 3)
    retries = {"mode": "standard", "total_max_attempts": attempts}
    config = Config(connect_timeout=5, read_timeout=seconds, retries=retries)
    return session.create_client(service, config=config, **more)


_provider = Provider(
    lambda: client("sagemaker"),
    lambda: client("cloudformation"),
    s3=lambda: client("s3"),
    functions=lambda: client("lambda"),
)


def on_event(event: Mapping[str, Any], _context: object) -> Answer:
    """Lambda entry point: `hyperpod_provider.handler.on_event`."""
    return _provider.on_event(event)


def is_complete(event: Mapping[str, Any], _context: object) -> Answer:
    """Lambda entry point: `hyperpod_provider.handler.is_complete`."""
    return _provider.is_complete(event)


gc.freeze()
gc.enable()
