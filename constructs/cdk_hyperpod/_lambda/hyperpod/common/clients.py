"""The functions' clients of AWS."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import botocore.session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.loaders import Loader  # type: ignore[import-untyped]

_MODELS = Path(__file__).resolve().with_name("models")


@functools.cache
def client(service: str) -> Any:
    """The client of a service. SageMaker's comes with the pinned API model beside this file, because the Lambda runtime's
    botocore may not know HyperPod's newer operations and members."""
    session = botocore.session.Session()
    session.register_component("data_loader", Loader(extra_search_paths=[str(_MODELS)]))
    # The drainer may run for a minute, and the caller repeats the call: two looks at the same time could disturb each other.
    seconds, attempts = (65, 1) if service == "lambda" else (20, 3)
    retries = {"mode": "standard", "total_max_attempts": attempts}
    config = Config(connect_timeout=5, read_timeout=seconds, retries=retries)
    return session.create_client(service, config=config)
